#include "scalemodel/search/relation.hpp"

#include <cmath>

namespace scalemodel {
namespace {

/// Of the layers that attend, the most heads.
int max_heads(const Model& model, int AttentionShape::* heads) {
  int most = 0;
  for (const LayerKind& kind : model.kinds) most = std::max(most, kind.attention.*heads);
  return most;
}

double value_of(Variable variable, const Degrees& d, const Model& model, const Cluster& cluster,
                const Task& task) {
  switch (variable) {
    case Variable::tp:
      return d.tp;
    case Variable::cp:
      return d.cp;
    case Variable::pp:
      return d.pp;
    case Variable::dp:
      return d.dp;
    case Variable::ep:
      return d.ep;
    case Variable::etp:
      return d.etp;
    case Variable::vpp:
      return d.vpp;
    case Variable::micro_batch:
      return d.micro_batch;
    case Variable::micro_batches:
      return d.micro_batches;
    case Variable::accelerators:
      return cluster.accelerators;
    case Variable::node_accelerators:
      return cluster.node_accelerators;
    case Variable::domain:
      return cluster.scale_up.domain;
    case Variable::layers:
      return static_cast<double>(model.layers());
    case Variable::hidden:
      return model.hidden;
    case Variable::heads:
      return max_heads(model, &AttentionShape::heads);
    case Variable::kv_heads:
      return max_heads(model, &AttentionShape::kv_heads);
    case Variable::experts: {
      int experts = 0;
      for (const LayerKind& kind : model.kinds)
        experts = std::max(experts, kind.feed_forward.experts);
      return experts;
    }
    case Variable::sequence:
      return task.sequence;
    case Variable::global_batch:
      return task.global_batch;
  }
  return 0;
}

}  // namespace

bool holds(const Relation& relation, const Degrees& d, const Model& model, const Cluster& cluster,
           const Task& task) {
  const auto product = [&](const Product& p) {
    double value = p.factor;
    for (const Variable v : p.variables) value *= value_of(v, d, model, cluster, task);
    return value;
  };
  const double left = product(relation.left), right = product(relation.right);
  switch (relation.comparison) {
    case Comparison::less:
      return left < right;
    case Comparison::less_equal:
      return left <= right;
    case Comparison::equal:
      return left == right;
    case Comparison::not_equal:
      return left != right;
    case Comparison::greater_equal:
      return left >= right;
    case Comparison::greater:
      return left > right;
    case Comparison::multiple_of:
      return right != 0 && std::fmod(left, right) == 0;
  }
  return false;
}

}  // namespace scalemodel
