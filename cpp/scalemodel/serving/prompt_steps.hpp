// How prompts enter the steps of an instance, and how long they wait for it.
#pragma once

#include <tuple>
#include <type_traits>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// Beyond this share of its time spent on prompts an instance is treated as if it were at it.
inline constexpr double kMaxLoad = 0.98;

/// Makes every number of a record what it is of another, place by place where `yes`.
template <class Record>
void assign_where(MaskOf<typename Record::Number> yes, Record& to, const Record& from) noexcept {
  const auto assign = [&](auto... members) {
    ((to.*members = select(yes, from.*members, to.*members)), ...);
  };
  std::apply(assign, Record::members());
}

/// Lengths of prefill steps beside a number of running sequences, or beside several such numbers.
template <class Of>
struct PromptStepsOf {
  using Number = Of;
  SecondsOf<Number> decode_only;  ///< a step without a prompt
  SecondsOf<Number> alone;        ///< all steps of one prompt with no other one about
  SecondsOf<Number> last;         ///< the last of them
  SecondsOf<Number> more;         ///< what every further prompt adds
  SecondsOf<Number> full;         ///< a step with as many prompts as it takes
  Number most = 1;                ///< those prompts; below 1: one is computed in several chunks
  Number chunks = 1;              ///< steps of one prompt with no other one about
  bool chunked = true;            ///< chunked prefill: a prompt that does not fit whole is cut
  bool mixed = true;              ///< mixed batches: sequences decode in a step with prompts too

  static constexpr auto members() {
    return std::tuple{&PromptStepsOf::decode_only, &PromptStepsOf::alone, &PromptStepsOf::last,
                      &PromptStepsOf::more,        &PromptStepsOf::full,  &PromptStepsOf::most,
                      &PromptStepsOf::chunks};
  }

  /// Of every number what `one` is.
  static PromptStepsOf all_of(const PromptStepsOf<double>& one) noexcept {
    return {one.decode_only, one.alone,  one.last,    one.more, one.full,
            one.most,        one.chunks, one.chunked, one.mixed};
  }
  /// Makes those of one place what `one` is.
  void set(std::size_t place, const PromptStepsOf<double>& one) noexcept {
    const auto put = [&](auto& of_all, auto value) { of_all = replaced(of_all, place, value); };
    put(decode_only, one.decode_only);
    put(alone, one.alone);
    put(last, one.last);
    put(more, one.more);
    put(full, one.full);
    put(most, one.most);
    put(chunks, one.chunks);
    chunked = one.chunked;
    mixed = one.mixed;
  }

  /// Steps and time of one prompt where a chunked one is followed by another with this probability,
  /// which fills up its last step.
  Number chunks_of(Number crowded) const noexcept {
    return select(most > 1, Number{1}, (1 - crowded) * chunks + crowded / most);
  }
  SecondsOf<Number> time_of(Number crowded) const noexcept {
    return select(most > 1, alone, (1 - crowded) * alone + crowded / most * full);
  }
  /// Time per step of the running sequences while `prompts` enter during one, in `busy` steps.
  SecondsOf<Number> mean(Number busy, Number prompts) const noexcept {
    const SecondsOf<Number> first = select(most > 1, busy * (alone - more) + prompts * more,
                                           prompts * time_of(min(Number{1}, prompts / most)));
    return (mixed ? 1 - busy : Number{1}) * decode_only + first;
  }
};
using PromptSteps = PromptStepsOf<double>;

/// Steps of an instance for requests of one mix: what does not depend on the running sequences is
/// computed once. It refers to its arguments.
class StepsOfMix {
 public:
  StepsOfMix(const StepTimes& times, const CacheCapacity& capacity, const Demand& demand) noexcept;

  /// Beside `sequences`, exactly at one prompt and at about `prompts` of them.
  PromptSteps beside(double sequences, double prompts) const noexcept;
  /// The same, and a step without a prompt, beside one number of sequences or several such numbers
  /// side by side: see steps_beside.hpp.
  template <class Number>
  PromptStepsOf<Number> beside_of(Number sequences, Number prompts) const noexcept;
  template <class Number>
  SecondsOf<Number> decode_only(Number sequences) const noexcept;
  const StepTimes& times() const noexcept { return times_; }
  const CacheCapacity& capacity() const noexcept { return capacity_; }
  const Demand& demand() const noexcept { return demand_; }

