// Prefixes that a replica's KV cache holds between requests: blocks by name, the least recently
// used of those without a user leave first.
//
// `BlockCache` (block_cache.hpp) counts every block of an engine, named or not, as vLLM's pool
// does. Here only prefixes have places: what running sequences hold beside them is a number of
// tokens that the replica knows, so that a block may be as long as a trace names it and a million
// requests pass in seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/serving/block_cache.hpp"

namespace scalemodel {

/// Named blocks of requests, those of request i from offsets[i] to offsets[i + 1]. Equal names
/// stand for equal tokens up to and including the block; empty columns: nothing is shared.
struct PrefixColumns {
  std::span<const std::int64_t> offsets;
  std::span<const BlockHash> names;
  double block_tokens = 0;  ///< tokens of a block

  bool empty() const noexcept { return offsets.empty(); }
  std::span<const BlockHash> of(std::size_t request) const noexcept {
    if (offsets.empty()) return {};
    const auto begin = static_cast<std::size_t>(offsets[request]);
    return names.subspan(begin, static_cast<std::size_t>(offsets[request + 1]) - begin);
  }
};

/// Blocks form a tree: a block's parent is the one before it. A chain is known by its last block.
/// It is used and released as a whole, its end forgotten before its start, so that every ancestor
/// of a held block is held.
class PrefixCache {
 public:
  static constexpr int kNone = -1;
  /// A block that came or went.
  struct Change {
    BlockHash name;
    bool held;
  };

  /// Place of a block, or kNone.
  int find(BlockHash name) const noexcept;
  /// A new block behind `parent` (kNone: at the start), with one user.
  int add(BlockHash name, int parent, double tokens);
  /// One more user of every block up to `last`.
  void share_chain(int last);
  /// One more user of a block whose ancestors have one.
  void share(int block);
  /// One user less of every block up to `last`, that one first.
  void release_chain(int last);
  /// Tokens of a chain that ends in `last`, of blocks that have a user.
  double used_tokens(int last) const noexcept;
  /// The least recently used block without a user leaves. Precondition: idle_tokens() > 0.
  void forget_oldest();

  double tokens(int block) const noexcept { return at(block).tokens; }
  /// The least recently used block without a user. Precondition: idle_tokens() > 0.
  int oldest() const noexcept { return oldest_; }
  BlockHash name(int block) const noexcept { return at(block).name; }
  int parent(int block) const noexcept { return at(block).parent; }
  /// Tokens of blocks without a user, and of all blocks.
  double idle_tokens() const noexcept { return idle_tokens_; }
  double held_tokens() const noexcept { return held_tokens_; }
  /// Tokens that users share: of each block as many times as it has users beside the first.
  double shared_tokens() const noexcept { return shared_tokens_; }

  /// From now on changes are kept until `take_changes`.
  void record_changes() noexcept { records_ = true; }
  std::span<const Change> changes() const noexcept { return changes_; }
  void forget_changes() noexcept { changes_.clear(); }

 private:
  struct Block {
    BlockHash name = 0;
    int parent = kNone;
    int users = 0;
    int before = kNone, after = kNone;  ///< in the queue of idle blocks, the oldest first
    float tokens = 0;
  };

  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(int block) const { return blocks_[static_cast<std::size_t>(block)]; }
  std::size_t slot_of(BlockHash name) const noexcept;
  void grow();
  void erase(BlockHash name);
  void unlink(int block);
  void link_newest(int block);
  void note(BlockHash name, bool held) {
    if (records_) changes_.push_back({name, held});
  }

  std::vector<Block> blocks_;
  std::vector<int> unused_;  ///< places of blocks that left
  /// Places by name, in the slot of the name or the next empty one; a power of two of them.
  std::vector<int> slots_;
  std::size_t count_ = 0;
  int oldest_ = kNone, newest_ = kNone;
  double idle_tokens_ = 0, held_tokens_ = 0, shared_tokens_ = 0;
  bool records_ = false;
  std::vector<Change> changes_;
};

}  // namespace scalemodel
