// The steady state of an instance where requests arrive at random.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "scalemodel/serving/fixed_point.hpp"
#include "scalemodel/serving/states_at_rates.hpp"

namespace scalemodel {
namespace {

using detail::RateQuestion, detail::TimesAtRate;

constexpr std::size_t kAtOnce = 8;

#ifdef SCALEMODEL_LANES
bool has_wide_registers() noexcept { return __builtin_cpu_supports("avx2") > 0; }
#else
bool has_wide_registers() noexcept { return false; }
#endif

/// Of as many rates as are solved at once, as many states.
SCALEMODEL_WIDE
void times_at_rates([[maybe_unused]] const RateQuestion& question,
                    [[maybe_unused]] std::span<const double, kAtOnce> rates,
                    [[maybe_unused]] double output,
                    [[maybe_unused]] std::span<TimesAtRate, kAtOnce> found) noexcept {
#ifdef SCALEMODEL_LANES
  using All = Lanes<kAtOnce>;
  const HertzOf<All> side_by_side{by_place<All>([&](std::size_t i) { return rates[i]; })};
  const auto all = detail::times_at_rate<All>(question, side_by_side, output);
  for (std::size_t i = 0; i < kAtOnce; ++i) found[i] = all.at(i);
#endif
}

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
  const bool wide = most_at_once >= kAtOnce && has_wide_registers();
  std::array<std::size_t, kAtOnce> places{};
  std::array<double, kAtOnce> together{};
  std::array<TimesAtRate, kAtOnce> found;
  std::size_t size = 0;
  const auto solve = [&] {
    for (std::size_t i = size; i < kAtOnce; ++i) together[i] = together[size - 1];
    times_at_rates(question, together, mix_.output, found);
    for (std::size_t i = 0; i < size; ++i) states[places[i]] = state_of(together[i], found[i]);
    size = 0;
  };
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (!wide || !is_open(rates[i])) {
      states[i] = at(rates[i]);
      continue;
    }
    together[size] = rates[i];
    places[size++] = i;
    if (size == kAtOnce) solve();
  }
  if (size > 0) solve();
}

SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double requests_per_s) noexcept {
  if (mix.adaptive_drafts) return adaptive_state_at(times, capacity, mix, requests_per_s);
  return StatesAtRates(times, capacity, mix).at(requests_per_s);
}

}  // namespace scalemodel
