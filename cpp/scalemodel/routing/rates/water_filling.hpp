// Max-min fair rates over the links of a fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Progressive filling. The values of all entities rise together; when a link is saturated, its
/// entities freeze at
///
///     value = min over links e of (capacity_e - sum of frozen weight value) / sum of other weights
///
/// and the others rise on. The result is the only vector of values in which every entity has a
/// bottleneck link: a saturated link on which no other entity has a larger value. Sorted, it is
/// lexicographically largest. Source: Bertsekas and Gallager, Data Networks, 2nd ed. (1992),
/// section 6.5.2.
///
/// Entities are flows (weights one: fair rates in bytes/s), sprayed flows (weights: shares of their
/// links) or jobs (weights: bytes per step; values: steps per second). Shares of links never fall
/// while entities freeze, so the heap corrects a key only when it reaches the top. A link with a
/// single user is a cap on that user and stays out of the heap. An entity without links gets
/// infinity, an entity on a link that is down gets zero.
///
/// An object keeps its working memory and serves many solutions.
class WaterFilling {
 public:
  /// `value` has one entry per entity.
  void solve(std::span<const double> capacity, const Incidence& uses, std::span<double> value);

 private:
  struct Share {
    double value;
    std::int32_t link;
    /// The order of links with equal shares is free; a second key would only cost branches.
    bool operator<(const Share& other) const { return value < other.value; }
  };
  /// The share of an entity on links without other users.
  struct Cap {
    double value;
    std::int32_t entity;
  };
  struct Link {
    double left;          ///< capacity not used by frozen entities
    std::int32_t active;  ///< entities that are not frozen
  };
  template <bool weighted>
  void fill(std::span<const double> capacity, const Incidence& uses, std::span<double> value);
  template <bool weighted>
  void list_users(const Incidence& uses, bool packs);
  template <bool weighted>
  void start(std::span<double> value);
  template <bool weighted>
  void freeze(std::int32_t entity, double at, const Incidence& uses);
  template <typename Each>
  void for_packed_links(std::int32_t entity, const Each& each) const;
  template <bool weighted>
  double share(std::int32_t link) const {
    return links_[link].left / (weighted ? weight_[link] : links_[link].active);
  }

  bool is_frozen(std::int32_t entity) const {
    const auto bit = static_cast<std::uint32_t>(entity);
    return (frozen_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  void set_values(const Incidence& uses, std::span<double> value) const;

  void sift_down(std::size_t at);
  void pop_heap_top();

  std::vector<Link> links_;
  std::vector<std::int32_t> user_first_, user_;
  std::vector<std::int32_t> waiting_;  ///< users of a link that are not frozen
  /// By entity a bit: the inner loops read no other state of it, and of millions a cache holds it.
  std::vector<std::uint64_t> frozen_;
  std::vector<double> level_;  ///< by link: at which it filled up, or infinity
  /// By entity its links, at most four of 16 bits: one access to memory instead of two to three.
  /// Empty where links are more, or entities so few that a cache holds what they use.
  std::vector<std::uint64_t> packed_;
  std::vector<double> user_weight_, weight_;
  std::vector<Share> heap_;  ///< four children per node: half the depth, one cache line
  std::vector<Cap> caps_;
};

/// The parts of the flows of a routing, or sprayed flows, with max-min fair rates.
struct FairParts {
  Incidence uses;
  std::vector<double> rate;  ///< bytes/s
};

FairParts fair_parts(const RoutingInstance& instance, const Routing& routing,
                     WaterFilling& filling);

/// Rates of flows, bytes/s. That of a flow of several parts follows from its last part to end: min
/// over parts of rate / share.
std::vector<double> flow_rates(const RoutingInstance& instance, const Routing& routing,
                               const FairParts& parts);
std::vector<double> fair_rates(const RoutingInstance& instance, const Routing& routing,
                               WaterFilling& filling);

}  // namespace scalemodel
