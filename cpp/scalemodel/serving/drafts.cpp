#include "scalemodel/serving/drafts.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace scalemodel {

double draft_candidates(const DraftTree& tree) noexcept {
  const double width = tree.width;
  return tree.depth > 0 ? width + (tree.depth - 1) * width * width : 0;
}

double verified_drafts(const DraftTree& tree) noexcept {
  if (tree.width == 1) return tree.depth;
  const double asked = tree.nodes > 0 ? tree.nodes : tree.depth * tree.width;
  return std::min(asked, draft_candidates(tree));
}

double acceptance_of(const DraftTree& tree, int depth, int rank) noexcept {
  const double best = tree.acceptance * std::pow(tree.decay, depth - 1);
  double accepted = best;
  for (int k = 2; k <= rank; ++k) {
    const double more = (1 - best) * (std::pow(k - 1, -tree.power) - std::pow(k, -tree.power));
    accepted = std::min(accepted, more);
  }
  return accepted;
}

std::vector<DraftNode> draft_nodes(const DraftTree& tree) {
  std::vector<DraftNode> all;
  std::vector<int> beam{DraftNode::kRoot};
  const auto likelier = [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].accepted > all[static_cast<std::size_t>(b)].accepted;
  };
  for (int depth = 1; depth <= tree.depth; ++depth) {
    std::vector<int> children;
    for (const int parent : beam) {
      const double path =
          parent == DraftNode::kRoot ? 1.0 : all[static_cast<std::size_t>(parent)].accepted;
      for (int rank = 1; rank <= tree.width; ++rank) {
        children.push_back(static_cast<int>(all.size()));
        all.push_back({parent, rank, path * acceptance_of(tree, depth, rank)});
      }
    }
    std::ranges::stable_sort(children, likelier);
    children.resize(static_cast<std::size_t>(tree.width));
    beam = children;
  }
  // A parent is no less likely than its children and comes before them: what is kept is a tree.
  std::vector<int> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, likelier);
  order.resize(static_cast<std::size_t>(verified_drafts(tree)));
  std::ranges::sort(order);
  std::vector<int> place(all.size(), DraftNode::kRoot);
  std::vector<DraftNode> kept;
  for (const int index : order) {
    DraftNode node = all[static_cast<std::size_t>(index)];
    if (node.parent != DraftNode::kRoot) node.parent = place[static_cast<std::size_t>(node.parent)];
    place[static_cast<std::size_t>(index)] = static_cast<int>(kept.size());
    kept.push_back(node);
  }
  return kept;
}

double expected_tokens(const DraftTree& tree) noexcept {
  if (tree.depth <= 0) return 1;
  const double a = tree.acceptance, k = tree.depth;
  if (tree.width == 1 && tree.decay == 1) {
    return a >= 1 ? k + 1 : (1 - std::pow(a, k + 1)) / (1 - a);
  }
  double tokens = 1;
  for (const DraftNode& node : draft_nodes(tree)) tokens += node.accepted;
  return tokens;
}

ServingLayout draft_layout(const DraftModel& draft, const ServingLayout& layout) noexcept {
  ServingLayout own;
  own.tp = draft.tp > 0 ? static_cast<std::uint16_t>(draft.tp) : layout.tp;
  own.dp = layout.dp;
  return own;
}

Reason check_draft(const Draft& draft, const ServingLayout& layout,
                   const Cluster& cluster) noexcept {
  if (!draft.model) return Reason::ok;
  const ServingLayout own = draft_layout(*draft.model, layout);
  if (layout.tp % own.tp != 0) return Reason::mesh;
  return check_layout(draft.model->model, own, cluster);
}

}  // namespace scalemodel
