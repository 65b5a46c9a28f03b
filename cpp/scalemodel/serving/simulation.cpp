#include "scalemodel/serving/simulation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <utility>

#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// Distribution of times between tokens: bins 2 % wide from 10 us.
class Gaps {
 public:
  void add(Seconds gap, double tokens) {
    const double bin = std::log(std::max(gap.base(), kLeast) / kLeast) / kWidth;
    const auto index = static_cast<std::size_t>(std::min(bin, kBins - 1.0));
    bins_[index] += tokens;
    total_ += tokens;
  }
  void merge(const Gaps& other) {
    for (std::size_t i = 0; i < bins_.size(); ++i) bins_[i] += other.bins_[i];
    total_ += other.total_;
  }
  Seconds quantile(double share) const {
    double below = 0;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      below += bins_[i];
      if (below >= share * total_ && below > 0) {
        return Seconds{kLeast * std::exp(kWidth * (static_cast<double>(i) + 0.5))};
      }
    }
    return Seconds{};
  }

 private:
  static constexpr double kLeast = 1e-5, kWidth = 0.02;
  static constexpr std::size_t kBins = 1000;
  std::array<double, kBins> bins_{};
  double total_ = 0;
};

/// One instance and its part of the stream.
class Instance {
 public:
  Instance(const StepTimes& times, const CacheBlocks& blocks, const CacheCapacity& capacity,
           const RequestMix& mix, const std::vector<Request>& requests, std::vector<Served>& served,
           const std::vector<std::size_t>& share)
      : times_(times),
        blocks_(blocks),
        capacity_(capacity),
        mix_(mix),
        requests_(requests),
        served_(served),
        share_(share),
        gained_(tokens_per_step(mix)),
        query_tokens_(1.0 + mix.speculative_tokens),
        all_blocks_(capacity.blocks * times.layout().dp) {}

  void run() {
    if (more_come()) now_ = next_request().arrival;
    while (true) {
      arrive();
      if (waiting_.empty() && prompts_.empty() && sequences_ <= 0) {
        if (!more_come()) return;
        now_ = max(now_, next_request().arrival + times_.engine().request_host);
        continue;
      }
      step();
    }
  }

  const StreamTotals& totals() const { return totals_; }
  const Gaps& gaps() const { return gaps_; }
  Seconds end() const { return now_; }

 private:
  /// A request that waits or whose prompt is being computed.
  struct Prompt {
    std::size_t request;
    double rest;    ///< prompt tokens still to compute
    double tokens;  ///< of the prompt; after a preemption with what had been answered
    double answer;  ///< tokens still to come
  };
  /// A running sequence. It ends when every sequence has gained `end` tokens.
  struct Running {
    std::size_t request;
    double start, end;  ///< in gained tokens
    double tokens;      ///< it held at its start
    double answer;      ///< it was to give from there on
    bool alive;
  };
  using Ending = std::pair<double, std::size_t>;  ///< end, place in running_

  bool more_come() const { return next_ < share_.size(); }
  const Request& next_request() const { return requests_[share_[next_]]; }

  void arrive() {
    while (more_come() && next_request().arrival + times_.engine().request_host <= now_) {
      const Request& request = next_request();
      const double fresh =
          request.prefilled ? 0 : std::max(1.0, request.input * (1 - mix_.prefix_hit_fraction));
      waiting_.push_back({share_[next_], fresh, request.input, request.output});
      totals_.in_system_s += (now_ - request.arrival).base();
      ++next_;
    }
  }

  bool reserves() const { return times_.engine().admission == Admission::whole_output; }

  /// Cache that a request must find free to start.
  double needed(const Prompt& prompt) const {
    return blocks_.of(prompt.tokens + (reserves() ? prompt.answer : 1));
  }

  double started() const { return sequences_ + static_cast<double>(prompts_.size()); }

  double used() const {
    if (reserves()) return reserved_;
    const double count = started();
    return count > 0 ? count * blocks_.mean(held_ / count) : 0;
  }

