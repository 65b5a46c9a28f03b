// One copy of a serving instance that requests are handed to as they come: its queue, its batches,
// its preemptions and the prefixes that its KV cache holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/cache_tiers.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/gap_histogram.hpp"
#include "scalemodel/serving/prefix_cache.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// One request of a stream.
struct Request {
  Seconds arrival;
  double input = 1, output = 1;  ///< tokens
  bool prefilled = false;        ///< its prompt was computed elsewhere
};

/// Why a request was not served: longer than the whole cache, turned away as it came, or lost with
/// its replica as often as it may be tried.
enum class NotServed : std::uint8_t { none, too_long, shed, lost };

template <>
struct EnumNames<NotServed> {
  static constexpr std::string_view what = "refusal";
  static constexpr std::array<std::string_view, 4> names{"", "too_long", "shed", "lost"};
};

/// What became of it. Times are absolute, in the clock of the arrivals.
struct Served {
  Seconds started;  ///< first step that worked on it
  Seconds first_token;
  Seconds finished;
  std::int32_t preemptions = 0;
  bool refused = false;
  NotServed why = NotServed::none;
  std::uint8_t tier = 0;     ///< the deepest it loaded from; 0: none below the KV cache
  std::uint8_t retries = 0;  ///< after its replica failed
  double cached_tokens = 0;  ///< of its prompt, found in a cache when it started
};

/// Steps of an instance, and the time between tokens that its sequences saw.
struct StreamTotals {
  double steps = 0;
  double running_s = 0;    ///< integral of running sequences over time
  double in_system_s = 0;  ///< integral of all requests between arrival and end
  double preemptions = 0;
  Seconds busy;  ///< time inside steps
  Seconds makespan;
  Seconds itl_median, itl_p90, itl_p99;

  bool operator==(const StreamTotals&) const = default;
};

template <>
struct RecordOf<StreamTotals> {
  static constexpr std::string_view name = "StreamTotals";
  using T = StreamTotals;
  static constexpr FieldTable fields{
      field("steps", &T::steps, "steps of all instances"),
      field("running_s", &T::running_s, "integral of running sequences over time"),
      field("in_system_s", &T::in_system_s, "integral of requests between arrival and end"),
      field("preemptions", &T::preemptions,
            "preempted sequences: their KV cache blocks were evicted"),
      field("busy_s", &T::busy, "time inside steps, all instances"),
      field("makespan_s", &T::makespan, "from the first arrival to the last token"),
      field("itl_median_s", &T::itl_median, "between tokens, half of them"),
      field("itl_p90_s", &T::itl_p90, "between tokens, nine of ten"),
      field("itl_p99_s", &T::itl_p99, "between tokens, 99 of 100")};
};

/// What a replica serves with. The references outlive it.
struct ReplicaSetup {
  const StepTimes& times;
  const CacheBlocks& blocks;
  const CacheCapacity& capacity;
  const RequestMix& mix;
};

/// The prefixes of requests, and where a replica keeps them.
struct PrefixCaching {
  PrefixColumns prefixes;
  /// Tokens of a store beside the KV cache; 0: what running sequences leave of the KV cache.
  double store_tokens = 0;

  bool enabled() const noexcept { return !prefixes.empty(); }
};

/// What a replica may have beside its engine. `priority`: of each request, the lowest first; equal
/// ones in order of arrival, and where the cache is full the last of the highest number is
/// preempted; empty: all are equal. Source: vLLM V1, scheduling policy `priority`.
struct ReplicaExtras {
  PrefixCaching caching;
  CacheTiers tiers;
  std::span<const std::int32_t> priority;
};

/// Steps are assembled as the engine does: running sequences first, then prompts under way, then
/// waiting requests in order of arrival, as long as tokens, sequences and cache allow. Runs of
/// steps without any prompt are taken together, at their mean context. A run is planned until a
/// sequence ends or the cache is full and cut short by a request that comes meanwhile, so that
/// a look at a replica on the way never changes what it does.
class Replica {
 public:
  /// `requests` and `served` are of the whole stream; so are the places that `offer` takes.
  Replica(const ReplicaSetup& setup, std::span<const Request> requests, std::span<Served> served,
          ReplicaExtras extras = {});

