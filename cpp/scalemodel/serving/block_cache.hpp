// The blocks of a paged KV cache by name: which hold what, which are free, which goes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace scalemodel {

/// Identity of a full block and of everything before it; 0: none.
using BlockHash = std::uint64_t;

/// Hashes of the full blocks of a request: each is chained with that of the block before it, so
/// that two are equal where all tokens up to there are. `names` stand for `name_tokens` tokens
/// each (1: they are token ids); one of name_tokens and block_tokens is a multiple of the other.
/// Blocks of `tokens` that no names cover belong to `owner` alone.
std::vector<BlockHash> chained_hashes(std::span<const std::uint64_t> names, std::int64_t tokens,
                                      int name_tokens, int block_tokens, std::uint64_t owner);

/// Blocks with a count of users, and a queue of the free ones: the head is taken next. A free
/// block keeps its content, under its hash, until it is taken. Source: vLLM V1,
/// vllm/v1/core/block_pool.py and kv_cache_utils.py.
class BlockCache {
 public:
  /// `keeps_uncached_last`: a block without a hash waits for its turn like any other (vLLM before
  /// pull request 42656 of May 2026); else it is taken first.
  BlockCache(int blocks, bool keeps_uncached_last);

  std::int64_t free_blocks() const noexcept { return free_; }
  std::int64_t used_blocks() const noexcept { return all_ - free_; }

  /// The longest run of `hashes`, from the first, that is held. Of equal blocks the oldest.
  std::vector<int> held(std::span<const BlockHash> hashes) const;
  /// Blocks among `blocks` without a user: sharing them takes them from the free ones.
  std::int64_t idle(std::span<const int> blocks) const;
  /// One more user of each.
  void share(std::span<const int> blocks);
  /// The head of the queue, its content forgotten. Precondition: free_blocks() > 0.
  int take();
  /// Names the content of a used block; a block that has a name keeps it.
  void name(int block, BlockHash hash);
  /// One user of each less, the last block first: the end of a sequence is forgotten before its
  /// start.
  void release(std::span<const int> blocks);

 private:
  struct Block {
    int users = 0;
    BlockHash hash = 0;
    int before = 0, after = 0;  ///< in the queue of free blocks; places of it are blocks + 1
  };
  void unlink(int block);
  void link_before(int block, int next);
  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(int block) const { return blocks_[static_cast<std::size_t>(block)]; }

  std::int64_t all_, free_ = 0;
  bool keeps_uncached_last_;
  int end_;                    ///< the block behind the last: both ends of the queue
  std::vector<Block> blocks_;  ///< and that end
  std::unordered_map<BlockHash, std::vector<int>> named_;  ///< the oldest first
};

/// What a cache of single blocks held of a sequence of prompts.
struct PrefixHits {
  std::int64_t tokens = 0, hit_tokens = 0;
  std::int64_t blocks = 0, hit_blocks = 0;
};

/// A prompt of `tokens`, by the hashes of its blocks; the last block may be partly filled.
struct NamedPrompt {
  std::int64_t tokens = 0;
  std::vector<BlockHash> hashes;
};

/// One prompt after the other through a cache of `blocks`: its blocks hit until the first that is
/// missing, then all of them are in the cache and the most recently used, in their order.
PrefixHits replay_prefixes(std::span<const NamedPrompt> prompts, int blocks, int block_tokens);

}  // namespace scalemodel
