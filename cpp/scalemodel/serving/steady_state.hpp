// A serving instance in its steady state: concurrency, rates and waiting times in closed form.
#pragma once

#include <string_view>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/drafts.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// Requests as they come: means of their lengths, and what is known of them beforehand.
struct RequestMix {
  double input = 1;                ///< tokens of a prompt
  double output = 1;               ///< output tokens of a request
  double prefix_hit_fraction = 0;  ///< share of a prompt that the KV cache holds already
  int speculative_tokens = 0;      ///< draft tokens proposed per sequence and step
  double acceptance_fraction = 0;  ///< probability that a draft token is accepted
  bool prefilled =
      false;          ///< KV caches of prompts come from elsewhere: nothing of them is computed
  double images = 0;  ///< of a prompt, their tokens among its own
  int image_height = 0, image_width = 0;  ///< pixels; unused where the tower has a size of its own
  double source = 0;                      ///< tokens of what an encoder reads of a request
  double encoder_hit_fraction = 0;        ///< share of images whose encodings are held already
  double acceptance_decay = 1;            ///< of the acceptance with every token drafted before
  double acceptance_power = 0.5;  ///< of the candidates of a depth, none of which is accepted
  int draft_width = 1;            ///< candidates that go on at every depth; 1: a chain
  int draft_nodes = 0;            ///< candidates verified; 0: as many as go on
  bool adaptive_drafts = false;   ///< as deep as pays at the load, not at all where nothing does

  bool operator==(const RequestMix&) const = default;
};

template <>
struct RecordOf<RequestMix> {
  static constexpr std::string_view name = "RequestMix";
  using T = RequestMix;
  static constexpr FieldTable fields{
      field("input_tokens", &T::input, 1, 1e8, "tokens of a prompt"),
      field("output_tokens", &T::output, 1, 1e8, "output tokens of a request"),
      field("prefix_hit_fraction", &T::prefix_hit_fraction, 0, 0.999,
            "share of a prompt that the KV cache holds already"),
      field("speculative_tokens", &T::speculative_tokens, 0, 64,
            "draft tokens proposed per sequence and step"),
      field("acceptance_fraction", &T::acceptance_fraction, 0, 1,
            "probability that a draft token is accepted"),
      field("prefilled", &T::prefilled, "KV caches of prompts come from a prefill pool"),
      field("images", &T::images, 0, 1e6, "images of a prompt, their tokens among its own"),
      field("image_height", &T::image_height, 0, 1e6, "pixels of an image from top to bottom"),
      field("image_width", &T::image_width, 0, 1e6, "pixels of an image from side to side"),
      field("source_tokens", &T::source, 0, 1e7,
            "tokens of the source that an encoder reads of every request"),
      field("encoder_hit_fraction", &T::encoder_hit_fraction, 0, 1,
            "share of the images whose encodings the encoder cache holds already"),
      field("acceptance_decay", &T::acceptance_decay, 0, 1,
            "factor on the acceptance with every draft token before"),
      field("acceptance_power", &T::acceptance_power, 0, 8,
            "power of a number of candidates with which the chance falls that none is accepted"),
      field("draft_width", &T::draft_width, 1, kMaxDraftWidth,
            "candidates that go on at every depth of a tree of drafts; 1: a chain"),
      field("draft_nodes", &T::draft_nodes, 0, 4096,
            "candidates of a tree that are verified; 0: as many as go on"),
      field("adaptive_drafts", &T::adaptive_drafts,
            "drafts are as deep as pays at the load, at most speculative_tokens")};
};

/// Images that have to be encoded for every token of a prompt of `tokens` that is computed. They
/// lie anywhere in it, so that a cached prefix spares its share of them.
/// A source is encoded once, with the prompt of its request.
constexpr double images_per_token(const RequestMix& mix, double tokens) noexcept {
  const double items = mix.source > 0 ? 1 : mix.images;
  return items * (1 - mix.encoder_hit_fraction) / tokens;
}

/// Why a model serves no answers, and what would; empty for one that does.
std::string_view why_no_answers(const Model& model) noexcept;

