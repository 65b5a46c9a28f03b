#include "scalemodel/routing/rates/fair_update.hpp"

#include <algorithm>
#include <cstddef>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kAbsent = -1;  ///< a bottleneck link, a number in the part

}  // namespace

FairUpdate::FairUpdate(std::span<const double> capacity, const Incidence& uses)
    : capacity_(capacity),
      uses_(uses),
      user_first_(capacity.size() + 1, 0),
      user_(uses.link.size()),
      rate_(uses.size(), 0.0),
      active_(uses.size(), 0),
      joined_(uses.size(), 0),
      bottleneck_(uses.size(), kAbsent),
      local_(capacity.size(), kAbsent) {
  for (const std::int32_t link : uses.link) ++user_first_[link + 1];
  for (std::size_t e = 1; e < user_first_.size(); ++e) user_first_[e] += user_first_[e - 1];
  std::vector<std::int32_t> next(user_first_.begin(), user_first_.end() - 1);
  if (!uses.weight.empty()) user_weight_.resize(uses.link.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(uses.size()); ++i) {
    for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
      const std::int32_t place = next[uses.link[k]]++;
      user_[place] = i;
      if (!uses.weight.empty()) user_weight_[place] = uses.weight[k];
    }
  }
}

void FairUpdate::join(std::int32_t entity) {
  if (joined_[entity] != 0 || active_[entity] == 0) return;
  joined_[entity] = 1;
  part_.push_back(entity);
}

void FairUpdate::start(std::int32_t entity) {
  active_[entity] = 1;
  rate_[entity] = 0;
  bottleneck_[entity] = kAbsent;
  started_.push_back(entity);
}

void FairUpdate::stop(std::int32_t entity) {
  active_[entity] = 0;
  rate_[entity] = 0;
  stopped_.push_back(entity);
}

void FairUpdate::solve_part() {
  for (const std::int32_t link : part_links_) local_[link] = kAbsent;
  part_links_.clear();
  part_uses_.first.assign(1, 0);
  part_uses_.link.clear();
  part_uses_.weight.clear();
  for (const std::int32_t entity : part_) {
    poll_point();
    for (std::int32_t k = uses_.first[entity]; k < uses_.first[entity + 1]; ++k) {
      const std::int32_t link = uses_.link[k];
      if (local_[link] == kAbsent) {
        local_[link] = static_cast<std::int32_t>(part_links_.size());
        part_links_.push_back(link);
      }
      part_uses_.link.push_back(local_[link]);
      if (!uses_.weight.empty()) part_uses_.weight.push_back(uses_.weight[k]);
    }
    part_uses_.first.push_back(static_cast<std::int32_t>(part_uses_.link.size()));
  }
  part_capacity_.resize(part_links_.size());
  for (std::size_t e = 0; e < part_links_.size(); ++e) {
    const std::int32_t link = part_links_[e];
    double left = capacity_[link];
    for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
      if (joined_[user_[u]] == 0) left -= weight(u) * rate_[user_[u]];
    }
    part_capacity_[e] = left > kRounding * capacity_[link] ? left : 0.0;
  }
  part_rate_.resize(part_.size());
  filling_.solve(part_capacity_, part_uses_, part_rate_);
  for (std::size_t i = 0; i < part_.size(); ++i) rate_[part_[i]] = part_rate_[i];
  solved_ += static_cast<std::int64_t>(part_.size());
}

/// Adds the entities that lost their bottleneck link, and those that are faster on a saturated link
/// than an entity of the part without a bottleneck link; false where none joined.
bool FairUpdate::widen() {
  const std::size_t before = part_.size();
  fastest_.resize(part_links_.size());
  saturated_.resize(part_links_.size());
  for (std::size_t e = 0; e < part_links_.size(); ++e) {
    const std::int32_t link = part_links_[e];
    poll_point(1 + (user_first_[link + 1] - user_first_[link]) / 16);
    double used = 0, fastest = 0;
    for (std::int32_t u = user_first_[link]; u < user_first_[link + 1]; ++u) {
      used += weight(u) * rate_[user_[u]];
      fastest = std::max(fastest, rate_[user_[u]]);
    }
    fastest_[e] = fastest * (1 - kRounding);
    saturated_[e] = used >= (1 - kRounding) * capacity_[link] ? 1 : 0;
    for (const std::int32_t user : users(link)) {
      const bool is_bottleneck = saturated_[e] != 0 && rate_[user] >= fastest_[e];
      if (bottleneck_[user] == link && !is_bottleneck) join(user);
    }
  }
  for (std::size_t i = 0; i < before; ++i) {
    const std::int32_t entity = part_[i];
    bottleneck_[entity] = kAbsent;
    for (const std::int32_t link : links(entity)) {
      const std::int32_t e = local_[link];
      if (saturated_[e] != 0 && rate_[entity] >= fastest_[e]) bottleneck_[entity] = link;
    }
    if (bottleneck_[entity] != kAbsent) continue;
    for (const std::int32_t link : links(entity)) {
      if (saturated_[local_[link]] == 0) continue;
      for (const std::int32_t user : users(link)) {
        if (rate_[user] > rate_[entity]) join(user);
      }
    }
  }
  return part_.size() > before;
}

std::span<const std::int32_t> FairUpdate::solve() {
  for (const std::int32_t entity : part_) joined_[entity] = 0;
  part_.clear();
  for (const std::int32_t entity : started_) join(entity);
  for (const std::int32_t entity : stopped_) {
    for (const std::int32_t link : links(entity)) {
      for (const std::int32_t user : users(link)) {
        if (bottleneck_[user] == link) join(user);
      }
    }
  }
  started_.clear();
  stopped_.clear();
  if (part_.empty()) return part_;
  do {
    solve_part();
  } while (widen());
  return part_;
}

}  // namespace scalemodel
