#include "scalemodel/routing/exact/spine_assignment.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {
namespace {

/// By set: one plus the number of links that it fills, so that the solver decides large sets first.
std::vector<double> decision_weights(std::span<const std::vector<SideLoad>> sets,
                                     std::span<const double> capacity, std::int32_t planes) {
  std::vector<double> weights;
  for (const auto& set : sets) {
    double weight = 1;
    for (const auto& [side, load] : set) {
      const auto of_side = capacity.subspan(static_cast<std::size_t>(side) * planes, planes);
      if (load > 0) weight += load / std::max(load, std::ranges::max(of_side));
    }
    weights.push_back(weight);
  }
  return weights;
}

}  // namespace

SpineAssignment::SpineAssignment(std::span<const std::vector<SideLoad>> sets,
                                 std::span<const double> capacity, std::int32_t planes,
                                 std::span<const ExactPacking> packings)
    : CdclSolver(decision_weights(sets, capacity, planes),
                 static_cast<std::int32_t>(packings.size()), planes),
      sides_(capacity.size() / static_cast<std::size_t>(planes)),
      packings_(packings),
      conflicts_(sets.size()),
      packings_with_(sets.size()),
      packings_without_(sets.size()) {
  for (std::size_t side = 0; side < sides_.size(); ++side) {
    const auto of_side = capacity.subspan(side * planes, planes);
    sides_[side].capacity.assign(of_side.begin(), of_side.end());
    sides_[side].open_capacity = std::ranges::max(of_side);
  }
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    for (const auto& [side, load] : sets[set]) sides_[side].members.push_back({set, load});
  }
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(packings.size()); ++p) {
    sides_[packings[p].side].packings.push_back(p);
  }
  find_conflicts(sets);
  close_planes(sets, capacity);
  for (const LinkLoads& side : sides_) {
    if (side.packings.empty()) {
      require_all_different(side);
    } else {
      require_packings(side);
    }
  }
  if (interchangeable_) break_symmetry();
}

/// Lists conflicting pairs of sets, the cliques of large sets, and the packings of every set.
void SpineAssignment::find_conflicts(std::span<const std::vector<SideLoad>> sets) {
  for (LinkLoads& side : sides_) {
    std::ranges::stable_sort(side.members, std::ranges::greater{}, &Member::load);
    const auto conflict = [&](const Member& a, const Member& b) {
      return a.load + b.load > side.open_capacity * (1 + kRounding);
    };
    const auto last = std::ranges::adjacent_find(
        side.members, [&](const Member& a, const Member& b) { return !conflict(a, b); });
    side.clique_size = static_cast<std::size_t>(last - side.members.begin()) +
                       (last == side.members.end() ? 0 : 1);
  }
  std::vector<std::int32_t> listed_for(sets.size(), -1);
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    listed_for[set] = set;
    for (const auto& [number, load] : sets[set]) {
      const LinkLoads& side = sides_[number];
      for (const Member& other : side.members) {
        if (load + other.load <= side.open_capacity * (1 + kRounding)) break;
        if (listed_for[other.set] == set) continue;
        listed_for[other.set] = set;
        conflicts_[set].push_back(other.set);
      }
      for (const std::int32_t p : side.packings) {
        const bool contains = std::ranges::find(packings_[p].sets, set) != packings_[p].sets.end();
        (contains ? packings_with_ : packings_without_)[set].push_back(p);
      }
    }
  }
}

/// Excludes planes whose links cannot carry a set; every set takes one of the others.
void SpineAssignment::close_planes(std::span<const std::vector<SideLoad>> sets,
                                   std::span<const double> capacity) {
  std::vector<Literal> clause;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    clause.clear();
    for (std::int32_t plane = 0; plane < values(); ++plane) {
      const Literal assigned = literal(set, plane);
      const bool open = std::ranges::all_of(sets[set], [&](const SideLoad& side) {
        return side.load <= capacity[side.side * values() + plane] * (1 + kRounding);
      });
      interchangeable_ = interchangeable_ && open;
      if (open) {
        clause.push_back(assigned);
      } else {
        add_clause(std::array{negation(assigned)});
      }
    }
    add_clause(clause);
  }
}

