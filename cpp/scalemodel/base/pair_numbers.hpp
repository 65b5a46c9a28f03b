// Numbers for the pairs that occur.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace scalemodel {

/// Number of each distinct (from, to) in the order of first appearance.
class PairNumbers {
 public:
  explicit PairNumbers(std::int32_t nodes) : nodes_(static_cast<std::size_t>(nodes)) {
    constexpr std::size_t kDense = 1024;  // a table of this number squared stays in a cache
    if (nodes_ <= kDense) dense_.assign(nodes_ * nodes_, kNew);
  }

  std::int32_t number(std::int32_t from, std::int32_t to) {
    const std::size_t key = static_cast<std::size_t>(from) * nodes_ + static_cast<std::size_t>(to);
    std::int32_t& slot =
        dense_.empty() ? sparse_.try_emplace(key, kNew).first->second : dense_[key];
    if (slot == kNew) {
      slot = static_cast<std::int32_t>(pairs_.size());
      pairs_.emplace_back(from, to);
    }
    return slot;
  }
  const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs() const { return pairs_; }

 private:
  static constexpr std::int32_t kNew = -1;

  std::size_t nodes_;
  std::vector<std::int32_t> dense_;
  std::unordered_map<std::size_t, std::int32_t> sparse_;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs_;
};

}  // namespace scalemodel
