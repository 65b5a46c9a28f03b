// How prompts enter the steps of an instance, and how long they wait for it.
#pragma once

#include <algorithm>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// Beyond this share of its time spent on prompts an instance is treated as if it were at it.
inline constexpr double kMaxLoad = 0.98;

/// Lengths of prefill steps beside a number of running sequences.
struct PromptSteps {
  Seconds decode_only;  ///< a step without a prompt
  Seconds alone;        ///< all steps of one prompt with no other one about
  Seconds last;         ///< the last of them
  Seconds more;         ///< what every further prompt adds
  Seconds full;         ///< a step with as many prompts as it takes
  double most = 1;      ///< those prompts; below 1: one is computed in several chunks
  double chunks = 1;    ///< steps of one prompt with no other one about
  bool chunked = true;  ///< chunked prefill: a prompt that does not fit whole is cut
  bool mixed = true;    ///< mixed batches: sequences decode in a step with prompts too

  /// Steps and time of one prompt where a chunked one is followed by another with this probability,
  /// which fills up its last step.
  double chunks_of(double crowded) const noexcept {
    return most > 1 ? 1 : (1 - crowded) * chunks + crowded / most;
  }
  Seconds time_of(double crowded) const noexcept {
    return most > 1 ? alone : (1 - crowded) * alone + crowded / most * full;
  }
  /// Time per step of the running sequences while `prompts` enter during one, in `busy` steps.
  Seconds mean(double busy, double prompts) const noexcept {
    const Seconds first = most > 1 ? busy * (alone - more) + prompts * more
                                   : prompts * time_of(std::min(1.0, prompts / most));
    return (mixed ? 1 - busy : 1.0) * decode_only + first;
  }
};

/// Steps of an instance for requests of one mix: what does not depend on the running sequences is
/// computed once. It refers to its arguments.
class StepsOfMix {
 public:
  StepsOfMix(const StepTimes& times, const CacheCapacity& capacity, const Demand& demand) noexcept;

  /// Beside `sequences`, exactly at one prompt and at about `prompts` of them.
  PromptSteps beside(double sequences, double prompts) const noexcept;
  /// A step without a prompt.
  Seconds decode_only(double sequences) const noexcept;
  const StepTimes& times() const noexcept { return times_; }
  const CacheCapacity& capacity() const noexcept { return capacity_; }
  const Demand& demand() const noexcept { return demand_; }

 private:
  PromptSteps chunked(PromptSteps steps, double sequences, Seconds decode) const noexcept;
  Seconds row_step(double sequences, double most, Seconds decode) const noexcept;
  Seconds with(const StepWork& work, Seconds decode) const noexcept;

  const StepTimes& times_;
  const CacheCapacity& capacity_;
  const Demand& demand_;
  Seconds one_, two_;  ///< prefill attention of one and of two whole prompts
};

/// Steps one after another while prompts arrive at random at some rate: whatever came during one
/// enters the next. In mixed batches, with K of them, Poisson of mean rate X,
///
///     X' = decode_only + (alone - more - decode_only) [K > 0] + more K;
///
/// without, steps of prompts follow on each other until no prompt arrived during one.
/// Prompts without room wait for the next step.
struct StepMoments {
  Seconds decode_interval;  ///< from one token of a running sequence to the next
  Seconds length_biased;    ///< mean step that an arrival finds under way: E[X^2]/E[X]
  Seconds each;     ///< that a further prompt takes, tokens of running sequences beside it deducted
  double busy = 0;  ///< share of steps with a prompt
  double load = 0;  ///< share of time that they take, where a prompt fills one or more
};
/// Found the sooner where `near` is about the share of steps with a prompt; 0: nothing is known.
StepMoments step_moments(const PromptSteps& steps, Hertz rate, double near = 0) noexcept;

/// Full steps of `most` prompts that pass before one's own where a geometric number of mean `ahead`
/// comes before it.
double full_steps_ahead(double ahead, double most) noexcept;

/// The wait of a prompt for its steps. It lets the step under way finish (half of it on average);
/// then full steps of those ahead pass. As many as arrive in a wait are ahead; with a geometric
/// number A of that mean, wait = length_biased/2 + full E[floor(A/most)]. This is exact where a
/// step takes one prompt (M/G/1 with vacations: Levy and Yechiali, Manag. Sci. 22 (1975)) and where
/// it takes all (gated service: Takagi, Queueing Analysis 1, 1991). Chunked prompts follow
/// each other in rows of full steps, so that the j-th ends with step ceil(j/most) of its row: those
/// ahead count as what is left of them, and the last step is full where another one arrived since.
struct PromptWait {
  Seconds wait;
  Seconds computed;       ///< from the start of its first step to its first token
  Seconds own;            ///< its last step, with those that share it
  Seconds behind;         ///< in which those came that still wait when its own step starts
  double full_steps = 0;  ///< that pass in the wait
};
PromptWait prompt_wait(const PromptSteps& steps, const StepMoments& moments, Hertz rate) noexcept;

/// Prompts that come while one is computed, and enter because of it.
double followers(const StepMoments& moments, Hertz rate) noexcept;

/// Time until a sequence has gained tokens in `count` steps, from the end of the step of its own
/// prompt on. That step was a long one, and more prompts than usual are waiting at its end: those
/// of a time E more than after a step like any other, and with g followers of each, rate E/(1 - g)
/// prompts more enter.
Seconds time_of_steps(const PromptSteps& steps, const StepMoments& moments, const PromptWait& wait,
                      Hertz rate, double count) noexcept;

}  // namespace scalemodel
