#include "scalemodel/routing/rates/water_filling.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kUsersAhead = 8;  ///< users between a fetch and its use
constexpr std::size_t kEntitiesAtHand = std::size_t{1} << 16;  ///< whose values a cache holds
constexpr int kPackedBits = 16, kPackedLinks = 64 / kPackedBits;
constexpr std::uint64_t kNoPackedLink = (std::uint64_t{1} << kPackedBits) - 1;

/// Whether every entity's links fit into a word.
bool packable(const Incidence& uses, std::size_t links) {
  if (links >= kNoPackedLink) return false;
  for (std::size_t i = 0; i + 1 < uses.first.size(); ++i) {
    if (uses.first[i + 1] - uses.first[i] > kPackedLinks) return false;
  }
  return true;
}

}  // namespace

void WaterFilling::sift_down(std::size_t at) {
  const Share moved = heap_[at];
  const std::size_t size = heap_.size();
  for (std::size_t child = 4 * at + 1; child < size; child = 4 * at + 1) {
    const std::size_t end = std::min(child + 4, size);
    std::size_t least = child;
    for (std::size_t c = child + 1; c < end; ++c) least = heap_[c] < heap_[least] ? c : least;
    if (!(heap_[least] < moved)) break;
    heap_[at] = heap_[least];
    at = least;
  }
  heap_[at] = moved;
}

void WaterFilling::pop_heap_top() {
  heap_.front() = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) sift_down(0);
}

template <typename Each>
void WaterFilling::for_packed_links(std::int32_t entity, const Each& each) const {
  std::uint64_t links = packed_[entity];
  for (int k = 0; k < kPackedLinks && (links & kNoPackedLink) != kNoPackedLink;
       ++k, links >>= kPackedBits) {
    each(static_cast<std::size_t>(links & kNoPackedLink));
  }
}

template <bool weighted>
void WaterFilling::list_users(const Incidence& uses, bool packs) {
  for (const std::int32_t link : uses.link) ++links_[link].active;
  user_first_.resize(links_.size() + 1);
  std::int32_t sum = 0;
  for (std::size_t e = 0; e < links_.size(); ++e) {
    user_first_[e] = sum;
    sum += std::exchange(links_[e].active, 0);
  }
  user_first_.back() = sum;
  resize_large(user_, uses.link.size());
  if constexpr (weighted) {
    resize_large(user_weight_, uses.link.size());
    weight_.assign(links_.size(), 0.0);
  }
  const auto entities = static_cast<std::int32_t>(uses.size());
  packed_.clear();
  if (packs) reserve_large(packed_, uses.size());
  PollPoints points;
  for (std::int32_t i = 0; i < entities; ++i) {
    points();
    if (packs) {
      std::uint64_t links = ~std::uint64_t{0};
      for (std::int32_t k = uses.first[i + 1]; k-- > uses.first[i];) {
        links = links << kPackedBits | static_cast<std::uint64_t>(uses.link[k]);
      }
      packed_.push_back(links);
    }
    for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
      const std::int32_t link = uses.link[k];
      const std::int32_t place = user_first_[link] + links_[link].active++;
      user_[place] = i;
      if constexpr (weighted) {
        user_weight_[place] = uses.weight[k];
        weight_[link] += uses.weight[k];
      }
    }
  }
}

/// Builds the heap of links with several users and the caps of links with one.
template <bool weighted>
void WaterFilling::start(std::span<double> value) {
  std::ranges::fill(value, kInfinity);
  heap_.clear();
  for (std::size_t e = 0; e < links_.size(); ++e) {
    const auto link = static_cast<std::int32_t>(e);
    if (links_[link].active > 1) {
      heap_.push_back({share<weighted>(link), link});
    } else if (links_[link].active == 1) {
      double& cap = value[user_[user_first_[link]]];
      cap = std::min(cap, share<weighted>(link));
    }
  }
  for (std::size_t at = heap_.size() / 4 + 1; at-- > 0;) {
    if (at < heap_.size()) sift_down(at);
  }
  caps_.clear();
  frozen_.assign(value.size() / 64 + 1, 0);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(value.size()); ++i) {
    if (value[i] < kInfinity) caps_.push_back({value[i], i});
  }
  if (!std::ranges::is_sorted(caps_, {}, &Cap::value)) {
    PollPoints points;
    const auto less = [](const Cap& a, const Cap& b) { return a.value < b.value; };
    std::ranges::stable_sort(caps_, polled(less, points));
  }
}

template <bool weighted>
void WaterFilling::freeze(std::int32_t entity, double at, const Incidence& uses) {
  poll_point();
  frozen_[static_cast<std::size_t>(entity) / 64] |= std::uint64_t{1} << (entity % 64);
  if constexpr (!weighted) {
    if (!packed_.empty()) {
      for_packed_links(entity, [&](std::size_t link) {
        --links_[link].active;
        links_[link].left -= at;
      });
      return;
    }
  }
  for (std::int32_t k = uses.first[entity]; k < uses.first[entity + 1]; ++k) {
    Link& link = links_[uses.link[k]];
    --link.active;
    if constexpr (weighted) {
      link.left -= uses.weight[k] * at;
      weight_[uses.link[k]] -= uses.weight[k];
    } else {
      link.left -= at;
    }
  }
}

