// Incremental max-min fair rates while flows start and stop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {

/// Rates of the active entities of an incidence. A change solves only a part of them: the entities
/// that start, and those whose bottleneck link lost an entity. All others keep their rates as long
/// as the condition holds that makes the solution unique: every entity has a bottleneck link, a
/// saturated link on which no other entity is faster. An entity that violates it joins the part,
/// which is then solved again.
class FairUpdate {
 public:
  FairUpdate(std::span<const double> capacity, const Incidence& uses);

  double rate(std::int32_t entity) const { return rate_[entity]; }
  bool active(std::int32_t entity) const { return active_[entity] != 0; }
  /// Registers a change; rates stay valid until `solve`.
  void start(std::int32_t entity);
  void stop(std::int32_t entity);
  /// Solves the part that the registered changes affect. Returns the entities whose rates may have
  /// changed, in the order in which they joined; valid until the next call.
  std::span<const std::int32_t> solve();

  std::int64_t solved() const { return solved_; }  ///< entities solved over all calls

 private:
  void join(std::int32_t entity);
  void solve_part();
  bool widen();
  std::span<const std::int32_t> links(std::int32_t entity) const {
    return std::span(uses_.link)
        .subspan(uses_.first[entity], uses_.first[entity + 1] - uses_.first[entity]);
  }
  std::span<const std::int32_t> users(std::int32_t link) const {
    return std::span(user_).subspan(user_first_[link], user_first_[link + 1] - user_first_[link]);
  }
  double weight(std::int32_t place) const {
    return uses_.weight.empty() ? 1.0 : user_weight_[place];
  }

  std::span<const double> capacity_;
  const Incidence& uses_;
  std::vector<std::int32_t> user_first_, user_;
  std::vector<double> user_weight_;
  std::vector<double> rate_;
  std::vector<char> active_, joined_;
  std::vector<std::int32_t> bottleneck_;  ///< by entity: link, -1 before a solution
  std::vector<std::int32_t> part_, started_, stopped_;
  // The part as a problem with its own numbers of links.
  std::vector<std::int32_t> local_, part_links_;  ///< number in the part by link, and the inverse
  std::vector<double> part_capacity_, part_rate_, fastest_;
  std::vector<char> saturated_;
  Incidence part_uses_;
  WaterFilling filling_;
  std::int64_t solved_ = 0;
};

}  // namespace scalemodel