/// Patches of an image of the requests, or tokens of their source; 0: an instance encodes none for
/// them. Throws MalformedQuestion for a model that generates nothing, for images or sources that it
/// cannot read, and for images that do not fit into a prompt.
double request_patches(const Model& model, const RequestMix& mix);

/// The tokens that are proposed for every sequence and step.
DraftTree draft_tree(const RequestMix& mix) noexcept;

/// Tokens a sequence gains per step: 1 + a + a^2 ... + a^k for a chain of k proposals, each
/// accepted with probability a if all before it were; of a tree see `expected_tokens`. Source:
/// Leviathan et al., arXiv 2211.17192, equation 1.
double tokens_per_step(const RequestMix& mix) noexcept;

/// The mix with the depth of its drafts that an adaptive engine chooses where `sequences` run: from
/// 0 to `speculative_tokens` the one with the least time per token of a step without prompts. A
/// draft of depth 0 computes nothing. Source of the rule: SmartSpec, arXiv 2406.14066, section 4
/// (goodput = accepted tokens over the time of a step).
RequestMix adapted(const StepTimes& times, const RequestMix& mix, double sequences) noexcept;

/// A steady state of one instance.
struct SteadyState {
  double concurrency = 0;     ///< sequences running
  double requests_per_s = 0;  ///< requests finished per second
  Seconds step;               ///< time of a step, mean
  Seconds tpot;               ///< time between two tokens of a sequence, mean
  Seconds ttft;            ///< time to the first token, waiting included; 0: it grows without bound
  Seconds prefill;         ///< the same without waiting for other prompts
  double utilisation = 0;  ///< requests over the most the instance can finish
  double prompt_fraction = 0;  ///< share of steps that carry a prompt
  bool saturated = false;      ///< more arrive than it can finish: concurrency is the limit's
  int draft_tokens = 0;        ///< depth of the drafts in force

  bool operator==(const SteadyState&) const = default;
};

template <>
struct RecordOf<SteadyState> {
  static constexpr std::string_view name = "SteadyState";
  using T = SteadyState;
  static constexpr FieldTable fields{
      field("concurrency", &T::concurrency, "sequences running"),
      field("requests_per_s", &T::requests_per_s, "requests finished per second"),
      field("step_time_s", &T::step, "time of a step, mean"),
      field("tpot_s", &T::tpot, "time between two tokens of a sequence, mean"),
      field("ttft_s", &T::ttft,
            "time to the first token, waiting included; 0 = it grows without bound"),
      field("prefill_s", &T::prefill, "time to the first token on an idle instance"),
      field("utilisation", &T::utilisation, "requests over the most it can finish"),
      field("prompt_fraction", &T::prompt_fraction, "share of steps that carry a prompt"),
      field("saturated", &T::saturated, "more arrive than it can finish"),
      field("draft_tokens", &T::draft_tokens, "depth of the drafts in force")};
};

/// With `concurrency` sequences running all the time. Each needs S steps, the last of several
/// tokens included, so that r = concurrency/S requests finish, and as many prompts enter, per step:
///
///     step = (1 - f) T(no prompt) + f T(r/f prompts),   f = 1 - exp(-r)
///
/// An engine without mixed batches stops for prefill steps instead. Where the prompts
/// of a step exceed its limit of tokens, fewer sequences than asked for can be kept running, and
/// `concurrency` is that number. The time to the first token is that of prompts which come at
/// random at the rate at which the other sequences finish (prompt_steps.hpp), and ends where all
/// their prompts are computed. That per token leaves out the sequence's own prompt.
SteadyState steady_state(const StepTimes& times, const CacheCapacity& capacity,
                         const RequestMix& mix, double concurrency) noexcept;

/// With `requests_per_s` arriving at random (Poisson), all of one length. A request takes its wait,
/// its prompt and S steps in the company of those that it finds, and concurrency follows from
/// Little's law. Up to 60 % of the highest rate that is not saturated 99.8 % of random deployments
/// agree with the simulation of a stream within 5 %, 99 % within 3 %; what is missed most are
/// caches that hold one to three whole sequences and preempt. A rate is saturated, too, at which
/// prompts leave so little time for decode that all slots fill, although the instance could finish
/// as many. Of adaptive drafts the depth is the one with the least latency of a request.
SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double requests_per_s) noexcept;

}  // namespace scalemodel
