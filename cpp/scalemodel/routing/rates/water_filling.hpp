// Max-min fair rates over the links of a fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Progressive filling. Raises the values of all entities together; when a link is full, those on
/// it stay at
///
///     value = min over links e of (capacity_e - sum of frozen weight value) / sum of other weights
///
/// and the rest rises on. The result is the only vector of values in which every entity has a full
/// link on which no other has a larger value; it is lexicographically largest when sorted.
/// Source: Bertsekas and Gallager, Data Networks, 2nd ed. (1992), section 6.5.2.
///
/// Entities are flows (weights one: fair rates in bytes/s), sprayed flows (weights: shares of their
/// links) or jobs (weights: bytes per step; values: steps per second). Shares of links never fall
/// while entities freeze, hence a heap whose keys are corrected only when they are drawn; a link
/// with a single user is no more than a cap on that user and stays out of the heap. An entity
/// without links gets infinity, one that uses a link that is down gets zero.
///
/// Keeps its working memory: reuse one object for many solutions.
class WaterFilling {
 public:
  /// `value` has one entry per entity.
  void solve(std::span<const double> capacity, const Incidence& uses, std::span<double> value);

 private:
  struct Share {
    double value;
    std::int32_t link;
    /// Links of equal share may come in any order; a second key would only cost branches.
    bool operator<(const Share& other) const { return value < other.value; }
  };
  struct Cap {
    double value;
    std::int32_t entity;
  };
  struct Link {
    double left;          ///< capacity not yet taken by frozen entities
    std::int32_t active;  ///< entities not yet frozen
  };
  template <bool weighted>
  void fill(std::span<const double> capacity, const Incidence& uses, std::span<double> value);
  template <bool weighted>
  void list_users(const Incidence& uses);
  template <bool weighted>
  void start(const Incidence& uses, std::span<double> value);
  template <bool weighted>
  void freeze(std::int32_t entity, double at, const Incidence& uses, std::span<double> value);
  template <bool weighted>
  double share(std::int32_t link) const {
    return links_[link].left / (weighted ? weight_[link] : links_[link].active);
  }

  void sift_down(std::size_t at);
  void drop_first();

  std::vector<Link> links_;
  std::vector<std::int32_t> user_first_, user_;
  std::vector<std::int32_t> waiting_;  ///< users of a link that are not frozen
  std::vector<char> frozen_;           ///< by entity: asked far more often than its value
  std::vector<double> user_weight_, weight_;
  std::vector<Share> heap_;  ///< four children per node: half as deep, one cache line of them
  std::vector<Cap> caps_;
};

/// Max-min fair rates of the flows of a routing, bytes/s. A flow of several parts moves as fast as
/// the part that is the last to end: min over parts of rate / share.
std::vector<double> fair_rates(const RoutingInstance& instance, const Routing& routing,
                               WaterFilling& filling);

}  // namespace scalemodel
