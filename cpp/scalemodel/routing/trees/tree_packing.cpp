#include "scalemodel/routing/trees/tree_packing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr std::int32_t kNoLink = -1;
constexpr double kSmallestUnit = 1e-3;   ///< of the largest bandwidth
constexpr double kUnitTolerance = 1e-6;  ///< of the largest bandwidth

void require_direct(const LinkGraph& graph) {
  if (graph.nodes() != graph.nics()) {
    throw MalformedQuestion("fabric: trees are packed on direct-connect fabrics, without switches");
  }
}

/// The largest unit of which all values are multiples, by Euclid's algorithm.
double common_unit(std::span<const double> values) {
  const double largest = *std::ranges::max_element(values);
  double unit = 0;
  // The remainder of a division that has none may differ from zero by rounding.
  for (double value : values) {
    while (value > kUnitTolerance * largest) unit = std::exchange(value, std::fmod(unit, value));
  }
  if (unit < kSmallestUnit * largest) {
    throw MalformedQuestion(
        "fabric: bandwidths have no common measure above a thousandth of the "
        "largest; round them");
  }
  return unit;
}

/// Maximum flows on a graph with integer capacities, by shortest augmenting paths.
class MaxFlow {
 public:
  explicit MaxFlow(const LinkGraph& graph) : graph_(graph), residual_(graph.links()) {}

  /// The maximum flow, at most `enough`.
  std::int64_t operator()(std::span<const std::int64_t> capacity, std::int32_t from,
                          std::int32_t to, std::int64_t enough) {
    std::ranges::copy(capacity, residual_.begin());
    std::int64_t sum = 0;
    while (sum < enough) {
      by_.assign(graph_.nodes(), kNoLink);
      queue_.assign(1, from);
      for (std::size_t next = 0; next < queue_.size() && by_[to] == kNoLink; ++next) {
        for (const std::int32_t link : graph_.links_from(queue_[next])) {
          const std::int32_t node = graph_.to(link);
          poll_point();
          if (residual_[link] <= 0 || node == from || by_[node] != kNoLink) continue;
          by_[node] = link;
          queue_.push_back(node);
        }
      }
      if (by_[to] == kNoLink) break;
      std::int64_t least = enough - sum;
      for (std::int32_t n = to; n != from; n = graph_.from(by_[n])) {
        least = std::min(least, residual_[by_[n]]);
      }
      for (std::int32_t n = to; n != from; n = graph_.from(by_[n])) {
        residual_[by_[n]] -= least;
        residual_[LinkGraph::reverse(by_[n])] += least;
      }
      sum += least;
    }
    return sum;
  }

 private:
  const LinkGraph& graph_;
  std::vector<std::int64_t> residual_;
  Numbers by_, queue_;
};

/// The least maximum flow from the root to another node, at most `enough`.
std::int64_t least_max_flow(MaxFlow& flow, const LinkGraph& graph,
                            std::span<const std::int64_t> capacity, std::int32_t root,
                            std::int64_t enough) {
  for (std::int32_t node = 0; node < graph.nodes() && enough > 0; ++node) {
    if (node != root) enough = std::min(enough, flow(capacity, root, node, enough));
  }
  return enough;
}

/// Capacities of links as multiples of a unit of bandwidth.
struct Units {
  double unit = 0;                     ///< bytes per second
  std::vector<std::int64_t> capacity;  ///< by link
};

Units units_of(const LinkGraph& graph) {
  Units units;
  std::vector<double> alive;
  for (const double capacity : graph.capacities()) {
    if (capacity > 0) alive.push_back(capacity);
  }
  if (alive.empty()) return {1, std::vector<std::int64_t>(graph.links(), 0)};
  units.unit = common_unit(alive);
  for (const double capacity : graph.capacities()) {
    units.capacity.push_back(std::llround(capacity / units.unit));
  }
  return units;
}

void require_root(const LinkGraph& graph, std::int32_t root) {
  require_direct(graph);
  if (root >= 0 && root < graph.nics()) return;
  throw MalformedQuestion("root=" + std::to_string(root) + ": must be 0 to " +
                          std::to_string(graph.nics() - 1));
}

}  // namespace

BytesPerSecond TreePacking::total() const {
  return BytesPerSecond{std::accumulate(rate.begin(), rate.end(), 0.0)};
}

BytesPerSecond broadcast_bound(const LinkGraph& graph, std::int32_t root) {
  require_root(graph, root);
  const Units units = units_of(graph);
  MaxFlow flow(graph);
  return BytesPerSecond{units.unit * static_cast<double>(least_max_flow(
                                         flow, graph, units.capacity, root,
                                         std::numeric_limits<std::int64_t>::max() / 2))};
}

