#include "scalemodel/routing/water_filling.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace scalemodel {
namespace {

constexpr double kNotFrozen = -1;

}  // namespace

template <bool weighted>
void WaterFilling::list_users(const Incidence& uses) {
  user_first_.assign(left_.size() + 1, 0);
  for (const std::int32_t link : uses.link) ++user_first_[link + 1];
  for (std::size_t e = 1; e < user_first_.size(); ++e) user_first_[e] += user_first_[e - 1];
  user_.resize(uses.link.size());
  if constexpr (weighted) user_weight_.resize(uses.link.size());
  active_.assign(left_.size(), 0);
  const auto entities = static_cast<std::int32_t>(uses.size());
  for (std::int32_t i = 0; i < entities; ++i) {
    for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
      const std::int32_t link = uses.link[k];
      const std::int32_t place = user_first_[link] + active_[link]++;
      user_[place] = i;
      if constexpr (weighted) {
        user_weight_[place] = uses.weight[k];
        weight_[link] += uses.weight[k];
      }
    }
  }
}

template <bool weighted>
void WaterFilling::fill(std::span<const double> capacity, const Incidence& uses,
                        std::span<double> value) {
  left_.assign(capacity.begin(), capacity.end());
  if constexpr (weighted) weight_.assign(capacity.size(), 0.0);
  list_users<weighted>(uses);
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = uses.first[i] == uses.first[i + 1] ? std::numeric_limits<double>::infinity()
                                                  : kNotFrozen;
  }
  const auto share = [&](std::int32_t link) {
    if constexpr (weighted) {
      return left_[link] / weight_[link];
    } else {
      return left_[link] / active_[link];
    }
  };
  heap_.clear();
  for (std::size_t e = 0; e < capacity.size(); ++e) {
    const auto link = static_cast<std::int32_t>(e);
    if (active_[link] > 0) heap_.push_back({share(link), link});
  }
  std::ranges::make_heap(heap_, std::greater{});
  double level = 0;
  while (!heap_.empty()) {
    const std::int32_t link = heap_.front().link;
    std::ranges::pop_heap(heap_, std::greater{});
    heap_.pop_back();
    if (active_[link] == 0) continue;
    if constexpr (weighted) {  // afresh: differences of sums lose small weights
      weight_[link] = 0;
      for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
        if (value[user_[u]] == kNotFrozen) weight_[link] += user_weight_[u];
      }
    }
    const double now = share(link);
    if (!heap_.empty() && now > heap_.front().value) {
      heap_.push_back({now, link});
      std::ranges::push_heap(heap_, std::greater{});
      continue;
    }
    level = std::max(level, now);  // rounding must not let it fall
    for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
      const std::int32_t i = user_[u];
      if (value[i] != kNotFrozen) continue;
      value[i] = level;
      for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
        const std::int32_t other = uses.link[k];
        --active_[other];
        if constexpr (weighted) {
          left_[other] -= uses.weight[k] * level;
          weight_[other] -= uses.weight[k];
        } else {
          left_[other] -= level;
        }
      }
    }
  }
}

void WaterFilling::solve(std::span<const double> capacity, const Incidence& uses,
                         std::span<double> value) {
  if (uses.weight.empty()) {
    fill<false>(capacity, uses, value);
  } else {
    fill<true>(capacity, uses, value);
  }
}

std::vector<double> fair_rates(const RoutingInstance& instance, const Routing& routing,
                               WaterFilling& filling) {
  const Incidence uses = flow_links(instance, routing);
  std::vector<double> parts(uses.size());
  filling.solve(instance.graph.capacities(), uses, parts);
  const bool whole = routing.sprayed || routing.choice.size() == instance.size();
  std::vector<double> rates(instance.size());
  for (std::size_t f = 0; f < rates.size(); ++f) {
    if (!instance.is_local(f) && instance.paths_of(f) == 0) {
      rates[f] = 0;
    } else if (whole) {
      rates[f] = parts[f];
    } else {
      rates[f] = std::numeric_limits<double>::infinity();
      for (std::int32_t p = routing.first[f]; p < routing.first[f + 1]; ++p) {
        rates[f] = std::min(rates[f], parts[p] / routing.share[p]);
      }
    }
  }
  return rates;
}

}  // namespace scalemodel