/// The level of an entity is that of the first of its links to fill up, and no later one's is
/// lower. A sign marks those of entities that a cap stopped.
void WaterFilling::set_values(const Incidence& uses, std::span<double> value) const {
  PollPoints points;
  for (std::size_t i = 0; i < value.size(); ++i) {
    points();
    if (std::signbit(value[i])) {
      value[i] = -value[i];
      continue;
    }
    double least = kInfinity;
    if (packed_.empty()) {
      for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
        least = std::min(least, level_[uses.link[k]]);
      }
    } else {
      for_packed_links(static_cast<std::int32_t>(i),
                       [&](std::size_t link) { least = std::min(least, level_[link]); });
    }
    value[i] = least;
  }
}

template <bool weighted>
void WaterFilling::fill(std::span<const double> capacity, const Incidence& uses,
                        std::span<double> value) {
  links_.resize(capacity.size());
  for (std::size_t e = 0; e < capacity.size(); ++e) links_[e] = {capacity[e], 0};
  // Entities are met in the order of links: of millions, each value written would wait for memory.
  const bool defers = value.size() > kEntitiesAtHand;
  list_users<weighted>(uses, !weighted && defers && packable(uses, links_.size()));
  start<weighted>(value);
  if (defers) level_.assign(links_.size(), kInfinity);
  double level = 0;
  std::size_t next_cap = 0;
  while (!heap_.empty() || next_cap < caps_.size()) {
    if (heap_.empty() ||
        (next_cap < caps_.size() && caps_[next_cap].value <= heap_.front().value)) {
      const auto [cap, entity] = caps_[next_cap++];
      if (is_frozen(entity)) continue;
      level = std::max(level, cap);
      freeze<weighted>(entity, level, uses);
      value[entity] = defers ? -level : level;
      continue;
    }
    const std::int32_t link = heap_.front().link;
    poll_point();
    if (links_[link].active == 0) {
      pop_heap_top();
      continue;
    }
    if constexpr (weighted) {  // a new sum: repeated subtraction loses small weights
      weight_[link] = 0;
      for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
        if (!is_frozen(user_[u])) weight_[link] += user_weight_[u];
      }
    }
    const double now = share<weighted>(link);
    if (now > heap_.front().value) {
      heap_.front().value = now;
      sift_down(0);
      if (heap_.front().link != link) continue;
    }
    if (next_cap < caps_.size() && now > caps_[next_cap].value) continue;
    pop_heap_top();
    level = std::max(level, now);  // rounding must not lower it
    // Two loops: without unpredictable branches, the links of several users load in parallel.
    waiting_.resize(std::max<std::size_t>(waiting_.size(), links_[link].active + 1));
    std::int32_t waiting = 0;
    for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
      waiting_[waiting] = user_[u];
      waiting += is_frozen(user_[u]) ? 0 : 1;
    }
    if (defers) level_[link] = level;
    // Users lie far apart where there are millions: what they hold is fetched ahead.
    const auto fetch = [&](std::int32_t i) {
      if (!packed_.empty()) {
        if (i + kUsersAhead < waiting) __builtin_prefetch(&packed_[waiting_[i + kUsersAhead]]);
        return;
      }
      if (i + 2 * kUsersAhead < waiting) {
        __builtin_prefetch(&uses.first[waiting_[i + 2 * kUsersAhead]]);
      }
      if (i + kUsersAhead < waiting)
        __builtin_prefetch(&uses.link[uses.first[waiting_[i + kUsersAhead]]]);
    };
    for (std::int32_t i = 0; i < waiting; ++i) {
      fetch(i);
      freeze<weighted>(waiting_[i], level, uses);
      if (!defers) value[waiting_[i]] = level;
    }
  }
  if (defers) set_values(uses, value);
}

void WaterFilling::solve(std::span<const double> capacity, const Incidence& uses,
                         std::span<double> value) {
  if (uses.weight.empty()) {
    fill<false>(capacity, uses, value);
  } else {
    fill<true>(capacity, uses, value);
  }
}

FairParts fair_parts(const RoutingInstance& instance, const Routing& routing,
                     WaterFilling& filling) {
  FairParts parts{flow_links(instance, routing), {}};
  resize_large(parts.rate, parts.uses.size());
  filling.solve(instance.graph.capacities(), parts.uses, parts.rate);
  return parts;
}

std::vector<double> fair_rates(const RoutingInstance& instance, const Routing& routing,
                               WaterFilling& filling) {
  return flow_rates(instance, routing, fair_parts(instance, routing, filling));
}

std::vector<double> flow_rates(const RoutingInstance& instance, const Routing& routing,
                               const FairParts& parts) {
  const bool whole = routing.sprayed || routing.choice.size() == instance.size();
  auto rates = large_vector<double>(instance.size());
  for (std::size_t f = 0; f < rates.size(); ++f) {
    if (!instance.is_local(f) && instance.paths_of(f) == 0) {
      rates[f] = 0;
    } else if (whole) {
      rates[f] = parts.rate[f];
    } else {
      rates[f] = kInfinity;
      for (std::int32_t p = routing.first[f]; p < routing.first[f + 1]; ++p) {
        rates[f] = std::min(rates[f], parts.rate[p] / routing.share[p]);
      }
    }
  }
  return rates;
}

}  // namespace scalemodel
