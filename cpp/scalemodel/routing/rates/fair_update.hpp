// Max-min fair rates kept up to date while flows come and go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {

/// Rates of the active entities of an incidence. A change solves only the entities that it touches:
/// those that were held back by a link that lost a flow, and those that came. The rest keeps its
/// rate unless that would break the condition that makes the solution unique, namely that everyone
/// has a full link on which no other is faster; whoever breaks it joins and the part is solved
/// again.
class FairUpdate {
 public:
  FairUpdate(std::span<const double> capacity, const Incidence& uses);

  double rate(std::int32_t entity) const { return rate_[entity]; }
  bool active(std::int32_t entity) const { return active_[entity] != 0; }
  /// Announces a change; rates hold until `solve`.
  void start(std::int32_t entity);
  void stop(std::int32_t entity);
  /// Solves what the announced changes touch. Entities whose rate may have changed, in the order in
  /// which they were reached; valid until the next call.
  std::span<const std::int32_t> solve();

  std::int64_t solved() const { return solved_; }  ///< entities, over all calls

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
  std::vector<std::int32_t> held_by_;  ///< by entity: a full link on which no other is faster
  std::vector<std::int32_t> part_, started_, stopped_;
  // The part as a small problem of its own.
  std::vector<std::int32_t> local_, part_links_;  ///< by link: its number there; and back
  std::vector<double> part_capacity_, part_rate_, fastest_;
  std::vector<char> full_;
  Incidence part_uses_;
  WaterFilling filling_;
  std::int64_t solved_ = 0;
};

}  // namespace scalemodel
