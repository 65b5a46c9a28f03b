#include "scalemodel/routing/policies/colouring.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/pair_numbers.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kNoEdge = -1;  ///< partner, half

using Numbers = std::vector<std::int32_t>;

/// Splits edges into two halves with floor or ceil of half the degree at every vertex.
class EulerSplit {
 public:
  EulerSplit(std::int32_t left_vertices, std::int32_t right_vertices)
      : open_left_(left_vertices, kNoEdge), open_right_(right_vertices, kNoEdge) {}

  void clear() {
    left_.clear();
    right_.clear();
  }
  void add(std::int32_t left, std::int32_t right) {
    left_.push_back(left);
    right_.push_back(right);
  }
  /// The half of every added edge: 0 or 1.
  const std::vector<signed char>& split() {
    pair_up(left_, open_left_, left_partner_);
    pair_up(right_, open_right_, right_partner_);
    half_.assign(left_.size(), kNoEdge);
    PollPoints points;
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(half_.size()); ++e) {
      points();
      if (half_[e] != kNoEdge) continue;
      half_[e] = 0;
      alternate(e, right_partner_, left_partner_);
      alternate(e, left_partner_, right_partner_);
    }
    return half_;
  }

 private:
  /// Pairs the edges at every vertex; the last edge of an odd degree has no partner.
  static void pair_up(const Numbers& vertex, Numbers& open, Numbers& partner) {
    partner.assign(vertex.size(), kNoEdge);
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(vertex.size()); ++e) {
      const std::int32_t other = std::exchange(open[vertex[e]], e);
      if (other == kNoEdge) continue;
      partner[e] = other;
      partner[other] = e;
      open[vertex[e]] = kNoEdge;
    }
    for (const std::int32_t v : vertex) open[v] = kNoEdge;
  }
  /// Alternates the halves along the path of partners that starts at edge `e` with `out`.
  void alternate(std::int32_t e, const Numbers& out, const Numbers& back) {
    const Numbers* by = &out;
    const Numbers* next_by = &back;
    PollPoints points;
    for (std::int32_t next = (*by)[e]; next != kNoEdge && half_[next] == kNoEdge; next = (*by)[e]) {
      points();
      half_[next] = static_cast<signed char>(1 - half_[e]);
      e = next;
      std::swap(by, next_by);
    }
  }

  Numbers left_, right_, open_left_, open_right_, left_partner_, right_partner_;
  std::vector<signed char> half_;
};

/// Parallel edges between two vertices.
struct Bundle {
  std::int32_t pair;
  std::int32_t edges;
};

/// Colours bundles of fewer edges than colours.
class Colourer {
 public:
  using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;

  /// `slot[pair]` is the position in `colours` of the next colour of the pair.
  Colourer(std::int32_t left_vertices, std::int32_t right_vertices, const Pairs& pairs,
           Numbers& slot, Numbers& colours)
      : left_vertices_(left_vertices),
        right_vertices_(right_vertices),
        pairs_(pairs),
        slot_(slot),
        colours_(colours),
        euler_(left_vertices, right_vertices) {}

  void colour(const std::vector<Bundle>& bundles, std::int32_t count) {
    arena_ = bundles;
    divide(0, arena_.size(), count, 0);
  }

 private:
  /// Gives the bundles [begin, end) of the arena the colours `first` ... `first + count - 1`.
  void divide(std::size_t begin, std::size_t end, std::int32_t count, std::int32_t first) {
    if (begin == end) return;
    if (count == 1) {
      for (std::size_t b = begin; b < end; ++b) {
        for (std::int32_t i = 0; i < arena_[b].edges; ++i) put(arena_[b].pair, first);
      }
      return;
    }
    if (count % 2 != 0) {
      balance(begin, end, count, first);
      return;
    }
    const std::size_t start = arena_.size();
    halve(begin, end);
    const std::size_t middle = start + halves_[0], last = middle + halves_[1];
    divide(start, middle, count / 2, first);
    divide(middle, last, count / 2, first + count / 2);
    arena_.resize(start);
  }

