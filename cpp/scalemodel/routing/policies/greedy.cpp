#include "scalemodel/routing/policies/greedy.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

/// Flows with a common node at one of their ends.
struct Class {
  std::string name;
  std::int32_t begin = 0;  ///< in `members`
  std::int32_t end = 0;
};

class Classes {
 public:
  explicit Classes(const RoutingInstance& instance) {
    const std::size_t flows = instance.size();
    reserve_large(ends_, flows);
    for (std::size_t f = 0; f < flows; ++f) {
      ends_.push_back({instance.graph.end_switch(instance.flows.source[f]),
                       instance.graph.end_switch(instance.flows.destination[f])});
    }
    resize_large(members_, 2 * flows);
    add(&Ends::from, "a_", instance.graph.nodes(), 0);
    add(&Ends::to, "b_", instance.graph.nodes(), static_cast<std::int32_t>(flows));
    std::ranges::sort(classes_, [](const Class& a, const Class& b) {
      const std::int32_t more = (a.end - a.begin) - (b.end - b.begin);
      return more != 0 ? more > 0 : a.name < b.name;
    });
  }

  /// Calls `visit(flow)` once per flow, in the order of the classes, and `fetch(flow)` before.
  template <class Fetch, class Visit>
  void for_each(const Fetch& fetch, const Visit& visit) const {
    auto done = large_vector<char>(ends_.size());
    for (const Class& c : classes_) {
      for (std::int32_t i = c.begin; i < c.end; ++i) {
        if (i + 2 * kFlowsAhead < c.end) {
          __builtin_prefetch(&done[members_[i + 2 * kFlowsAhead]]);
          // Half of the flows were met in the class of their other end.
          const auto ahead = static_cast<std::size_t>(members_[i + kFlowsAhead]);
          if (done[ahead] == 0) {
            __builtin_prefetch(&ends_[ahead]);
            fetch(ahead);
          }
        }
        if (done[members_[i]] != 0) continue;
        poll_point();
        done[members_[i]] = 1;
        visit(static_cast<std::size_t>(members_[i]));
      }
    }
  }
  std::int32_t from(std::size_t flow) const { return ends_[flow].from; }
  std::int32_t to(std::size_t flow) const { return ends_[flow].to; }

 private:
  /// Switches of a flow's NICs.
  struct Ends {
    std::int32_t from, to;
  };

  void add(std::int32_t Ends::* end, const char* prefix, std::int32_t nodes, std::int32_t offset) {
    Numbers first(nodes + 1, 0);
    for (const Ends& ends : ends_) ++first[ends.*end + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    for (std::int32_t node = 0; node < nodes; ++node) {
      if (first[node] == first[node + 1]) continue;
      classes_.push_back(
          {prefix + std::to_string(node), offset + first[node], offset + first[node + 1]});
    }
    for (std::size_t f = 0; f < ends_.size(); ++f) {
      members_[offset + first[ends_[f].*end]++] = static_cast<std::int32_t>(f);
    }
  }

  std::vector<Ends> ends_;
  Numbers members_;
  std::vector<Class> classes_;
};

/// Fetches what a flow's choice reads and writes.
auto fetch_of(const RoutingInstance& instance, Choice& choice) {
  return [&](std::size_t flow) {
    __builtin_prefetch(&instance.paths.set[flow]);
    __builtin_prefetch(&choice[flow], 1);
  };
}

/// Greedy routing on two tiers. Loads of a leaf are contiguous by plane, so the search over planes
/// is a loop over two short arrays. A link that is down has the maximum load from the start.
template <class Count>
void greedy_two_tier(const RoutingInstance& instance, const Classes& classes, Choice& choice) {
  const TwoTier& tiers = instance.graph.two_tier();
  constexpr Count kFull = std::numeric_limits<Count>::max();
  std::vector<Count> up(tiers.up.size(), 0), down(tiers.down.size(), 0);
  for (std::size_t i = 0; i < up.size(); ++i) {
    if (!instance.graph.alive(tiers.up[i])) up[i] = kFull;
    if (!instance.graph.alive(tiers.down[i])) down[i] = kFull;
  }
  const std::int32_t planes = tiers.planes;
  std::vector<Count> higher(planes);
  classes.for_each(fetch_of(instance, choice), [&](std::size_t f) {
    const std::int32_t usable = instance.paths_of(f);
    if (usable == 0) return;
    Count* u = up.data() + tiers.at(classes.from(f), 0);
    Count* d = down.data() + tiers.at(classes.to(f), 0);
    Count least = kFull;
    for (std::int32_t p = 0; p < planes; ++p) {
      higher[p] = std::max(u[p], d[p]);
      least = std::min(least, higher[p]);
    }
    const auto plane = static_cast<std::int32_t>(std::ranges::find(higher, least) - higher.begin());
    ++u[plane];
    ++d[plane];
    choice[f] = plane;
    if (usable < planes) {
      const auto via =
          instance.paths.via.begin() + instance.paths.path_first[instance.paths.set[f]];
      choice[f] = static_cast<std::int32_t>(std::lower_bound(via, via + usable, plane) - via);
    }
  });
}

/// The path whose largest `load(link)` over its links is the least; the first one of a tie.
template <class Load>
std::int32_t least_loaded_path(const RoutingInstance& instance, std::size_t flow,
                               const Load& load) {
  std::int32_t best = 0;
  double least = kInfinity;
  for (std::int32_t p = 0; p < instance.paths_of(flow); ++p) {
    double largest = 0;
    for (const std::int32_t link : instance.links(flow, p)) {
      largest = std::max(largest, load(link));
    }
    if (largest < least) {
      least = largest;
      best = p;
    }
  }
  return best;
}

}  // namespace

Choice greedy(const RoutingInstance& instance) {
  Choice choice;
  reserve_large(choice, instance.size());
  choice.assign(instance.size(), PathSets::kNone);
  const Classes classes(instance);
  if (instance.graph.two_tier().leaves > 0) {
    // A vector register holds eight 16-bit loads; no load exceeds the number of flows.
    if (instance.size() < static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max())) {
      greedy_two_tier<std::int16_t>(instance, classes, choice);
    } else {
      greedy_two_tier<std::int32_t>(instance, classes, choice);
    }
    return choice;
  }
  Numbers load(instance.graph.links(), 0);
  classes.for_each(fetch_of(instance, choice), [&](std::size_t f) {
    if (instance.paths_of(f) == 0) return;
    choice[f] = least_loaded_path(
        instance, f, [&](std::int32_t link) { return static_cast<double>(load[link]); });
    for (const std::int32_t link : instance.links(f, choice[f])) ++load[link];
  });
  return choice;
}

Choice longest_first(const RoutingInstance& instance) {
  Numbers order(instance.size());
  std::iota(order.begin(), order.end(), 0);
  PollPoints points;
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    return instance.flows.bytes[a] > instance.flows.bytes[b];
  };
  std::ranges::stable_sort(order, polled(larger, points));
  std::vector<double> bytes(instance.graph.links(), 0.0);
  const auto capacity = instance.graph.capacities();
  Choice choice(instance.size(), PathSets::kNone);
  for (const std::int32_t f : order) {
    poll_point();
    if (instance.paths_of(f) == 0) continue;
    const double size = instance.flows.bytes[f];
    choice[f] = least_loaded_path(
        instance, f, [&](std::int32_t link) { return (bytes[link] + size) / capacity[link]; });
    for (const std::int32_t link : instance.links(f, choice[f])) bytes[link] += size;
  }
  return choice;
}

}  // namespace scalemodel