  void step() {
    preempt();
    StepWork work;
    work.query_tokens = query_tokens_;
    work.draft_tokens = mix_.speculative_tokens;
    const bool mixes = times_.engine().mixed_batches;
    double room = capacity_.max_batched_tokens - (mixes ? sequences_ * query_tokens_ : 0);
    double attended = 0;
    for (Prompt& each : prompts_) room -= take(each, room, work, attended);
    while (!waiting_.empty() && may_start(waiting_.front(), room, work)) {
      Prompt prompt = waiting_.front();
      waiting_.pop_front();
      Served& served = served_[prompt.request];
      if (served.preemptions == 0) served.started = now_;
      reserved_ += needed(prompt);
      held_ += prompt.tokens;
      if (prompt.rest <= 0) {
        served.first_token = now_;
        begin(prompt);
        continue;
      }
      room -= take(prompt, room, work, attended);
      prompts_.push_back(prompt);
    }
    if (work.prompt_tokens > 0) work.prompt_keys = equal_prompt_keys(work, attended);
    if (mixes || work.prompts <= 0) work.sequences = sequences_;
    if (work.prompts <= 0 && work.sequences <= 0) {
      // Nothing runs and the first of the queue does not fit: it never will.
      Served& served = served_[waiting_.front().request];
      served.refused = true;
      served.finished = served.first_token = now_;
      waiting_.pop_front();
      return;
    }
    const double repeats = work.prompts > 0 ? 1 : quiet_steps(work);
    const Seconds each = times_.total(with_context(work, repeats));
    pass(work, repeats, each);
  }

  StepWork with_context(StepWork work, double repeats) const {
    if (work.sequences > 0) {
      work.context = context_ / work.sequences + 1 + 0.5 * (repeats - 1) * gained_;
    }
    return work;
  }

  /// Steps until a sequence ends, a request arrives or the cache is full.
  double quiet_steps(const StepWork& work) const {
    double steps = std::max(1.0, std::ceil((endings_.top().first - gain_) / gained_ - 1e-9));
    if (!reserves()) {
      const double count = started();
      const double spare = (all_blocks_ - used()) / (count * (blocks_.mean(1) - blocks_.mean(0)));
      steps = std::min(steps, std::max(1.0, std::floor(spare / gained_)));
    }
    if (more_come()) {
      const Seconds until = next_request().arrival + times_.engine().request_host - now_;
      const Seconds each = times_.total(with_context(work, steps));
      steps = std::min(steps, std::max(1.0, std::ceil(until / each)));
    }
    return steps;
  }

  /// `repeats` steps of the same kind pass.
  void pass(const StepWork& work, double repeats, Seconds each) {
    const Seconds elapsed = repeats * each;
    const double in_system = sequences_ + static_cast<double>(prompts_.size() + waiting_.size());
    now_ += elapsed;
    totals_.steps += repeats;
    totals_.busy += elapsed;
    totals_.running_s += sequences_ * elapsed.base();
    totals_.in_system_s += in_system * elapsed.base();
    if (work.sequences > 0) {
      const double tokens = repeats * gained_;
      // Sequences that wait while prompts are computed alone see that step in their next gap.
      gaps_.add((each + stopped_) / gained_, sequences_ * tokens);
      stopped_ = Seconds{};
      gain_ += tokens;
      context_ += sequences_ * tokens;
      held_ += sequences_ * tokens;
      finish();
    } else if (sequences_ > 0) {
      stopped_ += elapsed;
    }
    const auto done = std::stable_partition(prompts_.begin(), prompts_.end(),
                                            [](const Prompt& p) { return p.rest > 0; });
    for (Prompt& prompt : std::span(done, prompts_.end())) {
      Served& served = served_[prompt.request];
      if (served.first_token <= Seconds{}) served.first_token = now_;
      prompt.answer -= 1;
      prompt.tokens += 1;
      held_ += 1;
      begin(prompt);
    }
    prompts_.erase(done, prompts_.end());
  }

  /// A prompt is done: its sequence runs, or was to give one token only.
  void begin(const Prompt& prompt) {
    const double end = gain_ + prompt.answer;
    running_.push_back({prompt.request, gain_, end, prompt.tokens, prompt.answer, true});
    context_ += prompt.tokens;
    sequences_ += 1;
    if (prompt.answer <= 1e-9) {
      leave(running_.size() - 1);
      served_[prompt.request].finished = now_;
      return;
    }
    endings_.emplace(end, running_.size() - 1);
  }

  void finish() {
    while (!endings_.empty() && endings_.top().first <= gain_ + 1e-9) {
      const std::size_t place = endings_.top().second;
      endings_.pop();
      if (!running_[place].alive) continue;
      leave(place);
      served_[running_[place].request].finished = now_;
    }
    drop_dead();
  }

  void drop_dead() {
    while (!endings_.empty() && !running_[endings_.top().second].alive) endings_.pop();
    while (!running_.empty() && !running_.back().alive) running_.pop_back();
  }

  /// Takes a sequence out; returns the tokens it had gained.
  double leave(std::size_t place) {
    Running& one = running_[place];
    const double gained = gain_ - one.start;
    one.alive = false;
    sequences_ -= 1;
    context_ -= one.tokens + gained;
    held_ -= one.tokens + gained;
    reserved_ -= blocks_.of(requests_[one.request].input + requests_[one.request].output);
    return gained;
  }

