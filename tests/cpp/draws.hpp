// How many random cases a long law draws.
#pragma once

namespace scalemodel::testing {

/// An eighth of `count` under the address sanitizer, where each case takes many times as long.
constexpr int draws(int count) {
#ifdef __SANITIZE_ADDRESS__
  return count / 8;
#else
  return count;
#endif
}

}  // namespace scalemodel::testing