  /// Appends the first and then the second half of [begin, end) to the arena.
  void halve(std::size_t begin, std::size_t end) {
    euler_.clear();
    poll_point(1 + static_cast<std::int64_t>(end - begin) / 32);
    for (std::size_t b = begin; b < end; ++b) {
      if (arena_[b].edges % 2 != 0) {
        euler_.add(pairs_[arena_[b].pair].first, pairs_[arena_[b].pair].second);
      }
    }
    const std::vector<signed char>& half_of_odd = euler_.split();
    for (const int half : {0, 1}) {
      const std::size_t before = arena_.size();
      std::size_t odd = 0;
      for (std::size_t b = begin; b < end; ++b) {
        Bundle bundle = arena_[b];
        const bool extra = bundle.edges % 2 != 0 && half_of_odd[odd++] == half;
        bundle.edges = bundle.edges / 2 + (extra ? 1 : 0);
        if (bundle.edges > 0) arena_.push_back(bundle);
      }
      halves_[half] = arena_.size() - before;
    }
  }

  /// Handles an odd number of colours: divides the edges over a few more colours, moves the edges
  /// of the surplus colours to those with the least load, then balances pairs of colours.
  void balance(std::size_t begin, std::size_t end, std::int32_t count, std::int32_t first) {
    const auto power = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(count)));
    divide(begin, end, 4 * (power - count) <= power ? power : count + 1, first);
    count_ = count;
    load_[0].assign(static_cast<std::size_t>(left_vertices_) * count, 0);
    load_[1].assign(static_cast<std::size_t>(right_vertices_) * count, 0);
    members_.resize(std::max<std::size_t>(members_.size(), count));
    for (Numbers& members : members_) members.clear();
    floor_[0].assign(left_vertices_, 0);
    floor_[1].assign(right_vertices_, 0);
    surplus_.clear();
    for (std::size_t b = begin; b < end; ++b) {
      const std::int32_t pair = arena_[b].pair;
      floor_[0][pairs_[pair].first] += arena_[b].edges;
      floor_[1][pairs_[pair].second] += arena_[b].edges;
      for (std::int32_t i = 0; i < arena_[b].edges; ++i) {  // withdraws the assigned colours
        const std::int32_t colour = colours_[--slot_[pair]] - first;
        if (colour < count) {
          join(pair, colour);
        } else {
          surplus_.push_back(pair);
        }
      }
    }
    for (Numbers& degrees : floor_) {
      for (std::int32_t& degree : degrees) degree /= count;
    }
    for (const std::int32_t pair : surplus_) place(pair);
    for (bool changed = true; changed;) {
      changed = balance_vertices(0, left_vertices_);
      changed |= balance_vertices(1, right_vertices_);
    }
    for (std::int32_t c = 0; c < count; ++c) {
      for (const std::int32_t pair : members_[c]) put(pair, first + c);
    }
  }

  std::int32_t* loads(int side, std::int32_t vertex) {
    return load_[side].data() + static_cast<std::size_t>(vertex) * count_;
  }

  /// Adds an edge to the colour with the least load at its two vertices.
  void place(std::int32_t pair) {
    const std::int32_t* left = loads(0, pairs_[pair].first);
    const std::int32_t* right = loads(1, pairs_[pair].second);
    // Load above the floor of a balanced vertex: the larger of both ends, then their sum.
    const std::int32_t enough_left = floor_[0][pairs_[pair].first];
    const std::int32_t enough_right = floor_[1][pairs_[pair].second];
    std::int32_t best = 0;
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    poll_point(1 + count_ / 32);
    for (std::int32_t c = 0; c < count_; ++c) {
      const std::int32_t l = left[c] - enough_left, r = right[c] - enough_right;
      const std::int32_t cost = 8 * std::max(l, r) + std::min(std::max(l + r, -3), 3);
      best = cost < least ? c : best;
      least = std::min(cost, least);
    }
    join(pair, best);
  }

  void join(std::int32_t pair, std::int32_t colour) {
    ++loads(0, pairs_[pair].first)[colour];
    ++loads(1, pairs_[pair].second)[colour];
    members_[colour].push_back(pair);
  }

  /// Balances the colours at every vertex of a side; whether any edge changed its colour.
  bool balance_vertices(int side, std::int32_t vertices) {
    bool changed = false;
    for (std::int32_t v = 0; v < vertices; ++v) {
      for (;;) {
        poll_point(1 + count_ / 32);
        const std::int32_t* row = loads(side, v);
        const auto [low, high] = std::minmax_element(row, row + count_);
        if (*high - *low <= 1) break;
        balance_colours(static_cast<std::int32_t>(low - row),
                        static_cast<std::int32_t>(high - row));
        changed = true;
      }
    }
    return changed;
  }

  /// Balances two colours at every vertex by an Euler split of their union.
  void balance_colours(std::int32_t a, std::int32_t b) {
    both_ = members_[a];
    both_.insert(both_.end(), members_[b].begin(), members_[b].end());
    euler_.clear();
    for (const std::int32_t pair : both_) euler_.add(pairs_[pair].first, pairs_[pair].second);
    const auto add = [&](std::int32_t colour, std::int32_t amount) {
      for (const std::int32_t pair : members_[colour]) {
        loads(0, pairs_[pair].first)[colour] += amount;
        loads(1, pairs_[pair].second)[colour] += amount;
      }
    };
    add(a, -1);
    add(b, -1);
    const std::vector<signed char>& half = euler_.split();
    members_[a].clear();
    members_[b].clear();
    for (std::size_t e = 0; e < both_.size(); ++e) {
      members_[half[e] == 0 ? a : b].push_back(both_[e]);
    }
    add(a, 1);
    add(b, 1);
  }

  void put(std::int32_t pair, std::int32_t colour) { colours_[slot_[pair]++] = colour; }

  std::int32_t left_vertices_, right_vertices_;
  const Pairs& pairs_;
  Numbers& slot_;
  Numbers& colours_;
  EulerSplit euler_;
  std::vector<Bundle> arena_;
  std::array<std::size_t, 2> halves_{};
  std::int32_t count_ = 0;
  std::array<Numbers, 2> load_;
  std::array<Numbers, 2> floor_;  ///< by vertex: degree over colours, rounded down
  std::vector<Numbers> members_;  ///< by colour
  Numbers surplus_;               ///< edges of colours above `count_`
  Numbers both_;                  ///< edges of two colours
};