 private:
  template <class Number>
  void add_whole(PromptStepsOf<Number>& steps, Number sequences, Number prompts,
                 SecondsOf<Number> decode) const noexcept;
  template <class Number>
  void add_chunked(PromptStepsOf<Number>& steps, Number sequences,
                   SecondsOf<Number> decode) const noexcept;
  template <class Number>
  SecondsOf<Number> row_step(Number sequences, Number most,
                             SecondsOf<Number> decode) const noexcept;
  template <class Number>
  SecondsOf<Number> prefill_of(const StepWorkOf<Number>& work) const noexcept;
  /// Whether several steps are computed side by side.
  bool is_plain() const noexcept {
    return times_.is_plain() && demand_.draft_tokens <= 0 && demand_.images_per_token <= 0;
  }
  Seconds decode_only_beside(double sequences) const noexcept;
  template <class Number>
  SecondsOf<Number> with(const StepWorkOf<Number>& work, SecondsOf<Number> decode) const noexcept;

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
template <class Of>
struct StepMomentsOf {
  using Number = Of;
  SecondsOf<Number> decode_interval;  ///< from one token of a running sequence to the next
  SecondsOf<Number> length_biased;    ///< mean step that an arrival finds under way: E[X^2]/E[X]
  SecondsOf<Number> each;  ///< that a further prompt takes, tokens of running sequences beside it
                           ///< deducted
  Number busy = 0;         ///< share of steps with a prompt
  Number load = 0;         ///< share of time that they take, where a prompt fills one or more

  static constexpr auto members() {
    return std::tuple{&StepMomentsOf::decode_interval, &StepMomentsOf::length_biased,
                      &StepMomentsOf::each, &StepMomentsOf::busy, &StepMomentsOf::load};
  }
};
using StepMoments = StepMomentsOf<double>;
/// Found the sooner where `near` is about the share of steps with a prompt; 0: nothing is known.
template <class Number>
StepMomentsOf<Number> step_moments(const PromptStepsOf<Number>& steps, HertzOf<Number> rate,
                                   std::type_identity_t<Number> near = 0) noexcept;

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
template <class Of>
struct PromptWaitOf {
  using Number = Of;
  SecondsOf<Number> wait;
  SecondsOf<Number> computed;  ///< from the start of its first step to its first token
  SecondsOf<Number> own;       ///< its last step, with those that share it
  SecondsOf<Number> behind;    ///< in which those came that still wait when its own step starts
  Number full_steps = 0;       ///< that pass in the wait

  static constexpr auto members() {
    return std::tuple{&PromptWaitOf::wait, &PromptWaitOf::computed, &PromptWaitOf::own,
                      &PromptWaitOf::behind, &PromptWaitOf::full_steps};
  }
};
using PromptWait = PromptWaitOf<double>;
template <class Number>
PromptWaitOf<Number> prompt_wait(const PromptStepsOf<Number>& steps,
                                 const StepMomentsOf<Number>& moments,
                                 HertzOf<Number> rate) noexcept;

/// Prompts that come while one is computed, and enter because of it.
template <class Number>
Number followers(const StepMomentsOf<Number>& moments, HertzOf<Number> rate) noexcept;

/// Time until a sequence has gained tokens in `count` steps, from the end of the step of its own
/// prompt on. That step was a long one, and more prompts than usual are waiting at its end: those
/// of a time E more than after a step like any other, and with g followers of each, rate E/(1 - g)
/// prompts more enter.
template <class Number>
SecondsOf<Number> time_of_steps(const PromptStepsOf<Number>& steps,
                                const StepMomentsOf<Number>& moments,
                                const PromptWaitOf<Number>& wait, HertzOf<Number> rate,
                                double count) noexcept;

}  // namespace scalemodel
