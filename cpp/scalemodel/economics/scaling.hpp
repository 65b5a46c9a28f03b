// What a job gains from more accelerators: efficiencies and returns, from throughput and counts.
#pragma once

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Efficiency of scaling: throughput of an accelerator over that at the reference size.
///
///     E = (w/n) / (w0/n0)
///
/// With the tokens per accelerator fixed this is the efficiency of weak scaling; with the global
/// batch B fixed w = B/T, and it is n0 T0 / (n T), that of strong scaling.
/// Preconditions: positive counts and reference throughput.
constexpr double scaling_efficiency(double tokens_per_s, double accelerators,
                                    double reference_tokens_per_s, double reference_accelerators) {
  return (tokens_per_s / accelerators) / (reference_tokens_per_s / reference_accelerators);
}

/// Throughput that each added accelerator brings, over what one brought before:
///
///     R = [(w - w0)/(n - n0)] / (w0/n0)
///
/// One is linear scaling, zero none at all; below zero the larger job is slower.
/// Preconditions: n differs from n0, positive reference throughput.
constexpr double marginal_return(double tokens_per_s, double accelerators,
                                 double previous_tokens_per_s, double previous_accelerators) {
  return ((tokens_per_s - previous_tokens_per_s) / (accelerators - previous_accelerators)) /
         (previous_tokens_per_s / previous_accelerators);
}

/// Tokens per joule of the accelerators alone, as meters on the boards count; hosts, network and
/// facility come on top. The tokens per second and watt of Fernandez et al., arXiv 2411.13055.
constexpr double accelerator_tokens_per_joule(double tokens_per_s, double accelerators,
                                              Watts power) {
  return tokens_per_s / (accelerators * power.base());
}

/// Utilisation as much of the literature counts it: 12 L h s flop of attention per token, though
/// half of them lie above the diagonal. `attention` and `products`: causal flop of a forward pass
/// and those of its GEMMs, of which `passes` have the latter (2 where base weights are
/// frozen, else 3; attention always 3).
constexpr double full_attention_mfu(double mfu_fraction, Flop products, Flop attention,
                                    double passes) {
  const Flop causal = passes * products + 3 * attention;
  return mfu_fraction * ((causal + 3 * attention) / causal);
}

}  // namespace scalemodel
