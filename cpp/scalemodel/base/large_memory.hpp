// Memory of many megabytes, whose first touch is what short work on it costs most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace scalemodel {

/// From here on memory comes from the system untouched and is worth asking for in large pages.
inline constexpr std::size_t kLargeMemory = std::size_t{8} << 20;

/// Asks the system for pages of 2 MiB in place of 4 KiB, one interruption in place of 512. Advice:
/// nothing depends on it but time, and a system without it goes on as before.
inline void advise_large_pages([[maybe_unused]] const void* memory,
                               [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  if (bytes < kLargeMemory) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);  // NOLINT(*-reinterpret-cast)
  const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = (begin + bytes) / kPage * kPage;
  if (first < last) {
    // NOLINTNEXTLINE(*-reinterpret-cast,performance-no-int-to-ptr)
    (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
#endif
}

/// `count` values that hold nothing yet, for those who write all of them; in large pages where that
/// is much.
template <class T>
std::unique_ptr<T[]> large_room(std::size_t count) {       // NOLINT(*-avoid-c-arrays)
  auto room = std::make_unique_for_overwrite<T[]>(count);  // NOLINT(*-avoid-c-arrays)
  advise_large_pages(room.get(), count * sizeof(T));
  return room;
}

/// Room for `count` values, in large pages where that is much.
template <class T>
void reserve_large(std::vector<T>& values, std::size_t count) {
  if (count <= values.capacity()) return;
  values.reserve(count);
  advise_large_pages(values.data(), values.capacity() * sizeof(T));
}

/// A vector of `count` values, new ones T{}; in large pages where that is much.
template <class T>
void resize_large(std::vector<T>& values, std::size_t count) {
  reserve_large(values, count);
  values.resize(count);
}

/// `count` values of T{}, in large pages where that is much.
template <class T>
std::vector<T> large_vector(std::size_t count) {
  std::vector<T> values;
  resize_large(values, count);
  return values;
}

}  // namespace scalemodel
