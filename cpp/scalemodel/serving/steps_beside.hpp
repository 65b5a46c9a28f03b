// Steps of a deployment beside running sequences, of one number of them or of several side by side.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/step_totals.hpp"

namespace scalemodel {
namespace detail {

/// Mean of Poisson's law whose mean is `prompts` where it is not zero.
inline double mean_of_any(double prompts) noexcept {
  constexpr int kRounds = 8;
  double mean = 2 * (prompts - 1);
  for (int round = 0; round < kRounds; ++round) mean = prompts * (1 - std::exp(-mean));
  return mean;
}

/// What a prompt beyond the first adds to a step in the mean, where steps with any hold `prompts`.
/// Data-parallel ranks take them in turns: only one that a rank has to start anew adds anything, so
/// that few prompts are counted one by one. Of many, and of one rank, the number varies about its
/// mean: what is added counts at two points, a deviation apart. Several steps side by side are of
/// one rank.
template <class Number, class Several>
SecondsOf<Number> added_by_each(const PromptStepsOf<Number>& steps, int ranks, Number prompts,
                                const Several& several) noexcept {
  constexpr double kFewPrompts = 4;
  if constexpr (std::is_same_v<Number, double>) {
    if (ranks > 1 && prompts < kFewPrompts && steps.most > 2) {
      const double mean = mean_of_any(prompts), least = 1e-3;
      double share = mean * mean / 2, beyond = 0;
      Seconds added;
      for (double count = 2; share > least * beyond; ++count) {
        const double taken = std::min(count, steps.most);
        added += share * max(Seconds{}, several(taken) - steps.alone);
        beyond += share * (taken - 1);
        if (count >= steps.most) break;
        share *= mean / (count + 1);
      }
      if (beyond > 0) return added / beyond;
    }
  }
  const Number spread = sqrt(max(Number{0}, prompts - 1));
  const Number few = clamp(prompts - spread, min(Number{2}, steps.most), steps.most);
  const Number many = clamp(prompts + spread, few, steps.most);
  SecondsOf<Number> sum = several(few);
  const auto varies = many > few;
  if (any(varies)) sum = select(varies, 0.5 * (sum + several(many)), sum);
  return max(SecondsOf<Number>{}, sum - steps.alone) / (0.5 * (few + many) - 1);
}

}  // namespace detail

template <class Number>
SecondsOf<Number> StepsOfMix::decode_only(Number sequences) const noexcept {
  return outlined<Number>([&] {
    if constexpr (!std::is_same_v<Number, double>) {
      if (!is_plain()) {
        return by_place<Number>([&](std::size_t i) { return decode_only_beside(sequences[i]); });
      }
    }
    const StepWorkOf<Number> work = demand_.work_of(sequences);
    return times_.total_of(work, times_.decode_attention_of(work));
  });
}

/// Attention of the prompts of a step.
template <class Number>
SecondsOf<Number> StepsOfMix::prefill_of(const StepWorkOf<Number>& work) const noexcept {
  return outlined<Number>([this, work] {
    return by_place<Number>([&](std::size_t i) { return times_.prefill_attention(work.at(i)); });
  });
}

/// Of a step with prompts, next to the decode attention.
template <class Number>
SecondsOf<Number> StepsOfMix::with(const StepWorkOf<Number>& work,
                                   SecondsOf<Number> decode) const noexcept {
  return times_.total_of(work, prefill_of(work) + decode);
}

template <class Number>
PromptStepsOf<Number> StepsOfMix::beside_of(Number sequences, Number prompts) const noexcept {
  return outlined<Number>([&] {
    const Engine& engine = times_.engine();
    PromptStepsOf<Number> steps;
    if constexpr (!std::is_same_v<Number, double>) {
      if (!is_plain()) {
        for (std::size_t i = 0; i < Number::kSize; ++i) {
          steps.set(i, beside(sequences[i], prompts[i]));
        }
        return steps;
      }
    }
    steps.mixed = engine.mixed_batches;
    steps.chunked = engine.chunked_prefill;
    steps.most = demand_.max_prompts(engine, capacity_, sequences);
    const StepWorkOf<Number> running = demand_.work_of(sequences);
    SecondsOf<Number> decode = times_.decode_attention_of(running);
    steps.decode_only = times_.total_of(running, decode);
    if (demand_.prefilled) {
      // Sequences whose cache has come take part in the next step like any other.
      steps.mixed = true;
      steps.chunked = false;
      steps.alone = steps.last = steps.full = steps.decode_only;
      return steps;
    }
    const Number beside = engine.mixed_batches ? sequences : Number{0};
    decode = select(beside > 0, decode, Seconds{});
    const auto cut = steps.most < 1;
    if (all(cut)) {
      add_chunked(steps, beside, decode);
      return steps;
    }
    if (any(cut)) {
      PromptStepsOf<Number> chunked = steps;
      add_chunked(chunked, beside, decode);
      add_whole(steps, beside, prompts, decode);
      assign_where(cut, steps, chunked);
      return steps;
    }
    add_whole(steps, beside, prompts, decode);
    return steps;
  });
}

/// Prompts of which one fits into a step, or several.
template <class Number>
void StepsOfMix::add_whole(PromptStepsOf<Number>& steps, Number sequences, Number prompts,
                           SecondsOf<Number> decode) const noexcept {
  const int ranks = times_.layout().dp;
  steps.alone = times_.total_of(demand_.work_of(sequences, Number{1}), one_ + decode);
  steps.last = steps.full = steps.more = steps.alone;
  const auto single = steps.most <= 1;
  if (all(single)) return;
  const auto several = [&](Number count) {
    SecondsOf<Number> time{};
    const MaskOf<Number> row = (count >= steps.most) & steps.chunked;
    if (!all(row)) {
      const StepWorkOf<Number> work = demand_.work_of(sequences, count);
      const auto pair = count == 2;
      SecondsOf<Number> prefill = two_;
      if (!all(pair)) prefill = select(pair, prefill, prefill_of(work));
      time = times_.total_of(work, prefill + decode);
    }
    if (any(row)) time = select(row, row_step(sequences, steps.most, decode), time);
    return time;
  };
  steps.more = select(single, steps.more, detail::added_by_each(steps, ranks, prompts, several));
  steps.full = select(single, steps.full, steps.full + (steps.most - 1) * steps.more);
}

/// A full step in a row of chunked prompts: it ends `most` of them and begins as many, so that it
/// holds 1 + most chunks, which attend to what a chunk of any place does on average.
template <class Number>
SecondsOf<Number> StepsOfMix::row_step(Number sequences, Number most,
                                       SecondsOf<Number> decode) const noexcept {
  const Number chunks = 1 + most, tokens = most * demand_.uncached_prompt_tokens;
  const Number keys = demand_.input - 0.5 * demand_.uncached_prompt_tokens + tokens / (2 * chunks);
  return with(demand_.work_of(sequences, chunks, tokens, keys), decode);
}

/// A chunked prompt: full chunks, attending to half of it on average, and the rest.
template <class Number>
void StepsOfMix::add_chunked(PromptStepsOf<Number>& steps, Number sequences,
                             SecondsOf<Number> decode) const noexcept {
  const double uncached = demand_.uncached_prompt_tokens, input = demand_.input;
  const Number others = ceil(1 / steps.most - 1e-9) - 1;
  const Number chunk = steps.most * uncached, left = uncached - others * chunk;
  const Number keys = input - left - (others - 1) / 2 * chunk;
  steps.chunks = others + 1;
  const SecondsOf<Number> first = with(demand_.work_of(sequences, Number{1}, chunk, keys), decode);
  steps.full = row_step(sequences, steps.most, decode);
  steps.last = with(demand_.work_of(sequences, Number{1}, left, Number{input}), decode);
  steps.alone = others * first + steps.last;
  steps.more = steps.full / steps.most;
}

}  // namespace scalemodel
