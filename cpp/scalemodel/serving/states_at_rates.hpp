// Steady states of an instance at many rates of arrival.
#pragma once

#include <cstddef>
#include <span>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/serving/closed_loop.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/steady_state.hpp"

namespace scalemodel {
namespace detail {

/// What arrivals at a rate, or at several rates side by side, make of a steady state.
template <class Of>
struct TimesAtRateOf {
  using Number = Of;
  Number concurrency = 0, prompt_fraction = 0;
  SecondsOf<Number> step, tpot, ttft, prefill;
  MaskOf<Number> saturated = false;  ///< every slot is occupied: first tokens wait without bound

  TimesAtRateOf<double> at(std::size_t place) const noexcept {
    return {at_place(concurrency, place), at_place(prompt_fraction, place),
            at_place(step, place),        at_place(tpot, place),
            at_place(ttft, place),        at_place(prefill, place),
            at_place(saturated, place)};
  }
};
using TimesAtRate = TimesAtRateOf<double>;

}  // namespace detail

/// What `steady_state_at` answers for one instance and mix at any rate: the demand of the mix, the
/// attention of its prompts and the most the instance can finish are computed once. It refers to
/// the times and the capacity.
class StatesAtRates {
 public:
  StatesAtRates(const StepTimes& times, const CacheCapacity& capacity,
                const RequestMix& mix) noexcept;
  StatesAtRates(const StatesAtRates&) = delete;  // its steps refer to its demand
  StatesAtRates& operator=(const StatesAtRates&) = delete;
  StatesAtRates(StatesAtRates&&) = delete;
  StatesAtRates& operator=(StatesAtRates&&) = delete;
  ~StatesAtRates() = default;

  SteadyState at(double requests_per_s) const noexcept;
  /// The same of many rates, as many states: eight at a time where the processor has AVX2 and
  /// `most_at_once` allows as many, else one by one. Within 1e-12 of what each is alone, in a third
  /// of the time.
  void at(std::span<const double> rates, std::span<SteadyState> states,
          std::size_t most_at_once = 8) const noexcept;

 private:
  SteadyState saturated() const noexcept;
  bool is_open(double requests_per_s) const noexcept;
  SteadyState state_of(double requests_per_s, const detail::TimesAtRate& found) const noexcept;

  const StepTimes& times_;
  const CacheCapacity& capacity_;
  RequestMix mix_;
  Demand demand_;
  StepsOfMix steps_;
  ClosedLoopState most_;
  PromptSteps idle_;  ///< of a request that is alone
};

}  // namespace scalemodel