/// Flows with several paths, and the leaves at their ends.
struct Edges {
  Numbers left, right, flow;

  explicit Edges(const RoutingInstance& instance) {
    PollPoints points;
    for (Numbers* column : {&left, &right, &flow}) reserve_large(*column, instance.size());
    for (std::size_t f = 0; f < instance.size(); ++f) {
      points();
      if (instance.paths_of(f) == 0) continue;
      left.push_back(instance.graph.leaf_of(instance.flows.source[f]));
      right.push_back(instance.graph.leaf_of(instance.flows.destination[f]));
      flow.push_back(static_cast<std::int32_t>(f));
    }
  }
};

/// A path between pods over spine i and core j has position i half + j, a path within a pod over
/// spine i has position i: the order of cables.
std::optional<Choice> fat_tree_colouring(const RoutingInstance& instance) {
  const std::int32_t half = instance.graph.fat_tree_half();
  const std::int32_t leaves = 2 * half * half, pods = 2 * half;
  const Edges edges(instance);
  for (std::size_t i = 0; i < edges.flow.size(); ++i) {
    const bool one_pod = edges.left[i] / half == edges.right[i] / half;
    if (instance.paths_of(edges.flow[i]) != (one_pod ? half : half * half)) return std::nullopt;
  }
  Numbers spine(edges.flow.size());
  balanced_colouring(leaves, leaves, edges.left, edges.right, half, spine);
  Choice choice(instance.size(), PathSets::kNone);
  Numbers from, to, flow, core;
  for (std::int32_t plane = 0; plane < half; ++plane) {
    from.clear();
    to.clear();
    flow.clear();
    for (std::size_t i = 0; i < edges.flow.size(); ++i) {
      if (spine[i] != plane) continue;
      const std::int32_t pod = edges.left[i] / half, other = edges.right[i] / half;
      choice[edges.flow[i]] = plane;
      if (pod == other) continue;
      from.push_back(pod);
      to.push_back(other);
      flow.push_back(edges.flow[i]);
    }
    core.resize(flow.size());
    balanced_colouring(pods, pods, from, to, half, core);
    for (std::size_t i = 0; i < flow.size(); ++i) choice[flow[i]] = plane * half + core[i];
  }
  return choice;
}

