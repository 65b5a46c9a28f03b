#include "scalemodel/model/group_units.hpp"

#include "scalemodel/base/error.hpp"

namespace scalemodel::building {
namespace {

[[noreturn]] void malformed(const std::string& group, std::string_view field, double value,
                            const std::string& legal) {
  std::string text = group;
  text.append(": ").append(field).append("=");
  text.append(value == static_cast<double>(static_cast<long long>(value))
                  ? std::to_string(static_cast<long long>(value))
                  : std::to_string(value));
  throw MalformedQuestion(text.append(": must be ").append(legal));
}

}  // namespace

void need(bool holds, const std::string& group, std::string_view field, double value,
          const std::string& legal) {
  if (!holds) malformed(group, field, value, legal);
}

LayerOperator gemm(std::string_view name, double columns, double depth, Cut cut, double rows) {
  LayerOperator op;
  op.name = name;
  op.columns = columns;
  op.depth = depth;
  op.cut = cut;
  op.rows = rows;
  return op;
}

LayerOperator passing(OperatorKind kind, std::string_view name, double columns, Cut cut) {
  LayerOperator op;
  op.kind = kind;
  op.name = name;
  op.columns = columns;
  op.cut = cut;
  return op;
}

}  // namespace scalemodel::building
