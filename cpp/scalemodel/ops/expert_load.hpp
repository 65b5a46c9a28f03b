// How many rows the busiest rank of an expert-parallel group receives from a router.
#pragma once

#include <map>
#include <vector>

namespace scalemodel {

/// One call of a mixture-of-experts layer, as its router sees it.
struct ExpertRouting {
  double tokens = 0;  ///< entering the layer over the whole expert-parallel group
  int experts = 1;    ///< routed experts of the layer
  int topk = 1;       ///< experts each token chooses
  int ranks = 1;      ///< expert-parallel ranks; experts/ranks contiguous experts on each
  double skew = 0;    ///< exponent of the power law of expert popularity; 0: balanced

  auto operator<=>(const ExpertRouting&) const = default;
};

/// What the busiest rank receives.
struct ExpertLoad {
  double pairs = 0;    ///< (token, expert) pairs: rows of its grouped GEMMs
  double active = 0;   ///< experts with at least one row
  double touched = 0;  ///< distinct tokens

  bool operator==(const ExpertLoad&) const = default;
};

/// Balanced: with stride = ceil(experts/topk), token i chooses experts (i + j stride) mod experts,
/// tokens being spread over the stride where there are fewer of them.
///
/// Power law with exponent a: popularities are drawn from a density proportional to x^-a on
/// [1, .8 tokens] (on [.01, 2] when there are fewer pairs than experts), scaled to tokens topk
/// pairs, rounded and capped at one row per token and expert; what is then in excess or missing is
/// taken or given one by one, rank after rank, from the fullest or to the emptiest expert. Tokens
/// take the experts in order of popularity, column by column of the (tokens, topk) choice. The load
/// is the mean over kDraws draws of a fixed generator, so that it is the same on every machine.
///
/// This is how the public kernel benchmarks that the constants are fitted to route their tokens
/// (NVIDIA aiconfigurator, collector/helper.py).
ExpertLoad expert_load(const ExpertRouting& routing);

/// Draws behind a power-law load. Means over 16 differ from those over 64 by 2 % on average.
inline constexpr int kDraws = 16;

/// Loads already computed: a table of measurements repeats few routings many times.
class ExpertLoads {
 public:
  const ExpertLoad& of(const ExpertRouting& routing);

 private:
  std::map<ExpertRouting, ExpertLoad> known_;
};

}  // namespace scalemodel
