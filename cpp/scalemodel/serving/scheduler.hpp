// The scheduler of vLLM V1, step by step, over the blocks of a prefix cache.
//
// `simulate_stream` (simulation.hpp) is the other way to serve a stream. It knows a request by its
// lengths, takes prefix hits and accepted drafts as mean fractions of a token and passes runs of
// decode-only steps at once, so that it serves millions of requests of any engine. What a prefix
// cache holds cannot be told from means: here every step, token and block is counted, at the price
// of a hundred times the work. `Serving.simulate` takes the one or the other by what is known of
// its requests. On requests that share nothing both must give the same times; tests hold them to
// it.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/block_cache.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// What bounds a step, and what a version of the engine does.
struct SchedulerLimits {
  int blocks = 1;         ///< of the KV cache that requests may use, without the one for padding
  int block_tokens = 16;  ///< tokens of a block
  int max_batched_tokens = 8192;
  int max_running_sequences = 1024;
  int max_prompt_chunk = 0;     ///< tokens of one prompt in a step; 0: the whole step's
  bool prefix_caching = true;   ///< full blocks are kept for requests of the same start
  bool reserves_prompt = true;  ///< a prompt starts when all of it fits, not its first chunk
  bool uncached_last = false;   ///< blocks without content to reuse wait for their turn

  bool operator==(const SchedulerLimits&) const = default;
};

template <>
struct RecordOf<SchedulerLimits> {
  static constexpr std::string_view name = "SchedulerLimits";
  using T = SchedulerLimits;
  static constexpr FieldTable fields{
      field("blocks", &T::blocks, 1, 1e8, "KV cache blocks that requests may use"),
      field("block_tokens", &T::block_tokens, 1, 1e5, "tokens of a KV cache block"),
      field("max_batched_tokens", &T::max_batched_tokens, 1, 1e7, "tokens of a step, at most"),
      field("max_running_sequences", &T::max_running_sequences, 1, 1e7,
            "sequences running at once, at most"),
      field("max_prompt_chunk", &T::max_prompt_chunk, 0, 1e7,
            "tokens of one prompt in a step, at most; 0 = those of the step"),
      field("prefix_caching", &T::prefix_caching, "full blocks are kept for equal prefixes"),
      field("reserves_prompt", &T::reserves_prompt,
            "a prompt starts when all of it fits, not only its first chunk"),
      field("uncached_last", &T::uncached_last,
            "free blocks without a hash wait for their turn instead of being taken first")};
};

/// A request whose blocks have names.
struct NamedRequest {
  double arrival = 0;                  ///< seconds, or steps where no times are given
  std::int64_t input = 1, output = 1;  ///< tokens
  std::vector<BlockHash> hashes;       ///< of full blocks of prompt and output, from the start
  double images = 0;  ///< to encode, anywhere in the prompt; a source counts as one
};

/// One step as it was scheduled; counts are after scheduling, before its tokens.
struct ScheduledStep {
  double start = 0, time = 1;  ///< seconds; steps where no times are given
  std::int64_t running = 0, waiting = 0;
  std::int64_t batched_tokens = 0;     ///< computed in this step
  std::int64_t sequences = 0;          ///< that have tokens in it
  std::int64_t decodes = 0;            ///< of them, those that compute one token
  std::int64_t started = 0;            ///< requests that run for the first time
  std::int64_t cached_tokens = 0;      ///< of their prompts, found in the cache
  std::int64_t restored_tokens = 0;    ///< of preempted requests that run again, found there
  std::int64_t recomputed_tokens = 0;  ///< of batched_tokens, those computed before
  std::int64_t preemptions = 0;
  std::int64_t used_blocks = 0;
};

/// What became of a request; times in the clock of the arrivals.
struct ScheduledRequest {
  double started = 0, first_token = 0, finished = 0;
  std::int64_t cached_tokens = 0;  ///< of its prompt, at its first start
  std::int64_t preemptions = 0;
  bool refused = false;  ///< longer than the whole cache
};

struct StepSchedule {
  std::vector<ScheduledStep> steps;
  std::vector<ScheduledRequest> requests;  ///< in the order given
};

/// Serves `requests` (ascending arrivals) on one engine. A step has a budget of tokens: running
/// requests take theirs first, in order of admission, then waiting ones, in order of arrival,
/// prompts cut to what is left. A request that finds no free block preempts the last admitted one,
/// whose blocks become free and which waits at the head of the queue to be computed again; in such
/// a step no request starts. A start finds the longest run of full blocks that the cache holds,
/// never all of its tokens. Full blocks have a name from the step that fills them on. Without
/// `times` a step takes 1. Source: vLLM V1, vllm/v1/core/sched/scheduler.py, 0.32.
StepSchedule schedule_requests(const SchedulerLimits& limits,
                               const std::vector<NamedRequest>& requests, const StepTimes* times);

}  // namespace scalemodel