  /// Everything that happens before `until`. Requests that arrive before it have been offered.
  void advance(Seconds until);
  /// A request arrives, not before those offered earlier. `uncached` tokens of its prompt are
  /// expected to be computed; where prefixes have names that is an estimate until it starts.
  void offer(std::size_t request, double uncached);
  /// The same where no more is known than the mix.
  void offer(std::size_t request);
  /// A request that another replica lost comes at `now`, not before what was offered earlier.
  void offer_again(std::size_t request, double uncached, Seconds now);
  void offer_again(std::size_t request, Seconds now);
  /// The replica fails: its caches are empty, and the requests it had are returned, in the order
  /// that it would have served them. Everything before `now` has happened.
  std::vector<std::size_t> fail(Seconds now);

  /// When something happens next; infinite where nothing is left.
  Seconds next_event() const noexcept;
  /// Requests between arrival and end.
  double requests_in_system() const noexcept {
    return started() + static_cast<double>(waiting_.size() + incoming_.size());
  }
  /// Those of them before their first token.
  double requests_waiting() const noexcept { return requests_in_system() - sequences_; }
  /// Those that the engine has taken and not yet begun, preempted ones included.
  double requests_queued() const noexcept { return static_cast<double>(waiting_.size()); }
  /// Those that its server has not handled yet: nothing of their response has been sent.
  double requests_arriving(Seconds now) const noexcept {
    const auto handled = [&](const Prompt& prompt) { return admitted(prompt) <= now; };
    // Clang 14 cannot read the reversed view of libstdc++ 12.
    // NOLINTNEXTLINE(modernize-use-ranges)
    const auto first = std::find_if(incoming_.rbegin(), incoming_.rend(), handled);
    return static_cast<double>(first - incoming_.rbegin());
  }
  /// Share of the KV cache that sequences and prompts under way use.
  double cache_utilisation() const { return all_blocks_ > 0 ? used() / all_blocks_ : 0; }
  /// Prompt tokens that are still to be computed.
  double prompt_backlog() const noexcept { return backlog_; }
  /// Tokens that running sequences and prompts under way hold, shared ones once.
  double held_tokens() const noexcept { return held_ - prefixes_.shared_tokens(); }

  const StreamTotals& totals() const noexcept { return totals_; }
  const GapHistogram& gaps() const noexcept { return gaps_; }
  Seconds now() const noexcept { return now_; }
  PrefixCache& prefix_cache() noexcept { return prefixes_; }

 private:
  /// Blocks at the start of a sequence that have a place in the prefix cache.
  struct Chain {
    int last = PrefixCache::kNone;
    std::int32_t count = 0;
  };
  /// A request that waits or whose prompt is being computed.
  struct Prompt {
    std::size_t request;
    double rest;    ///< prompt tokens still to compute
    double tokens;  ///< of the prompt; after a preemption with what had been answered
    double answer;  ///< tokens still to come
    Chain chain;
    /// When it came, while it waits; while its prompt is computed, when tiers have loaded what they
    /// hold of it.
    Seconds since;
    bool waits = false;  ///< no token is computed before
  };
  /// A running sequence. It ends when every sequence has gained `end` tokens.
  struct Running {
    std::size_t request;
    double start, end;  ///< in gained tokens
    double tokens;      ///< it held at its start
    double answer;      ///< it was to give from there on
    Chain chain;
    std::uint64_t begun;  ///< sequences before it
    bool alive;
  };
  /// Where a sequence ends. Another one may have its place by then, where it was preempted.
  struct Ending {
    double end;
    std::uint64_t begun;
    std::size_t place;  ///< in running_

    bool operator>(const Ending& other) const {
      return end != other.end ? end > other.end : begun > other.begun;
    }
  };