  /// The latest sequences lose their cache when it is full, and start again as prompts.
  void preempt() {
    if (reserves()) return;
    while (sequences_ > 1 && used() > all_blocks_) {
      while (!running_.back().alive) running_.pop_back();
      const Running last = running_.back();
      const double gained = leave(running_.size() - 1);
      drop_dead();
      const double tokens = last.tokens + gained;
      waiting_.push_front({last.request, tokens, tokens, last.answer - gained});
      ++served_[last.request].preemptions;
      totals_.preemptions += 1;
    }
  }

  bool may_start(const Prompt& prompt, double room, const StepWork& work) const {
    if (started() + 1 > capacity_.step_sequences) return false;
    const bool fits = prompt.rest <= room;
    const bool whole = !times_.engine().chunked_prefill;
    // A prompt longer than any step runs alone where it cannot be cut.
    if (prompt.rest > 0 && (whole ? !fits && work.prompts > 0 : room < 1)) return false;
    return used() + needed(prompt) <= all_blocks_ + 1e-9;
  }

  /// Tokens of a prompt computed in this step; `attended` grows by the pairs of them and what each
  /// attends to.
  double take(Prompt& prompt, double room, StepWork& work, double& attended) const {
    if (prompt.rest <= 0 || room < 1) return 0;
    const double tokens =
        times_.engine().chunked_prefill ? std::min(prompt.rest, room) : prompt.rest;
    prompt.rest -= tokens;
    work.prompts += 1;
    work.prompt_tokens += tokens;
    work.longest = std::max(work.longest, tokens);
    attended += tokens * (prompt.tokens - prompt.rest - tokens / 2);
    return tokens;
  }

  const StepTimes& times_;
  const CacheBlocks& blocks_;
  const CacheCapacity& capacity_;
  const RequestMix& mix_;
  const std::vector<Request>& requests_;
  std::vector<Served>& served_;
  const std::vector<std::size_t>& share_;  ///< requests of this instance, in order of arrival
  std::size_t next_ = 0;                   ///< of them, the first to come
  double gained_, query_tokens_, all_blocks_;
  Seconds now_, stopped_;
  double gain_ = 0;       ///< tokens a sequence that always ran would have gained
  double sequences_ = 0;  ///< alive in running_
  double context_ = 0;    ///< tokens running sequences hold
  double held_ = 0;       ///< the same with prompts under way
  double reserved_ = 0;   ///< blocks set aside for whole answers
  std::deque<Prompt> waiting_;
  std::vector<Prompt> prompts_;
  std::vector<Running> running_;  ///< in the order they began
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings_;
  StreamTotals totals_;
  Gaps gaps_;
};

/// Requests of every replica, by their places in the stream.
std::vector<std::vector<std::size_t>> shares(std::size_t requests, const Replicas& replicas) {
  const int count = std::max(1, replicas.count);
  std::vector<std::vector<std::size_t>> found(static_cast<std::size_t>(count));
  SplitMix random(replicas.seed);
  for (std::size_t i = 0; i < requests; ++i) {
    const std::size_t chosen = replicas.balance == Balance::random
                                   ? static_cast<std::size_t>(random.below(count))
                                   : i % found.size();
    found[chosen].push_back(i);
  }
  return found;
}

}  // namespace

StreamResult simulate_stream(const StepTimes& times, const CacheBlocks& blocks,
                             const CacheCapacity& capacity, const RequestMix& mix,
                             const std::vector<Request>& requests, const Replicas& replicas) {
  StreamResult result;
  result.served.resize(requests.size());
  if (requests.empty()) return result;
  Gaps gaps;
  Seconds end;
  for (const std::vector<std::size_t>& share : shares(requests.size(), replicas)) {
    Instance instance(times, blocks, capacity, mix, requests, result.served, share);
    instance.run();
    const StreamTotals& part = instance.totals();
    result.totals.steps += part.steps;
    result.totals.running_s += part.running_s;
    result.totals.in_system_s += part.in_system_s;
    result.totals.preemptions += part.preemptions;
    result.totals.busy += part.busy;
    gaps.merge(instance.gaps());
    end = max(end, instance.end());
  }
  result.totals.makespan = end - requests.front().arrival;
  result.totals.itl_median = gaps.quantile(0.5);
  result.totals.itl_p90 = gaps.quantile(0.9);
  result.totals.itl_p99 = gaps.quantile(0.99);
  return result;
}

}  // namespace scalemodel