/// An all-different constraint over as many sets as planes leaves no plane without a set.
void SpineAssignment::require_all_different(const LinkLoads& side) {
  if (side.clique_size < side.members.size()) return;
  std::vector<std::vector<Literal>> clauses;
  for (std::int32_t plane = 0; plane < values(); ++plane) {
    std::vector<Literal> any;
    for (const Member& member : side.members) {
      const Literal assigned = literal(member.set, plane);
      if (!is_false(assigned)) any.push_back(assigned);
    }
    if (!any.empty()) clauses.push_back(std::move(any));
  }
  if (clauses.size() < side.members.size()) mark_infeasible();
  if (clauses.size() != side.members.size()) return;
  for (const auto& clause : clauses) add_clause(clause);
}

/// One packing, or a set that fills a link alone, fills every link of the side; any other set takes
/// a plane only with one of its packings.
void SpineAssignment::require_packings(const LinkLoads& side) {
  const auto first_packing = static_cast<std::int32_t>(conflicts_.size());
  for (std::int32_t plane = 0; plane < values(); ++plane) {
    if (side.capacity[plane] <= 0) continue;
    std::vector<Literal> any;
    any.reserve(side.packings.size() + side.members.size());
    for (const std::int32_t p : side.packings) any.push_back(literal(first_packing + p, plane));
    for (const Member& member : side.members) {
      const Literal assigned = literal(member.set, plane);
      if (member.load >= side.open_capacity * (1 - kRounding)) {
        any.push_back(assigned);
        continue;
      }
      std::vector<Literal> with_packing{negation(assigned)};
      for (const std::int32_t p : packings_with_[member.set]) {
        if (&sides_[packings_[p].side] != &side) continue;
        with_packing.push_back(literal(first_packing + p, plane));
      }
      add_clause(with_packing);
    }
    add_clause(any);
  }
}

/// Interchangeable planes: the largest clique takes the first ones. Of cliques of one size, the one
/// with the most conflicts.
void SpineAssignment::break_symmetry() {
  const auto influence = [&](const LinkLoads& side) {
    std::size_t conflicts = 0;
    for (std::size_t i = 0; i < side.clique_size; ++i) {
      conflicts += conflicts_[side.members[i].set].size();
    }
    return std::pair(side.clique_size, conflicts);
  };
  const LinkLoads& side = *std::ranges::max_element(sides_, {}, influence);
  if (side.clique_size > static_cast<std::size_t>(values())) {
    mark_infeasible();
    return;
  }
  for (std::size_t i = 0; i < side.clique_size; ++i) {
    add_clause(std::array{literal(side.members[i].set, static_cast<std::int32_t>(i))});
  }
}

/// A set excludes conflicting sets and the packings without it from its plane; a packing assigns
/// its sets to its plane and excludes the others of its side.
void SpineAssignment::append_implications(Literal assigned, std::vector<Literal>& into) const {
  const std::int32_t plane = value_of(assigned), variable = variable_of(assigned);
  const auto first_packing = static_cast<std::int32_t>(conflicts_.size());
  const bool positive = is_positive(assigned);
  if (variable < first_packing) {
    for (const std::int32_t p : (positive ? packings_without_ : packings_with_)[variable]) {
      into.push_back(negation(literal(first_packing + p, plane)));
    }
    if (!positive) return;
    for (const std::int32_t other : conflicts_[variable]) {
      into.push_back(negation(literal(other, plane)));
    }
  } else if (positive) {
    const ExactPacking& packing = packings_[variable - first_packing];
    for (const std::int32_t set : packing.sets) into.push_back(literal(set, plane));
    for (const Member& member : sides_[packing.side].members) {
      const bool contained = std::ranges::find(packing.sets, member.set) != packing.sets.end();
      if (!contained) into.push_back(negation(literal(member.set, plane)));
    }
  }
}

}  // namespace scalemodel
