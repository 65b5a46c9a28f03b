// Drain times of the links of a fabric under a changing choice of paths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Maintains the flows of every link, and the overloaded links: those with a drain time above a
/// target.
class DrainState {
 public:
  DrainState(const RoutingInstance& instance, Choice choice, double target);

  bool fits() const { return overloaded_.empty(); }
  std::span<const std::int32_t> overloaded() const { return overloaded_; }
  std::span<const std::int32_t> flows_on(std::int32_t link) const { return users_[link]; }
  const Choice& choice() const { return choice_; }
  /// Longest time to drain a link, seconds.
  double longest() const;

  void move(std::int32_t flow, std::int32_t to);
  /// Change of the sum over links of the squared excess over the target if `flow` took path `to`
  /// and, unless it is kNone, `other` took path `other_to`.
  double change_of(std::int32_t flow, std::int32_t to, std::int32_t other, std::int32_t other_to);

 private:
  struct TimeChange {
    std::int32_t link;
    double time;
  };
  void gather(std::int32_t flow, std::int32_t to);
  void remove(std::int32_t flow);
  void add(std::int32_t flow);
  void change_load(std::int32_t link, double bytes);
  std::span<const std::int32_t> links(std::int32_t flow) const {
    return instance_.links(static_cast<std::size_t>(flow), choice_[flow]);
  }

  const RoutingInstance& instance_;
  Choice choice_;
  double target_;
  std::vector<double> per_byte_, time_;           ///< by link, seconds
  std::vector<std::vector<std::int32_t>> users_;  ///< by link
  std::vector<std::int32_t> place_first_,
      place_;  ///< by flow and link of its path: position in `users_`
  std::vector<std::int32_t> overloaded_, overloaded_place_;
  std::vector<TimeChange> changes_;  ///< of a candidate move, one per link
};

}  // namespace scalemodel
