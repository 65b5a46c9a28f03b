#include "scalemodel/serving/scheduler.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::int64_t ceiling_of(std::int64_t tokens, std::int64_t block) {
  return (tokens + block - 1) / block;
}

/// Blocks of a pool, no more than all requests together could ever take: what is behind them stays
/// untouched.
int pool_of(const SchedulerLimits& limits, const std::vector<NamedRequest>& requests) {
  std::int64_t most = 1;
  for (const NamedRequest& request : requests) {
    most += ceiling_of(request.input + request.output, limits.block_tokens);
    if (most >= limits.blocks) return limits.blocks;
  }
  return static_cast<int>(most);
}

/// One engine and its queue.
class BlockScheduler {
 public:
  BlockScheduler(const SchedulerLimits& limits, const std::vector<NamedRequest>& requests,
                 const StepTimes* times)
      : limits_(limits),
        times_(times),
        host_(times == nullptr ? 0 : times->engine().request_host.base()),
        requests_(requests),
        states_(requests.size()),
        cache_(pool_of(limits, requests), limits.uncached_last) {
    found_.requests.resize(requests.size());
  }

  StepSchedule run() {
    while (true) {
      report_progress(next_, requests_.size());
      poll_point(1 + static_cast<std::int64_t>(running_.size()));
      arrive();
      if (running_.empty() && waiting_.empty()) {
        if (next_ == requests_.size()) return std::move(found_);
        now_ = std::max(now_, requests_[next_].arrival + host_);
        continue;
      }
      step();
    }
  }

 private:
  struct State {
    std::int64_t made = 0;      ///< output tokens
    std::int64_t computed = 0;  ///< tokens in its blocks
    std::int64_t highest = 0;   ///< the most it ever had computed
    std::vector<int> blocks;
  };
  /// Tokens of a request in the step under way.
  struct Part {
    std::size_t request;
    std::int64_t tokens;
    bool prompt;  ///< part of a prompt, or of what is computed again
  };

  void arrive() {
    for (; next_ < requests_.size() && requests_[next_].arrival + host_ <= now_; ++next_) {
      const NamedRequest& request = requests_[next_];
      // The last token is never computed. What fits alone runs to its end, whatever comes before.
      if (blocks_of(request.input + request.output - 1) <= limits_.blocks) {
        waiting_.push_back(next_);
        continue;
      }
      ScheduledRequest& refused = found_.requests[next_];
      refused.refused = true;
      refused.started = refused.first_token = refused.finished = now_;
    }
  }

  std::int64_t blocks_of(std::int64_t tokens) const {
    return ceiling_of(tokens, limits_.block_tokens);
  }
  std::int64_t tokens_of(std::size_t request) const {
    return requests_[request].input + states_[request].made;
  }

  void step() {
    current_ = {};
    parts_.clear();
    std::int64_t left = limits_.max_batched_tokens;
    schedule_running(left);
    if (current_.preemptions == 0) schedule_waiting(left);
    current_.running = static_cast<std::int64_t>(running_.size());
    current_.waiting = static_cast<std::int64_t>(waiting_.size());
    current_.sequences = static_cast<std::int64_t>(parts_.size());
    current_.used_blocks = cache_.used_blocks();
    current_.start = now_;
    if (times_ != nullptr) current_.time = times_->total(work()).base();
    now_ += current_.time;
    for (const Part& part : parts_) compute(part);
    std::erase_if(running_, [this](std::size_t request) { return ended(request); });
    found_.steps.push_back(current_);
  }

  bool ended(std::size_t request) const {
    return states_[request].made >= requests_[request].output;
  }

  std::int64_t share_of(std::size_t request, std::int64_t computed, std::int64_t left) const {
    const std::int64_t tokens = std::min(tokens_of(request) - computed, left);
    const bool cut = limits_.max_prompt_chunk > 0;
    return cut ? std::min<std::int64_t>(tokens, limits_.max_prompt_chunk) : tokens;
  }

  void schedule_running(std::int64_t& left) {
    for (std::size_t place = 0; place < running_.size() && left > 0; ++place) {
      const std::size_t request = running_[place];
      const std::int64_t tokens = share_of(request, states_[request].computed, left);
      while (place < running_.size() && !allocate(request, tokens, {})) preempt_last();
      if (place >= running_.size()) return;  // It was the last itself.
      add(request, tokens);
      left -= tokens;
    }
  }

  void preempt_last() {
    const std::size_t request = running_.back();
    running_.pop_back();
    cache_.release(states_[request].blocks);
    states_[request].blocks.clear();
    states_[request].computed = 0;
    waiting_.push_front(request);
    ++found_.requests[request].preemptions;
    ++current_.preemptions;
  }

  void schedule_waiting(std::int64_t& left) {
    while (!waiting_.empty() && left > 0 &&
           std::cmp_less(running_.size(), limits_.max_running_sequences)) {
      const std::size_t request = waiting_.front();
      const std::vector<int> hits = hits_of(request);
      const std::int64_t cached = static_cast<std::int64_t>(hits.size()) * limits_.block_tokens;
      const std::int64_t tokens = share_of(request, cached, left);
      if (limits_.reserves_prompt && !fits(request, tokens_of(request), hits)) return;
      State& state = states_[request];
      state.computed = cached;
      if (!allocate(request, tokens, hits)) {
        state.computed = 0;
        return;
      }
      waiting_.pop_front();
      running_.push_back(request);
      count_start(request, cached);
      add(request, tokens);
      left -= tokens;
    }
  }

