#include "scalemodel/fleet/prefix_index.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

constexpr std::size_t kFirstIndexSlots = 1024;

}  // namespace

PrefixIndex::PrefixIndex(std::size_t replicas)
    : words_((replicas + kBits - 1) / kBits),
      names_(kFirstIndexSlots),
      holders_(kFirstIndexSlots * words_),
      live_(words_) {}

std::size_t PrefixIndex::slot_of(BlockHash name) const noexcept {
  return static_cast<std::size_t>(SplitMix(name).next()) & (names_.size() - 1);
}

bool PrefixIndex::empty(std::size_t slot) const noexcept {
  const Word* bits = holders(slot);
  return std::all_of(bits, bits + words_, [](Word word) { return word == 0; });
}

/// The slot of a name, or the empty one where it would be.
std::size_t PrefixIndex::find(BlockHash name) const noexcept {
  std::size_t slot = slot_of(name);
  while (names_[slot] != name && !empty(slot)) slot = (slot + 1) & (names_.size() - 1);
  return slot;
}

void PrefixIndex::grow() {
  const std::vector<BlockHash> names = std::exchange(names_, {});
  const std::vector<Word> holders_before = std::exchange(holders_, {});
  names_.resize(2 * names.size());
  holders_.resize(2 * holders_before.size());
  for (std::size_t before = 0; before < names.size(); ++before) {
    const Word* bits = holders_before.data() + before * words_;
    if (std::all_of(bits, bits + words_, [](Word word) { return word == 0; })) continue;
    std::size_t slot = slot_of(names[before]);
    while (!empty(slot)) slot = (slot + 1) & (names_.size() - 1);
    names_[slot] = names[before];
    std::copy(bits, bits + words_, holders(slot));
  }
}

void PrefixIndex::add(BlockHash name, std::size_t replica) {
  if (2 * (count_ + 1) > names_.size()) grow();
  const std::size_t slot = find(name);
  if (empty(slot)) ++count_;
  names_[slot] = name;
  holders(slot)[replica / kBits] |= Word{1} << (replica % kBits);
}

void PrefixIndex::remove(BlockHash name, std::size_t replica) {
  const std::size_t slot = find(name);
  if (empty(slot)) return;
  holders(slot)[replica / kBits] &= ~(Word{1} << (replica % kBits));
  if (empty(slot)) erase(slot);
}

/// Names behind an emptied slot move up where their own does not lie between it and them.
void PrefixIndex::erase(std::size_t hole) {
  const std::size_t mask = names_.size() - 1;
  --count_;
  for (std::size_t next = (hole + 1) & mask; !empty(next); next = (next + 1) & mask) {
    const std::size_t own = slot_of(names_[next]);
    if (((next - own) & mask) < ((next - hole) & mask)) continue;
    names_[hole] = names_[next];
    std::copy(holders(next), holders(next) + words_, holders(hole));
    std::fill(holders(next), holders(next) + words_, Word{0});
    hole = next;
  }
}

void PrefixIndex::apply(std::size_t replica, std::span<const PrefixCache::Change> changes) {
  for (const PrefixCache::Change& change : changes) {
    if (change.held) {
      add(change.name, replica);
    } else {
      remove(change.name, replica);
    }
  }
}

void PrefixIndex::count_held(std::span<const BlockHash> names, std::span<std::int32_t> held) {
  std::ranges::fill(held, 0);
  std::ranges::fill(live_, ~Word{0});
  std::int32_t depth = 0;
  for (const BlockHash name : names) {
    const Word* bits = holders(find(name));
    Word any = 0;
    for (std::size_t word = 0; word < words_; ++word) {
      const Word ending = live_[word] & ~bits[word];
      if (depth > 0) {
        for (Word rest = ending; rest != 0; rest &= rest - 1) {
          const std::size_t replica =
              word * kBits + static_cast<std::size_t>(std::countr_zero(rest));
          held[replica] = depth;
        }
      }
      live_[word] &= bits[word];
      any |= live_[word];
    }
    if (any == 0) return;
    ++depth;
  }
  for (std::size_t word = 0; word < words_; ++word) {
    for (Word rest = live_[word]; rest != 0; rest &= rest - 1) {
      held[word * kBits + static_cast<std::size_t>(std::countr_zero(rest))] = depth;
    }
  }
}

}  // namespace scalemodel
