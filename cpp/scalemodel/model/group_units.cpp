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

GroupOperator product(std::string_view name, double columns, double depth, Cut cut, double rows) {
  GroupOperator op;
  op.name = name;
  op.columns = columns;
  op.depth = depth;
  op.cut = cut;
  op.rows = rows;
  return op;
}

GroupOperator passing(OperatorKind kind, std::string_view name, double columns, Cut cut) {
  GroupOperator op;
  op.kind = kind;
  op.name = name;
  op.columns = columns;
  op.cut = cut;
  return op;
}

void count_saved(Unit& unit) {
  for (const GroupOperator& op : unit.operators) {
    const double rows = op.rows * op.copies;
    double& cut = op.cut == Cut::none ? unit.saved_whole : unit.saved_cut;
    switch (op.kind) {
      case OperatorKind::product:
        if (!op.weightless && !op.keeps_input) break;
        (!op.weightless && op.cut == Cut::depth ? unit.saved_cut : unit.saved_whole) +=
            rows * op.depth;
        break;
      case OperatorKind::attention: {
        const AttentionShape& a = op.attention;
        unit.saved_cut += a.heads * (a.head_dim + a.v_head_dim) +
                          a.kv_heads * static_cast<double>(a.head_dim + a.v_head_dim);
        break;
      }
      case OperatorKind::norm:
        cut += rows * op.columns;
        break;
      case OperatorKind::activation:
        cut += rows * op.columns * (op.gated ? 2 : 1);
        break;
      case OperatorKind::residual:
      case OperatorKind::rotary:
      case OperatorKind::moving:
      case OperatorKind::loss:  // logits are counted by themselves
        break;
    }
  }
}

}  // namespace scalemodel::building
