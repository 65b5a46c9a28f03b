// Values of a pure function that were asked for before.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace scalemodel {

/// Values by `N` numbers, which are all that they depend on. Open addressing. Of one thread.
template <class Value, std::size_t N>
class Memo {
 public:
  using Key = std::array<std::uint64_t, N>;

  /// The value at `key`, from `make()` where it is asked for the first time.
  template <class Make>
  Value of(const Key& key, const Make& make) {
    const std::size_t known = slot_of(key);
    if (slots_[known].used) return slots_[known].value;
    const Value made = make();  // may ask for others, so that places change
    if (2 * ++used_ > slots_.size()) grow();
    slots_[slot_of(key)] = {key, made, true};
    return made;
  }

  /// Forgets all values and keeps the room for as many.
  void clear() noexcept {
    if (used_ > 0) slots_.assign(slots_.size(), Slot{});
    used_ = 0;
  }

 private:
  struct Slot {
    Key key{};
    Value value{};
    bool used = false;
  };

  /// Each part by a multiplier of its own: a processor works on all of them at once.
  static std::size_t hash(const Key& key) noexcept {
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
    std::uint64_t mixed = 0, multiplier = kGolden;
    for (const std::uint64_t part : key) {
      mixed += (part ^ part >> 32) * multiplier;
      multiplier *= kGolden;
    }
    mixed = (mixed ^ mixed >> 32) * kGolden;
    return static_cast<std::size_t>(mixed >> 32);
  }
  /// Without the call that a comparison of arrays is to most compilers.
  static bool same(const Key& a, const Key& b) noexcept {
    std::uint64_t differs = 0;
    for (std::size_t part = 0; part < N; ++part) differs |= a[part] ^ b[part];
    return differs == 0;
  }
  /// Where `key` is, or the free slot for it.
  std::size_t slot_of(const Key& key) const noexcept {
    const std::size_t last = slots_.size() - 1;
    std::size_t slot = hash(key) & last;
    while (slots_[slot].used && !same(slots_[slot].key, key)) slot = (slot + 1) & last;
    return slot;
  }
  void grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.used) slots_[slot_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t used_ = 0;
};

/// A part of a key: equal numbers are equal parts.
inline std::uint64_t key_part(double number) noexcept {
  return std::bit_cast<std::uint64_t>(number);
}
inline std::uint64_t key_part(std::integral auto number) noexcept {
  return static_cast<std::uint64_t>(number);
}
/// An object that stays where it is as long as the values are wanted.
inline std::uint64_t key_part(const void* object) noexcept {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(object));
}

/// A key of the parts that are given, zeros behind them.
template <std::size_t N, class... Parts>
std::array<std::uint64_t, N> key_of(const Parts&... parts) noexcept {
  static_assert(sizeof...(Parts) <= N);
  return {key_part(parts)...};
}

}  // namespace scalemodel