TreePacking pack_broadcast(const LinkGraph& graph, std::int32_t root) {
  require_root(graph, root);
  TreePacking packing;
  if (graph.nics() < 2) return packing;
  Units units = units_of(graph);
  MaxFlow flow(graph);
  std::int64_t left = least_max_flow(flow, graph, units.capacity, root,
                                     std::numeric_limits<std::int64_t>::max() / 2);
  if (left == 0) throw MalformedQuestion("fabric: the root does not reach every NIC");
  while (left > 0) {
    Numbers tree;
    std::vector<char> in_tree(graph.nodes(), 0);
    in_tree[root] = 1;
    std::vector<std::int64_t>& capacity = units.capacity;
    for (std::int32_t count = 1; count < graph.nodes(); ++count) {
      std::int32_t next = kNoLink;
      for (std::int32_t link = 0; link < graph.links() && next == kNoLink; ++link) {
        if (capacity[link] == 0 || in_tree[graph.from(link)] == 0 || in_tree[graph.to(link)] != 0) {
          continue;
        }
        --capacity[link];
        if (least_max_flow(flow, graph, capacity, root, left - 1) == left - 1) {
          next = link;
        } else {
          ++capacity[link];
        }
      }
      // Lovasz's theorem guarantees a link unless the capacities were rounded wrongly.
      if (next == kNoLink) throw MalformedQuestion("fabric: bandwidths could not be packed");
      in_tree[graph.to(next)] = 1;
      tree.push_back(next);
    }
    // The tree holds one unit; bisection finds the largest rate that leaves enough for the others.
    std::int64_t low = 1, high = left;
    for (const std::int32_t link : tree) high = std::min(high, capacity[link] + 1);
    const auto shift = [&](std::int64_t by) {
      for (const std::int32_t link : tree) capacity[link] -= by;
    };
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      shift(middle - 1);
      const bool enough =
          least_max_flow(flow, graph, capacity, root, left - middle) == left - middle;
      shift(1 - middle);
      (enough ? low : high) = enough ? middle : middle - 1;
    }
    shift(low - 1);
    left -= low;
    packing.link.insert(packing.link.end(), tree.begin(), tree.end());
    packing.first.push_back(static_cast<std::int32_t>(packing.link.size()));
    packing.rate.push_back(units.unit * static_cast<double>(low));
  }
  return packing;
}

TreePacking pack_all_reduce(const LinkGraph& graph, std::int32_t root, double accuracy) {
  require_root(graph, root);
  TreePacking packing;
  if (graph.nics() < 2) return packing;
  const double step = accuracy / 3;
  std::vector<double> width(graph.links() / 2), length(width.size());
  for (std::size_t c = 0; c < width.size(); ++c) {
    const auto link = static_cast<std::int32_t>(2 * c);
    width[c] = std::min(graph.capacity(link), graph.capacity(link + 1)).base();
  }
  const double start = std::pow(static_cast<double>(width.size()) / (1 - step), -1 / step);
  std::ranges::transform(width, length.begin(), [&](double w) { return w > 0 ? start / w : 0; });
  Numbers order(width.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t c) { return width[c] <= 0; });
  std::map<Numbers, double> trees;
  std::vector<double> load(width.size(), 0.0);
  Numbers group(graph.nodes()), tree;
  const auto find = [&](std::int32_t node) {
    while (group[node] != node) node = group[node] = group[group[node]];
    return node;
  };
  for (;;) {
    poll_point(static_cast<std::int64_t>(order.size()));
    std::ranges::sort(order, {}, [&](std::int32_t c) { return std::pair(length[c], c); });
    std::iota(group.begin(), group.end(), 0);
    tree.clear();
    double weight = 0, narrowest = kInfinity;
    for (const std::int32_t c : order) {
      const std::int32_t a = find(graph.from(2 * c)), b = find(graph.to(2 * c));
      if (a == b) continue;
      group[a] = b;
      tree.push_back(c);
      weight += length[c];
      narrowest = std::min(narrowest, width[c]);
    }
    if (static_cast<std::int32_t>(tree.size()) + 1 < graph.nodes()) {
      throw MalformedQuestion("fabric: the root does not reach every NIC");
    }
    if (weight >= 1) break;
    std::ranges::sort(tree);
    trees[tree] += narrowest;
    for (const std::int32_t c : tree) {
      length[c] *= 1 + step * narrowest / width[c];
      load[c] += narrowest;
    }
  }
  double scale = kInfinity;
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (load[c] > 0) scale = std::min(scale, width[c] / load[c]);
  }
  for (const auto& [cables, rate] : trees) {
    // Orders the links of the tree from the root outwards.
    std::vector<char> in_tree(graph.nodes(), 0);
    in_tree[root] = 1;
    for (std::size_t count = 0; count < cables.size(); ++count) {
      for (const std::int32_t c : cables) {
        const bool forward = in_tree[graph.from(2 * c)] != 0;
        if (forward == (in_tree[graph.to(2 * c)] != 0)) continue;
        const std::int32_t link = forward ? 2 * c : 2 * c + 1;
        in_tree[graph.to(link)] = 1;
        packing.link.push_back(link);
      }
    }
    packing.first.push_back(static_cast<std::int32_t>(packing.link.size()));
    packing.rate.push_back(rate * scale);
  }
  return packing;
}

BytesPerSecond all_reduce_bound(const LinkGraph& graph) {
  require_direct(graph);
  double all = 0;
  std::vector<double> at(graph.nodes(), 0.0);
  for (std::int32_t link = 0; link < graph.links(); link += 2) {
    const double width = std::min(graph.capacity(link), graph.capacity(link + 1)).base();
    all += width;
    at[graph.from(link)] += width;
    at[graph.to(link)] += width;
  }
  if (graph.nodes() < 2) return BytesPerSecond{kInfinity};
  return BytesPerSecond{std::min(all / (graph.nodes() - 1), *std::ranges::min_element(at))};
}

}  // namespace scalemodel
