// Time of attention with one query per sequence, of one batch or of four side by side.
#pragma once

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/ops/attention_kernels.hpp"

namespace scalemodel {
namespace detail {

inline constexpr double kAttentionTile = 128;  // queries of a tile, cached tokens of a block

template <class Number>
constexpr Number cube(Number x) {
  return x * x * x;
}

/// Cube root of a number between 1 and 3: a parabola within 0.3 %, then two of Halley's steps, each
/// of which triples the digits.
template <class Number>
Number cube_root(Number x) {
  Number root = 0.6607 + (0.3827 - 0.0411 * x) * x;
  for (int step = 0; step < 2; ++step) {
    const Number cubed = cube(root);
    root *= (cubed + 2 * x) / (2 * cubed + x);
  }
  return root;
}

/// (a^3 + b^3)^(1/3): a maximum without a corner. The cube of the larger one over itself is one.
template <class Number>
SecondsOf<Number> cubic_maximum(SecondsOf<Number> a, SecondsOf<Number> b) {
  const SecondsOf<Number> top = max(a, b);
  const auto some = top > Seconds{};
  if (!any(some)) return SecondsOf<Number>{};
  const Number sum = 1 + cube(min(a, b) / top);
  if (all(sum == 1)) return top;
  return select(some, select(sum == 1, Number{1}, cube_root(sum)) * top, Seconds{});
}

/// Bandwidth gain of operands that a repeated call finds in the last-level cache, filled so far.
template <class Number>
Number residency(double gain, Number fill) {
  return 1 + (gain - 1) / (1 + cube(fill) * cube(fill));
}

/// A count of waves with its last, partial one rounded up by `share`.
template <class Number>
Number rounded(Number waves, double share) {
  if (share == 0) return waves;
  return (1 - share) * waves + share * ceil(waves - 1e-9);
}

}  // namespace detail

template <class Number>
SecondsOf<Number> DecodeCase::time(Number batch, double keys) const noexcept {
  if (window_ > 0) keys = min(window_, keys);
  const double blocks = ceil(keys / detail::kAttentionTile);
  const Number lanes = batch * lanes_;
  const Number splits = max(Number{1}, min(min(aimed_ / lanes, blocks), max_splits_));
  const Number tiles = lanes * splits, filled = tiles / units_;
  const Number waves = detail::rounded(max(Number{1}, filled), wave_rounding_);
  const BytesOf<Number> cached = batch * keys * cached_, touched = cached + batch * in_out_;
  BytesPerSecondOf<Number> rate = rate_;
  if (resident_ > Bytes{}) {
    rate = detail::residency<Number>(resident_gain_, touched / resident_) * rate;
  }
  const auto idle = filled < 1;
  if (any(idle)) rate = select(idle, pow(filled, Number{occupancy_exponent_}) * rate, rate);
  SecondsOf<Number> fixed = fixed_ + waves * wave_;
  const auto split = splits > 1;
  if (any(split)) fixed += select(split, log2(splits), Number{0}) * split_;
  return fixed + detail::cubic_maximum<Number>(waves * (blocks / splits) * block_, touched / rate) +
         (batch * partials_ + converted_ * cached) / bandwidth_;
}

}  // namespace scalemodel
