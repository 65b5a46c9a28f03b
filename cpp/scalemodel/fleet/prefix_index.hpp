// Which replicas hold which blocks: what a router knows that hears of every change of their caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/serving/prefix_cache.hpp"

namespace scalemodel {

/// A set of replicas per block name.
class PrefixIndex {
 public:
  /// Precondition: replicas >= 1.
  explicit PrefixIndex(std::size_t replicas);

  void apply(std::size_t replica, std::span<const PrefixCache::Change> changes);
  /// Blocks from the start of `names` that each replica holds without a gap.
  void count_held(std::span<const BlockHash> names, std::span<std::int32_t> held);

  void add(BlockHash name, std::size_t replica);
  /// Nothing where it is not there.
  void remove(BlockHash name, std::size_t replica);

 private:
  using Word = std::uint64_t;
  static constexpr std::size_t kBits = 64;

  std::size_t slot_of(BlockHash name) const noexcept;
  std::size_t find(BlockHash name) const noexcept;
  bool empty(std::size_t slot) const noexcept;
  void erase(std::size_t hole);
  void grow();
  Word* holders(std::size_t slot) { return holders_.data() + slot * words_; }
  const Word* holders(std::size_t slot) const { return holders_.data() + slot * words_; }

  std::size_t words_;  ///< of 64 replicas each
  std::size_t count_ = 0;
  /// In the slot of a name or the next empty one, where no replica is; a power of two of them.
  std::vector<BlockHash> names_;
  std::vector<Word> holders_;
  std::vector<Word> live_;
};

}  // namespace scalemodel
