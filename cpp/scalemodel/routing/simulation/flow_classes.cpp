#include "scalemodel/routing/simulation/flow_classes.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

using Colours = std::vector<std::uint64_t>;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return SplitMix(a ^ SplitMix(b).next()).next();
}

std::size_t count_distinct(Colours colours) {
  PollPoints points;
  std::ranges::sort(colours, polled(std::less{}, points));
  return static_cast<std::size_t>(std::unique(colours.begin(), colours.end()) - colours.begin());
}

/// Numbers colours in the order of their first members.
struct Numbering {
  std::vector<std::int32_t> of, first, size;

  explicit Numbering(const Colours& colours) {
    std::unordered_map<std::uint64_t, std::int32_t> number;
    number.reserve(colours.size());
    for (std::size_t i = 0; i < colours.size(); ++i) {
      const auto next = static_cast<std::int32_t>(first.size());
      const std::int32_t own = number.try_emplace(colours[i], next).first->second;
      if (own == next) {
        first.push_back(static_cast<std::int32_t>(i));
        size.push_back(0);
      }
      of.push_back(own);
      ++size[own];
    }
  }
};

class Refinement {
 public:
  Refinement(const Incidence& uses, std::span<const double> capacity, const FlowStates& states)
      : uses_(uses), capacity_(capacity), states_(states), part_(states.part_state) {
    colour_links();
    colour_groups();
    for (std::size_t classes = 0, now = count_distinct(part_); now > classes;) {
      classes = now;
      colour_parts();
      colour_links();
      colour_groups();
      now = count_distinct(part_);
    }
  }

  const Colours& parts() const { return part_; }
  const Colours& links() const { return link_; }
  const Colours& groups() const { return group_; }

 private:
  std::uint64_t weight(std::int32_t place) const {
    return uses_.weight.empty() ? 0 : std::bit_cast<std::uint64_t>(uses_.weight[place]);
  }
  // Sums of mixed colours do not depend on the order of members.
  void colour_links() {
    link_.assign(capacity_.size(), 0);
    for (std::size_t p = 0; p < part_.size(); ++p) {
      poll_point();
      for (std::int32_t k = uses_.first[p]; k < uses_.first[p + 1]; ++k) {
        link_[uses_.link[k]] += mix(part_[p], weight(k));
      }
    }
    for (std::size_t e = 0; e < link_.size(); ++e) {
      link_[e] = mix(link_[e], std::bit_cast<std::uint64_t>(capacity_[e]));
    }
  }
  void colour_groups() {
    group_.assign(states_.group_state.size(), 0);
    for (std::size_t p = 0; p < part_.size(); ++p) group_[states_.group[p]] += mix(part_[p], 1);
    for (std::size_t g = 0; g < group_.size(); ++g) {
      group_[g] = mix(group_[g], states_.group_state[g]);
    }
  }
  void colour_parts() {
    for (std::size_t p = 0; p < part_.size(); ++p) {
      poll_point();
      std::uint64_t links = 0;
      for (std::int32_t k = uses_.first[p]; k < uses_.first[p + 1]; ++k) {
        links += mix(link_[uses_.link[k]], weight(k));
      }
      part_[p] = mix(mix(part_[p], links), group_[states_.group[p]]);
    }
  }

  const Incidence& uses_;
  std::span<const double> capacity_;
  const FlowStates& states_;
  Colours part_, link_, group_;
};

/// One entity per class of parts on one link per class of links.
void merge_uses(const Incidence& uses, std::span<const double> capacity, const Numbering& links,
                FlowClasses& classes) {
  constexpr std::int32_t kUnused = -1;
  std::vector<std::vector<std::pair<std::int32_t, double>>> on(classes.parts.size());
  std::vector<std::int32_t> number(links.first.size(), kUnused);
  for (std::size_t p = 0; p < classes.of_part.size(); ++p) {
    const std::int32_t own = classes.of_part[p];
    poll_point();
    for (std::int32_t k = uses.first[p]; k < uses.first[p + 1]; ++k) {
      const std::int32_t of_link = links.of[uses.link[k]];
      if (links.first[of_link] != uses.link[k]) continue;
      if (number[of_link] == kUnused) {
        number[of_link] = static_cast<std::int32_t>(classes.capacity.size());
        classes.capacity.push_back(capacity[uses.link[k]]);
      }
      const double weight = uses.weight.empty() ? 1.0 : uses.weight[k];
      const auto found =
          std::ranges::find(on[own], number[of_link], &std::pair<std::int32_t, double>::first);
      if (found == on[own].end()) {
        on[own].emplace_back(number[of_link], weight);
      } else {
        found->second += weight;
      }
    }
  }
  bool is_plain = true;
  for (const auto& of_class : on) {
    for (const auto& [link, weight] : of_class) {
      classes.uses.link.push_back(link);
      classes.uses.weight.push_back(weight);
      is_plain &= weight == 1.0;
    }
    classes.uses.first.push_back(static_cast<std::int32_t>(classes.uses.link.size()));
  }
  if (is_plain) classes.uses.weight.clear();
}

}  // namespace

FlowClasses flow_classes(const Incidence& uses, std::span<const double> capacity,
                         const FlowStates& states) {
  const Refinement refinement(uses, capacity, states);
  Numbering parts(refinement.parts()), groups(refinement.groups());
  FlowClasses classes;
  classes.of_part = std::move(parts.of);
  classes.parts = std::move(parts.first);
  classes.size = std::move(parts.size);
  classes.of_group = std::move(groups.of);
  classes.groups = std::move(groups.first);
  classes.groups_size = std::move(groups.size);
  merge_uses(uses, capacity, Numbering(refinement.links()), classes);
  return classes;
}

}  // namespace scalemodel
