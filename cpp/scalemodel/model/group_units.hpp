// Pieces that the builders of layer groups share.
#pragma once

#include <string>
#include <string_view>

#include "scalemodel/model/groups.hpp"

namespace scalemodel::building {

/// Throws MalformedQuestion that names the field, its value and what is legal, unless it `holds`.
void need(bool holds, const std::string& group, std::string_view field, double value,
          const std::string& legal);

GroupOperator product(std::string_view name, double columns, double depth, Cut cut,
                      double rows = 1);
/// An operator without weights over `columns` values.
GroupOperator passing(OperatorKind kind, std::string_view name, double columns,
                      Cut cut = Cut::none);

/// Values kept for the backward pass: inputs of products, norms, activations and attention.
void count_saved(Unit& unit);

}  // namespace scalemodel::building
