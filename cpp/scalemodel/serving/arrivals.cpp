// The steady state of an instance where requests arrive at random.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "scalemodel/serving/fixed_point.hpp"
#include "scalemodel/serving/states_at_rates.hpp"

// For processors whose registers hold all numbers, with all that it calls inside of it: a call
// would hand numbers over in other registers. Where every access is checked, for any processor: one
// function of them all then takes minutes to compile. So, too, where nothing is inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SCALEMODEL_LANES
#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
#define SCALEMODEL_TARGET(registers)
#else
#define SCALEMODEL_TARGET(registers) __attribute__((target(registers), flatten))
#endif
#endif

namespace scalemodel {
namespace {

using detail::RateQuestion, detail::TimesAtRate;

/// Of several rates at once, as many states.
using AtRates = void (*)(const RateQuestion& question, std::span<const double> rates, double output,
                         std::span<TimesAtRate> found) noexcept;

/// How many rates a processor solves at once, and with what; none where it has no such registers.
struct Width {
  std::size_t rates = 0;
  AtRates solve = nullptr;
};
constexpr std::size_t kMaxAtOnce = 8;

#ifdef SCALEMODEL_LANES
template <std::size_t N>
HertzOf<Lanes<N>> side_by_side(std::span<const double> rates) noexcept {
  return HertzOf<Lanes<N>>{by_place<Lanes<N>>([&](std::size_t i) { return rates[i]; })};
}

SCALEMODEL_TARGET("avx2")
void times_at_four(const RateQuestion& question, std::span<const double> rates, double output,
                   std::span<TimesAtRate> found) noexcept {
  const auto all = detail::times_at_rate<Lanes<4>>(question, side_by_side<4>(rates), output);
  for (std::size_t i = 0; i < 4; ++i) found[i] = all.at(i);
}

SCALEMODEL_TARGET("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
void times_at_eight(const RateQuestion& question, std::span<const double> rates, double output,
                    std::span<TimesAtRate> found) noexcept {
  const auto all = detail::times_at_rate<Lanes<8>>(question, side_by_side<8>(rates), output);
  for (std::size_t i = 0; i < 8; ++i) found[i] = all.at(i);
}

Width width(std::size_t most) noexcept {
  const bool eight = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (most >= 8 && eight) return {8, times_at_eight};
  if (most >= 4 && __builtin_cpu_supports("avx2")) return {4, times_at_four};
  return {};
}
#else
Width width(std::size_t /*most*/) noexcept { return {}; }
#endif

/// Of all depths the one with the least latency, else the one that finishes most. What an instance
/// can finish is what its best depth can.
SteadyState adaptive_state_at(const StepTimes& times, const CacheCapacity& capacity, RequestMix mix,
                              double requests_per_s) noexcept {
  const int deepest = mix.speculative_tokens;
  mix.adaptive_drafts = false;
  SteadyState best;
  double least = kInfinity;
  const auto latency = [&](const SteadyState& state) {
    return state.ttft + (mix.output - 1) * state.tpot;
  };
  for (int depth = 0; depth <= deepest; ++depth) {
    mix.speculative_tokens = depth;
    const SteadyState state = steady_state_at(times, capacity, mix, requests_per_s);
    least = std::min(least, state.utilisation);
    const bool better = state.saturated != best.saturated
                            ? best.saturated
                            : (state.saturated ? state.requests_per_s > best.requests_per_s
                                               : latency(state) < latency(best));
    if (depth == 0 || better) best = state;
  }
  best.utilisation = least;
  return best;
}

}  // namespace

StatesAtRates::StatesAtRates(const StepTimes& times, const CacheCapacity& capacity,
                             const RequestMix& mix) noexcept
    : times_(times),
      capacity_(capacity),
      mix_(mix),
      demand_(mix),
      steps_(times, capacity, demand_),
      most_(closed_loop_state(steps_, capacity.max_running_sequences)),
      idle_(steps_.beside(1, 1)) {}

/// More arrive than the instance can finish.
SteadyState StatesAtRates::saturated() const noexcept {
  SteadyState state = pace_of(steps_, mix_, most_);
  add_first_token(state, steps_, most_);
  state.saturated = true;
  state.ttft = Seconds{};
  return state;
}

/// Whether a rate has a fixed point of its own.
bool StatesAtRates::is_open(double requests_per_s) const noexcept {
  return !mix_.adaptive_drafts && most_.sequences > 0 && requests_per_s > 0 &&
         Hertz{requests_per_s} / most_.rate() < 1;
}

SteadyState StatesAtRates::state_of(double requests_per_s,
                                    const TimesAtRate& found) const noexcept {
  SteadyState state;
  state.concurrency = found.concurrency;
  state.requests_per_s = requests_per_s;
  state.step = found.step;
  state.tpot = found.tpot;
  state.ttft = found.ttft;
  state.prefill = found.prefill;
  state.utilisation = Hertz{requests_per_s} / most_.rate();
  state.prompt_fraction = found.prompt_fraction;
  state.saturated = found.saturated;
  state.draft_tokens = mix_.speculative_tokens;
  return state;
}

SteadyState StatesAtRates::at(double requests_per_s) const noexcept {
  if (mix_.adaptive_drafts) return adaptive_state_at(times_, capacity_, mix_, requests_per_s);
  if (most_.sequences <= 0 || requests_per_s <= 0) return {};
  if (!is_open(requests_per_s)) return saturated();
  const RateQuestion question{steps_, most_, idle_, capacity_.max_admitted};
  return state_of(requests_per_s,
                  detail::times_at_rate<double>(question, Hertz{requests_per_s}, mix_.output));
}

void StatesAtRates::at(std::span<const double> rates, std::span<SteadyState> states,
                       std::size_t most_at_once) const noexcept {
  const RateQuestion question{steps_, most_, idle_, capacity_.max_admitted};
  std::array<std::size_t, kMaxAtOnce> places{};
  std::array<double, kMaxAtOnce> together{};
  std::array<TimesAtRate, kMaxAtOnce> found;
  std::size_t size = 0;
  const Width at_once = width(most_at_once);
  const auto solve = [&] {
    for (std::size_t i = size; i < at_once.rates; ++i) together[i] = together[size - 1];
    at_once.solve(question, together, mix_.output, found);
    for (std::size_t i = 0; i < size; ++i) states[places[i]] = state_of(together[i], found[i]);
    size = 0;
  };
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (at_once.rates == 0 || !is_open(rates[i])) {
      states[i] = at(rates[i]);
      continue;
    }
    together[size] = rates[i];
    places[size++] = i;
    if (size == at_once.rates) solve();
  }
  if (size > 0) solve();
}

SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double requests_per_s) noexcept {
  if (mix.adaptive_drafts) return adaptive_state_at(times, capacity, mix, requests_per_s);
  return StatesAtRates(times, capacity, mix).at(requests_per_s);
}

}  // namespace scalemodel
