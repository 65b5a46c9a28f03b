// The whole time of a step, of one or of several side by side.
#pragma once

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/ops/decode_case.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// As of one count, place by place.
template <std::size_t N>
StepTimes::Positions<N> StepTimes::position(Lanes<N> count) noexcept {
  constexpr double kFirst = 2, kHalfWay = 1.5, kLast = point(kPoints - 2);
  const Lanes<N> inside = clamp(count, kFirst, kLast), rest = detail::fraction(inside);
  const auto upper = rest >= kHalfWay;
  Lanes<N> index = 2.0 * detail::exponent(inside) - 1.0 + select(upper, 1.0, 0.0);
  Lanes<N> share = 2.0 * rest - select(upper, 3.0, 2.0);
  const auto first = !(count > kFirst), last = count >= kLast;  // first: what is no number too
  index = select(first, 0.0, index);
  share = select(first, max(0.0, count - 1.0), share);
  if (any(last)) {
    index = select(last, static_cast<double>(kPoints - 2), index);
    share = select(last, count / kLast - 1.0, share);
  }
  Positions<N> found{{}, share};
  for (std::size_t i = 0; i < N; ++i) {
    found.index[i] = static_cast<std::size_t>(static_cast<int>(index[i]));
  }
  return found;
}

template <std::size_t N>
SecondsOf<Lanes<N>> StepTimes::at(const std::array<Seconds, kPoints>& grid,
                                  const Positions<N>& p) noexcept {
  const auto low = by_place<Lanes<N>>([&](std::size_t i) { return grid[p.index[i]]; });
  const auto high = by_place<Lanes<N>>([&](std::size_t i) { return grid[p.index[i] + 1]; });
  return low + p.share * (high - low);
}

template <class Number>
SecondsOf<Number> StepTimes::decode(const StepWorkOf<Number>& work) const noexcept {
  Number batch = work.sequences;  // steps side by side are of one rank
  if constexpr (std::is_same_v<Number, double>) batch /= layout_.dp;
  batch = max(Number{1}, batch);
  SecondsOf<Number> time{};
  for (const AttentionKind& kind : attention_) {
    const double keys = std::max(1.0, keys_of(kind, work.context) / layout_.cp);
    const SecondsOf<Number> layer =
        work.query_tokens == 1 ? kind.decode.time(batch, keys)
                               : decode_case(kind.call, work.query_tokens).time(batch, keys);
    time += kind.layers * layer;
  }
  if constexpr (std::is_same_v<Number, double>) {
    if (!scans_.empty()) time += decode_scans(work);
  }
  return time / engine_.kernel_efficiency;
}

template <class Number>
Number StepTimes::tokens(const StepWorkOf<Number>& stage) const noexcept {
  const Number decoded = stage.sequences * stage.query_tokens;
  if constexpr (std::is_same_v<Number, double>) return decoded + stage.prompt_tokens / layout_.cp;
  return decoded + stage.prompt_tokens;
}

/// What is done for every sequence needs the tokens of this step and the next one waits for it. So
/// does a step for its prompts, which the engine takes in, and whose adapters it brings in, before
/// it starts. Ranks of data-parallel attention take in prompts of their own. Schedulers that do not
/// know how many drafts will be accepted wait for the step.
template <class Number>
SecondsOf<Number> StepTimes::host(const StepWorkOf<Number>& whole,
                                  SecondsOf<Number> device) const noexcept {
  const bool hides = whole.draft_tokens > 0 ? host_hides_drafting_ : host_hides_;
  SecondsOf<Number> fixed = host_fixed_;
  if (hides) fixed = max(SecondsOf<Number>{}, host_fixed_ - device);
  if constexpr (std::is_same_v<Number, double>) {
    if (engine_.guided.any()) fixed = host_with_masks(whole, device, hides);
    fixed += host_between(whole);
  }
  return fixed + (whole.sequences + whole.prompts) * host_each_ + whole.prompts * prompt_host_;
}

template <class Number>
SecondsOf<Number> StepTimes::decode_attention_of(const StepWorkOf<Number>& whole) const noexcept {
  const auto some = whole.sequences > 0;
  if (!any(some)) return SecondsOf<Number>{};
  if constexpr (std::is_same_v<Number, double>) {
    const auto time = [&] {
      return layout_.batches() == 1 ? decode(whole) : layout_.batches() * decode(of_stage(whole));
    };
    if (alike_ == nullptr) return time();
    return alike_->decode.of(key_of<3>(whole.sequences, whole.context, whole.query_tokens), time);
  } else {
    return select(some, decode(whole), Seconds{});
  }
}

template <class Number>
SecondsOf<Number> StepTimes::total_of(const StepWorkOf<Number>& whole,
                                      SecondsOf<Number> attention) const noexcept {
  const auto total = [this, attention](const StepWorkOf<Number>& work) {
    const SecondsOf<Number> on_device = device(work, attention);
    return select(on_device > Seconds{}, on_device + host(work, on_device), Seconds{});
  };
  if constexpr (std::is_same_v<Number, double>) {
    return total(whole);
  } else {
    // What a plain step depends on, handed over by itself: most of a record is never looked at.
    return outlined<Number>([&total, sequences = whole.sequences, query = whole.query_tokens,
                             drafts = whole.draft_tokens, prompts = whole.prompts,
                             tokens = whole.prompt_tokens] {
      StepWorkOf<Number> work;
      work.sequences = sequences;
      work.query_tokens = query;
      work.draft_tokens = drafts;
      work.prompts = prompts;
      work.prompt_tokens = tokens;
      return total(work);
    });
  }
}

/// A step without the CPU's part; nothing where it has no tokens.
template <class Number>
SecondsOf<Number> StepTimes::device(const StepWorkOf<Number>& whole,
                                    SecondsOf<Number> attention) const noexcept {
  if constexpr (std::is_same_v<Number, double>) {
    if (layout_.batches() != 1) return device_by_stage(of_stage(whole), attention);
  }
  return device_by_stage(whole, attention);
}

/// The same by what one stage does of it, and by the attention of all stages.
template <class Number>
SecondsOf<Number> StepTimes::device_by_stage(const StepWorkOf<Number>& work,
                                             SecondsOf<Number> attention) const noexcept {
  const Number count = tokens(work);
  const auto some = count > 0;
  if (!any(some)) return SecondsOf<Number>{};
  const Number sampled = work.sequences * work.query_tokens + work.prompts;
  const auto head = position(sampled);
  SecondsOf<Number> stage = at(head_, head);
  if constexpr (!std::is_same_v<Number, double>) {
    stage += at(tokens_total_, position(count));
    return select(some, stage + attention, Seconds{});
  } else {
    const double by_rank = layout_.dp > 1 ? tokens_by_rank(work) : count;
    if (layout_.two_batch_overlap) {
      const Seconds whole_attention = attention;
      attention = Seconds{};
      stage += overlapped(by_rank, count, whole_attention / layout_.pp);
    } else if (layout_.has_expert_pool()) {
      const double parts = layout_.micro_batches;
      stage += through_pools(by_rank, count, attention / parts) / parts;
      attention = Seconds{};
    } else if (by_rank > count) {
      stage += at(own_total_, by_rank) + at(shared_total_, count);
    } else {
      stage += at(tokens_total_, sampled == count ? head : position(count));
    }
    if (work.draft_tokens > 0) stage += draft_time(work);
    if (layout_.cp > 1) stage += context_exchange(work);
    if (work.images > 0) stage += encoder(work);
    Seconds time = layout_.batches() * stage + attention;
    if (layout_.pp > 1) time += between_stages(by_rank);
    return time;
  }
}

}  // namespace scalemodel