  /// Steps of one kind under way.
  struct Run {
    StepWork work;
    double repeats = 0;  ///< 0: none is under way
    Seconds each;
  };

  void arrive();
  bool plan();
  void shorten();
  StepWork with_context(StepWork work, double repeats) const;
  double quiet_steps() const;
  void draft();
  void pass();
  void begin(const Prompt& prompt);
  void push_ending(double end, std::size_t place);
  void pop_ending();
  void finish();
  bool runs(const Ending& ending) const;
  void drop_dead();
  void compact();
  double leave(std::size_t place);
  void preempt();
  bool may_start(const Prompt& prompt, double room, const StepWork& work) const;
  void start_waiting(double room, StepWork& work, double& attended);
  void refuse_first();
  double take(Prompt& prompt, double room, StepWork& work, double& attended);

  void enqueue(const Prompt& prompt);
  void queue_again(Prompt&& prompt);
  std::size_t victim() const;
  void wait_for_loads();
  void meet_loads();
  void end_by(Seconds time);
  Seconds next_load() const;
  bool loads(const Prompt& prompt) const { return prompt.waits && prompt.since > now_; }
  void load_prefix(Prompt& prompt);
  void forget_oldest();
  void find_prefix(Prompt& prompt);
  void extend(Chain& chain, std::size_t request, double computed);
  void trim_prefixes();
  bool make_room(double tokens);

  bool idle() const { return waiting_.empty() && prompts_.empty() && sequences_ <= 0; }
  Seconds admitted(const Prompt& prompt) const {
    return prompt.since + times_.engine().request_host;
  }
  std::int32_t priority(std::size_t request) const {
    return priority_.empty() ? 0 : priority_[request];
  }
  bool reserves() const { return times_.engine().admission == Admission::whole_output; }
  double started() const noexcept { return sequences_ + static_cast<double>(prompts_.size()); }
  bool keeps_beside() const { return caching_.store_tokens > 0; }
  double needed(const Prompt& prompt) const;
  double used() const;

  const StepTimes& times_;
  const CacheBlocks& blocks_;
  const CacheCapacity& capacity_;
  const RequestMix& mix_;
  std::span<const Request> requests_;
  std::span<Served> served_;
  PrefixCaching caching_;
  CacheTiers tiers_;
  std::span<const std::int32_t> priority_;
  std::size_t loading_ = 0;  ///< prompts that wait for a tier
  /// Of a step: tokens that a sequence gains and computes, passes of the draft for them.
  double gained_, query_tokens_, draft_tokens_, all_blocks_;
  double adapted_to_ = 0;  ///< running sequences that the depth of drafts was chosen for
  double token_blocks_;    ///< blocks of a rank that one more token of a sequence takes
  Seconds now_, stopped_;
  double gain_ = 0;       ///< tokens a sequence that always ran would have gained
  double sequences_ = 0;  ///< alive in running_
  double context_ = 0;    ///< tokens running sequences hold
  double held_ = 0;       ///< the same with prompts under way
  double reserved_ = 0;   ///< blocks set aside for whole answers
  double backlog_ = 0;
  std::deque<Prompt> incoming_;  ///< offered, and not in the queue of the engine yet
  std::deque<Prompt> waiting_;
  std::vector<Prompt> prompts_;
  std::vector<Running> running_;  ///< in the order they began
  std::vector<Ending> endings_;   ///< a heap, the earliest first
  std::uint64_t begun_ = 0;       ///< sequences that ever ran
  Run run_;
  PrefixCache prefixes_;
  StreamTotals totals_;
  GapHistogram gaps_;
};

/// Totals of several replicas.
class TotalsOfReplicas {
 public:
  void add(const Replica& replica);
  /// Their sums, the last token counted from `begin` on.
  StreamTotals since(Seconds begin) const;

 private:
  StreamTotals sums_;
  GapHistogram gaps_;
  Seconds end_;
};

}  // namespace scalemodel