  void count_start(std::size_t request, std::int64_t cached) {
    ScheduledRequest& found = found_.requests[request];
    if (found.preemptions > 0) {
      current_.restored_tokens += cached;
      return;
    }
    found.started = now_;
    found.cached_tokens = cached;
    current_.cached_tokens += cached;
    ++current_.started;
  }

  /// The last token is computed in any case: its logits give the next one.
  std::vector<int> hits_of(std::size_t request) const {
    if (!limits_.prefix_caching) return {};
    const auto full = static_cast<std::size_t>((tokens_of(request) - 1) / limits_.block_tokens);
    const std::span<const BlockHash> hashes(requests_[request].hashes);
    return cache_.held(hashes.first(std::min(full, hashes.size())));
  }

  std::int64_t missing(std::size_t request, std::int64_t tokens, std::size_t hits) const {
    const auto has = static_cast<std::int64_t>(states_[request].blocks.size() + hits);
    return std::max<std::int64_t>(0, blocks_of(tokens) - has);
  }

  bool fits(std::size_t request, std::int64_t tokens, std::span<const int> hits) const {
    return missing(request, tokens, hits.size()) + cache_.idle(hits) <= cache_.free_blocks();
  }

  /// Blocks for `tokens` more of a request, `hits` before them; false: there are too few.
  bool allocate(std::size_t request, std::int64_t tokens, std::span<const int> hits) {
    State& state = states_[request];
    const std::int64_t until = state.computed + tokens;
    if (!fits(request, until, hits)) return false;
    const std::int64_t further = missing(request, until, hits.size());
    cache_.share(hits);
    state.blocks.insert(state.blocks.end(), hits.begin(), hits.end());
    for (std::int64_t i = 0; i < further; ++i) state.blocks.push_back(cache_.take());
    if (!limits_.prefix_caching) return true;
    const std::vector<BlockHash>& hashes = requests_[request].hashes;
    const auto first = static_cast<std::size_t>(state.computed / limits_.block_tokens);
    const auto full = static_cast<std::size_t>(until / limits_.block_tokens);
    for (std::size_t i = first; i < std::min(full, hashes.size()); ++i) {
      cache_.name(state.blocks[i], hashes[i]);
    }
    return true;
  }

  void add(std::size_t request, std::int64_t tokens) {
    const State& state = states_[request];
    const bool prompt = tokens > 1 || state.computed + tokens <= requests_[request].input;
    parts_.push_back({request, tokens, prompt});
    current_.batched_tokens += tokens;
    current_.decodes += tokens == 1 ? 1 : 0;
    const std::int64_t again = std::min(state.highest, state.computed + tokens) - state.computed;
    current_.recomputed_tokens += std::max<std::int64_t>(0, again);
  }

  /// The step as the step times take it.
  StepWork work() const {
    StepWork total;
    double pairs = 0;
    for (const Part& part : parts_) {
      const auto tokens = static_cast<double>(part.tokens);
      const auto before = static_cast<double>(states_[part.request].computed);
      if (!part.prompt) {
        total.sequences += 1;
        total.context += before + 1;
        continue;
      }
      total.prompts += 1;
      total.prompt_tokens += tokens;
      total.longest = std::max(total.longest, tokens);
      pairs += tokens * (before + tokens / 2);
      const NamedRequest& request = requests_[part.request];
      const auto input = static_cast<double>(request.input);
      const double of_prompt = std::max(0.0, std::min(tokens, input - before));
      total.images += request.images * of_prompt / input;
    }
    if (total.sequences > 0) total.context /= total.sequences;
    if (total.prompts > 0) total.prompt_keys = equal_prompt_keys(total, pairs);
    return total;
  }

  /// The tokens of a part are computed; at the end of what a request holds comes another one.
  void compute(const Part& part) {
    State& state = states_[part.request];
    state.computed += part.tokens;
    state.highest = std::max(state.highest, state.computed);
    if (state.computed < tokens_of(part.request)) return;
    ScheduledRequest& found = found_.requests[part.request];
    if (++state.made == 1) found.first_token = now_;
    if (!ended(part.request)) return;
    found.finished = now_;
    cache_.release(state.blocks);
    state.blocks.clear();
  }

  const SchedulerLimits& limits_;
  const StepTimes* times_;
  double host_;  ///< from arrival to the queue
  const std::vector<NamedRequest>& requests_;
  std::vector<State> states_;
  BlockCache cache_;
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> running_;  ///< in order of admission
  std::vector<Part> parts_;
  ScheduledStep current_;
  std::size_t next_ = 0;  ///< the first request to come
  double now_ = 0;
  StepSchedule found_;
};

}  // namespace

StepSchedule schedule_requests(const SchedulerLimits& limits,
                               const std::vector<NamedRequest>& requests, const StepTimes* times) {
  return BlockScheduler(limits, requests, times).run();
}

}  // namespace scalemodel