/// Spines that every flow with several paths may use: all flows the same ones. Nothing on fabrics
/// without two tiers or where leaves reach different spines; 1 without such flows.
std::optional<std::int32_t> shared_spines(const RoutingInstance& instance) {
  const TwoTier& tiers = instance.graph.two_tier();
  const PathSets& paths = instance.paths;
  if (tiers.leaves == 0) return std::nullopt;
  const auto planes_of = [&](std::int32_t set) {
    return std::span(paths.via).subspan(paths.path_first[set], paths.paths(set));
  };
  std::span<const std::int32_t> shared;
  for (std::int32_t set = 0; set + 1 < static_cast<std::int32_t>(paths.path_first.size()); ++set) {
    const auto planes = planes_of(set);
    if (planes.empty()) continue;
    if (shared.empty()) shared = planes;
    const bool all =
        planes.size() == shared.size() && planes.size() == static_cast<std::size_t>(tiers.planes);
    if (!all && !std::ranges::equal(planes, shared)) return std::nullopt;
  }
  return std::max(static_cast<std::int32_t>(shared.size()), 1);
}

/// Colours the flows and sends colour c over path c modulo `spines`.
Choice coloured(const RoutingInstance& instance, std::int32_t colours, std::int32_t spines) {
  const Edges edges(instance);
  Choice choice;
  reserve_large(choice, instance.size());
  choice.assign(instance.size(), PathSets::kNone);
  auto colour = large_vector<std::int32_t>(edges.flow.size());
  const std::int32_t leaves = instance.graph.two_tier().leaves;
  balanced_colouring(leaves, leaves, edges.left, edges.right, colours, colour);
  for (std::size_t e = 0; e < edges.flow.size(); ++e) choice[edges.flow[e]] = colour[e] % spines;
  return choice;
}

}  // namespace

void balanced_colouring(std::int32_t left_vertices, std::int32_t right_vertices,
                        std::span<const std::int32_t> left, std::span<const std::int32_t> right,
                        std::int32_t colours, std::span<std::int32_t> colour) {
  PairNumbers numbers(std::max(left_vertices, right_vertices));
  Numbers edges;
  PollPoints points;
  for (std::size_t e = 0; e < left.size(); ++e) {
    points();
    const std::int32_t pair = numbers.number(left[e], right[e]);
    if (pair == static_cast<std::int32_t>(edges.size())) edges.push_back(0);
    ++edges[pair];
  }
  // Edges of a pair beyond a multiple of the colours have their own list of colours.
  std::vector<Bundle> bundles;
  Numbers slot(edges.size() + 1, 0);
  for (std::size_t p = 0; p < edges.size(); ++p) {
    const std::int32_t rest = edges[p] % colours;
    if (rest > 0) bundles.push_back({static_cast<std::int32_t>(p), rest});
    slot[p + 1] = slot[p] + rest;
  }
  Numbers rest_colours(slot.back());
  Numbers filled = slot;
  Colourer(left_vertices, right_vertices, numbers.pairs(), filled, rest_colours)
      .colour(bundles, colours);
  // The other edges of a pair take all colours in turn, then the rest takes those of the list.
  Numbers round(edges.size(), 0);
  for (std::int32_t& edge : edges) edge -= edge % colours;
  for (std::size_t e = 0; e < left.size(); ++e) {
    points();
    const std::int32_t pair = numbers.number(left[e], right[e]);
    if (edges[pair] > 0) {
      --edges[pair];
      colour[e] = round[pair];
      round[pair] = round[pair] + 1 == colours ? 0 : round[pair] + 1;
    } else {
      colour[e] = rest_colours[slot[pair]++];
    }
  }
}

std::optional<Choice> colouring(const RoutingInstance& instance) {
  if (instance.graph.fat_tree_half() > 0) return fat_tree_colouring(instance);
  const std::optional<std::int32_t> spines = shared_spines(instance);
  if (!spines) return std::nullopt;
  return coloured(instance, *spines, *spines);
}

std::optional<Choice> modulo_colouring(const RoutingInstance& instance) {
  const std::optional<std::int32_t> spines = shared_spines(instance);
  if (!spines) return std::nullopt;
  const Edges edges(instance);
  Numbers degree(2 * static_cast<std::size_t>(instance.graph.nodes()), 0);
  for (std::size_t e = 0; e < edges.flow.size(); ++e) {
    ++degree[edges.left[e]];
    ++degree[instance.graph.nodes() + edges.right[e]];
  }
  return coloured(instance, std::max(std::ranges::max(degree), 1), *spines);
}

}  // namespace scalemodel
