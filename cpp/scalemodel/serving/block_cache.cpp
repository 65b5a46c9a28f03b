#include "scalemodel/serving/block_cache.hpp"

#include <algorithm>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// A hash of a pair; never 0, which stands for none.
BlockHash chained(BlockHash before, std::uint64_t name) {
  SplitMix first(name);
  SplitMix both(before ^ first.next());
  return std::max<BlockHash>(1, both.next());
}

}  // namespace

std::vector<BlockHash> chained_hashes(std::span<const std::uint64_t> names, std::int64_t tokens,
                                      int name_tokens, int block_tokens, std::uint64_t owner) {
  std::vector<BlockHash> hashes;
  hashes.reserve(static_cast<std::size_t>(tokens / block_tokens));
  BlockHash hash = 0;
  const std::int64_t step = std::min(name_tokens, block_tokens);
  for (std::int64_t block = 0; block < tokens / block_tokens; ++block) {
    const std::int64_t begin = block * block_tokens;
    const auto covered = static_cast<std::int64_t>(names.size()) * name_tokens;
    if (begin + block_tokens <= covered) {
      for (std::int64_t token = begin; token < begin + block_tokens; token += step) {
        hash = chained(hash, names[static_cast<std::size_t>(token / name_tokens)]);
      }
    } else {
      hash = chained(chained(hash, owner), ~static_cast<std::uint64_t>(block));
    }
    hashes.push_back(hash);
  }
  return hashes;
}

BlockCache::BlockCache(int blocks, bool keeps_uncached_last)
    : all_(blocks),
      keeps_uncached_last_(keeps_uncached_last),
      end_(blocks),
      blocks_(static_cast<std::size_t>(blocks) + 1) {
  at(end_).before = at(end_).after = end_;
  for (int block = 0; block < blocks; ++block) link_before(block, end_);
}

void BlockCache::unlink(int block) {
  const Block& one = at(block);
  at(one.before).after = one.after;
  at(one.after).before = one.before;
  --free_;
}

void BlockCache::link_before(int block, int next) {
  Block& one = at(block);
  one.before = at(next).before;
  one.after = next;
  at(one.before).after = block;
  at(next).before = block;
  ++free_;
}

std::vector<int> BlockCache::held(std::span<const BlockHash> hashes) const {
  std::vector<int> blocks;
  for (const BlockHash hash : hashes) {
    const auto found = named_.find(hash);
    if (found == named_.end()) break;
    blocks.push_back(found->second.front());
  }
  return blocks;
}

std::int64_t BlockCache::idle(std::span<const int> blocks) const {
  return std::count_if(blocks.begin(), blocks.end(),
                       [this](int block) { return at(block).users == 0; });
}

void BlockCache::share(std::span<const int> blocks) {
  for (const int block : blocks) {
    if (at(block).users++ == 0) unlink(block);
  }
}

int BlockCache::take() {
  const int block = at(end_).after;
  unlink(block);
  Block& one = at(block);
  one.users = 1;
  if (one.hash != 0) {
    const auto found = named_.find(one.hash);
    std::erase(found->second, block);
    if (found->second.empty()) named_.erase(found);
    one.hash = 0;
  }
  return block;
}

void BlockCache::name(int block, BlockHash hash) {
  if (at(block).hash != 0) return;
  at(block).hash = hash;
  named_[hash].push_back(block);
}

void BlockCache::release(std::span<const int> blocks) {
  for (std::size_t behind = blocks.size(); behind > 0; --behind) {
    const int block = blocks[behind - 1];
    if (--at(block).users > 0) continue;
    const bool last = at(block).hash != 0 || keeps_uncached_last_;
    link_before(block, last ? end_ : at(end_).after);
  }
}

PrefixHits replay_prefixes(std::span<const NamedPrompt> prompts, int blocks, int block_tokens) {
  BlockCache cache(blocks, false);
  PrefixHits found;
  for (const NamedPrompt& prompt : prompts) {
    const auto count = static_cast<std::int64_t>(prompt.hashes.size());
    const auto hits = static_cast<std::int64_t>(cache.held(prompt.hashes).size());
    found.tokens += prompt.tokens;
    found.blocks += count;
    found.hit_blocks += hits;
    found.hit_tokens += std::min(prompt.tokens, hits * block_tokens);
    for (const BlockHash& hash : prompt.hashes) {
      poll_point();
      std::vector<int> block = cache.held({&hash, 1});
      if (block.empty()) {
        block.push_back(cache.take());
        cache.name(block.front(), hash);
      } else {
        cache.share(block);
      }
      cache.release(block);
    }
  }
  return found;
}

}  // namespace scalemodel
