#include "scalemodel/serving/prefix_cache.hpp"

#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

constexpr std::size_t kFirstCacheSlots = 64;

}  // namespace

std::size_t PrefixCache::slot_of(BlockHash name) const noexcept {
  return static_cast<std::size_t>(SplitMix(name).next()) & (slots_.size() - 1);
}

int PrefixCache::find(BlockHash name) const noexcept {
  if (slots_.empty()) return kNone;
  for (std::size_t slot = slot_of(name);; slot = (slot + 1) & (slots_.size() - 1)) {
    const int block = slots_[slot];
    if (block == kNone || at(block).name == name) return block;
  }
}

void PrefixCache::grow() {
  const std::vector<int> before = std::move(slots_);
  slots_.assign(before.empty() ? kFirstCacheSlots : 2 * before.size(), kNone);
  for (const int block : before) {
    if (block == kNone) continue;
    std::size_t slot = slot_of(at(block).name);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = block;
  }
}

int PrefixCache::add(BlockHash name, int parent, double tokens) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  int block = kNone;
  if (unused_.empty()) {
    block = static_cast<int>(blocks_.size());
    blocks_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
  }
  at(block) = {name, parent, 1, kNone, kNone, static_cast<float>(tokens)};
  std::size_t slot = slot_of(name);
  while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = block;
  ++count_;
  held_tokens_ += at(block).tokens;
  note(name, true);
  return block;
}

void PrefixCache::erase(BlockHash name) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t hole = slot_of(name);
  while (at(slots_[hole]).name != name) hole = (hole + 1) & mask;
  // Those behind it move up where their own slot does not lie between the hole and them.
  for (std::size_t next = (hole + 1) & mask; slots_[next] != kNone; next = (next + 1) & mask) {
    const std::size_t own = slot_of(at(slots_[next]).name);
    if (((next - own) & mask) < ((next - hole) & mask)) continue;
    slots_[hole] = slots_[next];
    hole = next;
  }
  slots_[hole] = kNone;
  --count_;
}

void PrefixCache::unlink(int block) {
  const Block& one = at(block);
  (one.before == kNone ? oldest_ : at(one.before).after) = one.after;
  (one.after == kNone ? newest_ : at(one.after).before) = one.before;
  idle_tokens_ -= one.tokens;
}

void PrefixCache::link_newest(int block) {
  Block& one = at(block);
  one.before = newest_;
  one.after = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).after) = block;
  newest_ = block;
  idle_tokens_ += one.tokens;
}

void PrefixCache::share(int block) {
  if (at(block).users++ == 0) {
    unlink(block);
  } else {
    shared_tokens_ += at(block).tokens;
  }
}

void PrefixCache::share_chain(int last) {
  for (int block = last; block != kNone; block = at(block).parent) share(block);
}

void PrefixCache::release_chain(int last) {
  for (int block = last; block != kNone; block = at(block).parent) {
    if (--at(block).users == 0) {
      link_newest(block);
    } else {
      shared_tokens_ -= at(block).tokens;
    }
  }
}

double PrefixCache::used_tokens(int last) const noexcept {
  double tokens = 0;
  for (int block = last; block != kNone; block = at(block).parent) {
    if (at(block).users > 0) tokens += at(block).tokens;
  }
  return tokens;
}

void PrefixCache::forget_oldest() {
  const int block = oldest_;
  unlink(block);
  erase(at(block).name);
  held_tokens_ -= at(block).tokens;
  note(at(block).name, false);
  unused_.push_back(block);
}

}  // namespace scalemodel
