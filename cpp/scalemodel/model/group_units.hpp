// Pieces that the builders of layer groups share.
#pragma once

#include <string>
#include <string_view>

#include "scalemodel/model/operators.hpp"

namespace scalemodel::building {

/// Throws MalformedQuestion that names the field, its value and what is legal, unless it `holds`.
void need(bool holds, const std::string& group, std::string_view field, double value,
          const std::string& legal);

LayerOperator gemm(std::string_view name, double columns, double depth, Cut cut, double rows = 1);
/// An operator without weights over `columns` values.
LayerOperator passing(OperatorKind kind, std::string_view name, double columns,
                      Cut cut = Cut::none);

}  // namespace scalemodel::building
