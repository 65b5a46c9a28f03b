#include "scalemodel/base/memo.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <map>

using namespace scalemodel;

TEST_CASE("a memo makes each value once, whatever is asked in between") {
  Memo<double, 3> memo;
  std::map<std::array<std::uint64_t, 3>, double> made;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    // Few different keys, many of which fall on the same slots.
    const auto key = key_of<3>(0.5 * static_cast<double>(i * i % 4099), i % 3, std::uint64_t{0});
    bool makes = false;
    const double value = memo.of(key, [&] {
      makes = true;
      return static_cast<double>(i);
    });
    CHECK(makes == !made.contains(key));
    CHECK(made.try_emplace(key, value).first->second == value);
  }
  CHECK(made.size() > 1000);
}

TEST_CASE("a memo's value may ask for others of it") {
  Memo<double, 1> memo;
  const auto sum_to = [&](const auto& self, int n) -> double {
    return memo.of(key_of<1>(n), [&] { return n == 0 ? 0 : n + self(self, n - 1); });
  };
  CHECK(sum_to(sum_to, 500) == 500 * 501 / 2);
  CHECK(memo.of(key_of<1>(100), [] { return -1.0; }) == 100 * 101 / 2);
}

TEST_CASE("a memo that was cleared makes its values anew") {
  Memo<double, 1> memo;
  for (const double offset : {0.0, 1e6}) {
    for (int n = 0; n < 300; ++n) {
      CHECK(memo.of(key_of<1>(n), [&] { return offset + n; }) == offset + n);
      CHECK(memo.of(key_of<1>(n), [] { return -1.0; }) == offset + n);
    }
    memo.clear();
  }
}
