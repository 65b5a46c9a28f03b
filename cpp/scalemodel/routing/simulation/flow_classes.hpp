// Parts of flows that behave alike in a simulation, merged into classes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Parts of flows and groups of them before they are merged. Equal states are necessary for equal
/// behaviour: whatever a simulation knows about a part or group besides its links.
struct FlowStates {
  std::vector<std::int32_t> group;        ///< by part
  std::vector<std::uint64_t> part_state;  ///< by part
  std::vector<std::uint64_t> group_state;
};

/// Classes of parts and of groups whose members have equal rates at all times.
struct FlowClasses {
  std::vector<std::int32_t> of_part, of_group;  ///< class of every part and of every group
  std::vector<std::int32_t> parts, groups;      ///< by class: its first member
  std::vector<std::int32_t> size, groups_size;  ///< by class: members
  Incidence uses;                ///< by class of parts: classes of links, parts on one link
  std::vector<double> capacity;  ///< by class of links, bytes/s
};

/// The coarsest partition of parts, groups and links that is equitable: the members of a class of
/// parts have equal states, equally many links of every class with equal weights, and groups of one
/// class; the members of a class of links have equal capacities and equally many users of every
/// class; groups of one class have equally many parts of every class. Max-min fair rates are
/// unique, so an exchange of members leaves them as they are: all members of a class have one rate,
/// and the network with one entity per class has the same rates.
///
/// Found by colour refinement (Berkholz, Bonsma and Grohe, Theory Comput. Syst. 60 (2017) 581-614)
/// with hashes of 64 bits as colours.
FlowClasses flow_classes(const Incidence& uses, std::span<const double> capacity,
                         const FlowStates& states);

}  // namespace scalemodel
