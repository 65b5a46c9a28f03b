#include "scalemodel/routing/exact/spine_assignment.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {
namespace {

/// By set: rows that it fills, one more, so that large sets come first.
std::vector<double> weights(std::span<const std::vector<RowLoad>> sets,
                            std::span<const double> room, std::int32_t planes) {
  std::vector<double> result;
  for (const auto& set : sets) {
    double weight = 1;
    for (const auto& [row, load] : set) {
      const auto of_row = room.subspan(static_cast<std::size_t>(row) * planes, planes);
      if (load > 0) weight += load / std::max(load, std::ranges::max(of_row));
    }
    result.push_back(weight);
  }
  return result;
}

}  // namespace

SetColouring::SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
                           std::int32_t planes, std::span<const Filling> fillings)
    : ClauseSearch(weights(sets, room, planes), static_cast<std::int32_t>(fillings.size()), planes),
      rows_(room.size() / static_cast<std::size_t>(planes)),
      fillings_(fillings),
      edges_(sets.size()),
      with_(sets.size()),
      against_(sets.size()) {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto of_row = room.subspan(row * planes, planes);
    rows_[row].room.assign(of_row.begin(), of_row.end());
    rows_[row].most = std::ranges::max(of_row);
  }
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    for (const auto& [row, load] : sets[set]) rows_[row].members.push_back({set, load});
  }
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(fillings.size()); ++f) {
    rows_[fillings[f].row].fillings.push_back(f);
  }
  join(sets);
  open_planes(sets, room);
  for (const Row& row : rows_) {
    if (row.fillings.empty()) {
      use_every_plane(row);
    } else {
      fill_every_plane(row);
    }
  }
  if (alike_) spread();
}

/// What gets in whose way.
void SetColouring::join(std::span<const std::vector<RowLoad>> sets) {
  for (Row& row : rows_) {
    std::ranges::stable_sort(row.members, std::ranges::greater{}, &Member::load);
    const auto too_much = [&](const Member& a, const Member& b) {
      return a.load + b.load > row.most * (1 + kRounding);
    };
    const auto fits = std::ranges::adjacent_find(
        row.members, [&](const Member& a, const Member& b) { return !too_much(a, b); });
    row.exclusive =
        static_cast<std::size_t>(fits - row.members.begin()) + (fits == row.members.end() ? 0 : 1);
  }
  std::vector<std::int32_t> joined(sets.size(), -1);
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    joined[set] = set;
    for (const auto& [number, load] : sets[set]) {
      const Row& row = rows_[number];
      for (const Member& other : row.members) {
        if (load + other.load <= row.most * (1 + kRounding)) break;
        if (joined[other.set] == set) continue;
        joined[other.set] = set;
        edges_[set].push_back(other.set);
      }
      for (const std::int32_t f : row.fillings) {
        const bool needs_it = std::ranges::find(fillings_[f].sets, set) != fillings_[f].sets.end();
        (needs_it ? with_ : against_)[set].push_back(f);
      }
    }
  }
}

void SetColouring::open_planes(std::span<const std::vector<RowLoad>> sets,
                               std::span<const double> room) {
  std::vector<Literal> clause;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    clause.clear();
    for (std::int32_t plane = 0; plane < values(); ++plane) {
      const Literal there = 2 * statement(set, plane);
      const bool open = std::ranges::all_of(sets[set], [&](const RowLoad& row) {
        return row.load <= room[row.row * values() + plane] * (1 + kRounding);
      });
      alike_ = alike_ && open;
      if (open) {
        clause.push_back(there);
      } else {
        require(std::array{there + 1});
      }
    }
    require(clause);
  }
}

/// Where sets that are all in each other's way are as many as planes.
void SetColouring::use_every_plane(const Row& row) {
  if (row.exclusive < row.members.size()) return;
  std::vector<std::vector<Literal>> users;
  for (std::int32_t plane = 0; plane < values(); ++plane) {
    std::vector<Literal> of_plane;
    for (const Member& member : row.members) {
      const std::int32_t there = statement(member.set, plane);
      if (!excluded(there)) of_plane.push_back(2 * there);
    }
    if (!of_plane.empty()) users.push_back(std::move(of_plane));
  }
  if (users.size() < row.members.size()) give_up();
  if (users.size() != row.members.size()) return;
  for (const auto& of_plane : users) require(of_plane);
}

/// On every plane one filling, or a set that does it alone; and a set only with one that needs it.
void SetColouring::fill_every_plane(const Row& row) {
  const auto first_filling = static_cast<std::int32_t>(edges_.size());
  for (std::int32_t plane = 0; plane < values(); ++plane) {
    if (row.room[plane] <= 0) continue;
    std::vector<Literal> any;
    any.reserve(row.fillings.size() + row.members.size());
    for (const std::int32_t f : row.fillings) {
      any.push_back(2 * statement(first_filling + f, plane));
    }
    for (const Member& member : row.members) {
      const std::int32_t there = statement(member.set, plane);
      if (member.load >= row.most * (1 - kRounding)) {
        any.push_back(2 * there);
        continue;
      }
      std::vector<Literal> needed{2 * there + 1};
      for (const std::int32_t f : with_[member.set]) {
        if (&rows_[fillings_[f].row] != &row) continue;
        needed.push_back(2 * statement(first_filling + f, plane));
      }
      require(needed);
    }
    require(any);
  }
}

/// Where all planes are alike: the sets of a row that share none take the first ones. Of the rows
/// with most of them, where these get most in the way of others.
void SetColouring::spread() {
  const auto reach = [&](const Row& row) {
    std::size_t neighbours = 0;
    for (std::size_t i = 0; i < row.exclusive; ++i) neighbours += edges_[row.members[i].set].size();
    return std::pair(row.exclusive, neighbours);
  };
  const Row& row = *std::ranges::max_element(rows_, {}, reach);
  if (row.exclusive > static_cast<std::size_t>(values())) {
    give_up();
    return;
  }
  for (std::size_t i = 0; i < row.exclusive; ++i) {
    require(std::array{2 * statement(row.members[i].set, static_cast<std::int32_t>(i))});
  }
}

/// A plane is closed to neighbours of its sets; a filling needs its sets and no others of its row.
void SetColouring::follow_from(Literal literal, std::vector<Literal>& into) const {
  const std::int32_t plane = literal / 2 % values(), variable = literal / 2 / values();
  const auto first_filling = static_cast<std::int32_t>(edges_.size());
  const bool holds = literal % 2 == 0;
  if (variable < first_filling) {
    for (const std::int32_t f : (holds ? against_ : with_)[variable]) {
      into.push_back(2 * statement(first_filling + f, plane) + 1);
    }
    if (!holds) return;
    for (const std::int32_t neighbour : edges_[variable]) {
      into.push_back(2 * statement(neighbour, plane) + 1);
    }
  } else if (holds) {
    const Filling& filling = fillings_[variable - first_filling];
    for (const std::int32_t set : filling.sets) into.push_back(2 * statement(set, plane));
    for (const Member& member : rows_[filling.row].members) {
      const bool needed = std::ranges::find(filling.sets, member.set) != filling.sets.end();
      if (!needed) into.push_back(2 * statement(member.set, plane) + 1);
    }
  }
}

}  // namespace scalemodel
