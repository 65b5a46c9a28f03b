// What exclusions leave of the members of option groups. Private to the search.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// The lists of members of a list of options. Exclusions speak of a group, of its members or of
/// both: groups that the same ones speak of have the same members left.
class MemberLists {
 public:
  /// `every`: all that is listed of what `Freedom` speaks of. `exclusions`: those that speak of the
  /// point, where a shard degree of `node_shard` and 0 mean the same.
  MemberLists(std::vector<OptionMembers>& lists, std::vector<Strategy> every,
              std::vector<Exclusion> exclusions, int node_shard);

  /// Number of the list of the members that a group keeps; their list may be empty.
  std::uint32_t of(const Strategy& group);

 private:
  Strategy meant(Strategy member) const;
  std::uint32_t kept(std::uint64_t applied) const;
  std::uint32_t number_of(OptionMembers members) const;

  std::vector<OptionMembers>& lists_;
  std::vector<Strategy> every_;
  std::vector<Exclusion> exclusions_;
  int node_shard_;
  std::map<std::uint64_t, std::uint32_t> known_;  ///< by the exclusions that speak of a group
};

}  // namespace scalemodel
