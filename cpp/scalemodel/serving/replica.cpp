#include "scalemodel/serving/replica.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr double kTokenRounding = 1e-9;
constexpr std::size_t kMaxEnded = 1024;  // running sequences that ended, kept for their places

}  // namespace

Replica::Replica(const ReplicaSetup& setup, std::span<const Request> requests,
                 std::span<Served> served, ReplicaExtras extras)
    : times_(setup.times),
      blocks_(setup.blocks),
      capacity_(setup.capacity),
      mix_(setup.mix),
      requests_(requests),
      served_(served),
      caching_(extras.caching),
      tiers_(std::move(extras.tiers)),
      priority_(extras.priority),
      gained_(tokens_per_step(setup.mix)),
      query_tokens_(1.0 + verified_drafts(draft_tree(setup.mix))),
      draft_tokens_(setup.mix.speculative_tokens),
      all_blocks_(setup.capacity.blocks * setup.times.layout().dp),
      token_blocks_(setup.blocks.mean(1) - setup.blocks.mean(0)) {}

void Replica::advance(Seconds until) {
  while (true) {
    poll_point();
    if (run_.repeats <= 0) {
      if (!(now_ < until)) return;
      arrive();
      if (idle()) {
        if (incoming_.empty()) return;
        now_ = max(now_, admitted(incoming_.front()));
        continue;
      }
      if (!plan()) continue;
    }
    if (!(now_ + run_.repeats * run_.each < until)) return;
    pass();
  }
}

void Replica::offer(std::size_t request) { offer_again(request, requests_[request].arrival); }

void Replica::offer(std::size_t request, double uncached) {
  offer_again(request, uncached, requests_[request].arrival);
}

void Replica::offer_again(std::size_t request, Seconds now) {
  const double input = requests_[request].input;
  offer_again(request, std::max(1.0, input * (1 - mix_.prefix_hit_fraction)), now);
}

void Replica::offer_again(std::size_t request, double uncached, Seconds now) {
  const Request& asked = requests_[request];
  const double rest = asked.prefilled ? 0 : uncached;
  incoming_.push_back({request, rest, asked.input, asked.output, {}, now});
  backlog_ += rest;
  // Those behind the first come into a later run.
  if (run_.repeats > 0 && incoming_.size() == 1) shorten();
}

Seconds Replica::next_event() const noexcept {
  if (run_.repeats > 0) return now_ + run_.repeats * run_.each;
  const bool nothing = incoming_.empty() && idle();
  return nothing ? Seconds{kInfinity} : now_;
}

void Replica::arrive() {
  while (!incoming_.empty() && admitted(incoming_.front()) <= now_) {
    totals_.in_system_s += (now_ - incoming_.front().since).base();
    enqueue(incoming_.front());
    incoming_.pop_front();
  }
}

/// Behind all that are as urgent.
void Replica::enqueue(const Prompt& prompt) {
  auto place = waiting_.end();
  const std::int32_t own = priority(prompt.request);
  while (place != waiting_.begin() && priority(std::prev(place)->request) > own) --place;
  waiting_.insert(place, prompt);
}

/// Before all that are no more urgent.
void Replica::queue_again(Prompt&& prompt) {
  auto place = waiting_.begin();
  const std::int32_t own = priority(prompt.request);
  while (place != waiting_.end() && priority(place->request) < own) ++place;
  waiting_.insert(place, prompt);
}

/// Cache that a request must find free to start. Blocks of its prefix that others use are counted
/// with those.
double Replica::needed(const Prompt& prompt) const {
  const double whole = blocks_.of(prompt.tokens + (reserves() ? prompt.answer : 1));
  if (prompt.chain.count == 0 || keeps_beside()) return whole;
  return whole - token_blocks_ * prefixes_.used_tokens(prompt.chain.last);
}

double Replica::used() const {
  const double shared = keeps_beside() ? 0 : token_blocks_ * prefixes_.shared_tokens();
  if (reserves()) return reserved_ - shared;
  const double count = started();
  return count > 0 ? count * blocks_.mean(held_ / count) - shared : 0;
}

/// Plans the next step, or a run of them; false: the first of the queue was refused instead.
bool Replica::plan() {
  preempt();
  if (caching_.enabled()) trim_prefixes();
  if (mix_.adaptive_drafts && sequences_ != adapted_to_) draft();
  StepWork work;
  work.query_tokens = query_tokens_;
  work.draft_tokens = draft_tokens_;
  work.draft_width = mix_.draft_width;
  work.draft_first = gained_;
  const bool mixes = times_.engine().mixed_batches;
  double room = capacity_.max_batched_tokens - (mixes ? sequences_ * query_tokens_ : 0);
  double attended = 0;
  if (loading_ > 0) wait_for_loads();
  for (Prompt& each : prompts_) room -= take(each, room, work, attended);
  start_waiting(room, work, attended);
  if (work.prompt_tokens > 0) work.prompt_keys = equal_prompt_keys(work, attended);
  if (mixes || work.prompts <= 0) work.sequences = sequences_;
  run_.work = work;
  if (work.prompts <= 0 && work.sequences <= 0) {
    if (loading_ == 0) {
      refuse_first();
      return false;
    }
    run_.repeats = 1;
    run_.each = next_load() - now_;
  } else {
    run_.repeats = work.prompts > 0 ? 1 : quiet_steps();
    run_.each = times_.total(with_context(work, run_.repeats));
    if (!tiers_.empty()) meet_loads();
  }
  if (!incoming_.empty()) shorten();
  return true;
}

/// Drafts are as deep as pays for the sequences that run.
void Replica::draft() {
  adapted_to_ = sequences_;
  const RequestMix now = adapted(times_, mix_, sequences_);
  gained_ = tokens_per_step(now);
  query_tokens_ = 1.0 + verified_drafts(draft_tree(now));
  draft_tokens_ = now.speculative_tokens;
}

/// Prompts whose prefix has come from the tiers hold it from now on.
void Replica::wait_for_loads() {
  for (Prompt& prompt : prompts_) {
    if (!prompt.waits || loads(prompt)) continue;
    prompt.waits = false;
    --loading_;
    extend(prompt.chain, prompt.request, prompt.tokens - prompt.rest);
  }
}

Seconds Replica::next_load() const {
  Seconds next{kInfinity};
  for (const Prompt& prompt : prompts_) {
    if (loads(prompt)) next = min(next, prompt.since);
  }
  return next;
}

/// A step lasts until the layers it needs have come; a run of steps ends as a prompt may start.
void Replica::meet_loads() {
  if (run_.work.prompts > 0) {
    for (const Prompt& prompt : prompts_) {
      if (!prompt.waits) run_.each = max(run_.each, prompt.since - now_);
    }
  } else if (loading_ > 0) {
    end_by(next_load());
  }
}

/// A run of steps without a prompt ends with the step in which a time lies.
void Replica::end_by(Seconds time) {
  const double steps = std::min(run_.repeats, std::max(1.0, std::ceil((time - now_) / run_.each)));
  if (steps < run_.repeats) {
    run_.repeats = steps;
    run_.each = times_.total(with_context(run_.work, steps));
  }
}

void Replica::start_waiting(double room, StepWork& work, double& attended) {
  while (!waiting_.empty()) {
    if (caching_.enabled()) find_prefix(waiting_.front());
    if (!may_start(waiting_.front(), room, work)) return;
    Prompt prompt = waiting_.front();
    waiting_.pop_front();
    Served& served = served_[prompt.request];
    prompt.since = {};
    if (!tiers_.empty()) load_prefix(prompt);
    if (served.preemptions == 0) {
      served.started = now_;
      if (caching_.enabled()) served.cached_tokens = prompt.tokens - prompt.rest;
    }
    prefixes_.share_chain(prompt.chain.last);
    reserved_ += blocks_.of(prompt.tokens + (reserves() ? prompt.answer : 1));
    held_ += prompt.tokens;
    if (caching_.enabled()) trim_prefixes();
    if (prompt.rest <= 0) {
      served.first_token = now_;
      begin(prompt);
      continue;
    }
    room -= take(prompt, room, work, attended);
    prompts_.push_back(prompt);
  }
}

/// Nothing runs and the first of the queue does not fit: it never will.
void Replica::refuse_first() {
  const Prompt& first = waiting_.front();
  Served& served = served_[first.request];
  served.refused = true;
  served.why = NotServed::too_long;
  served.finished = served.first_token = now_;
  backlog_ -= first.rest;
  waiting_.pop_front();
}

StepWork Replica::with_context(StepWork work, double repeats) const {
  if (work.sequences > 0) {
    work.context = context_ / work.sequences + 1 + 0.5 * (repeats - 1) * gained_;
  }
  return work;
}

/// Steps without a prompt until a sequence ends or the cache is full.
double Replica::quiet_steps() const {
  const double until_end = endings_.front().end - gain_;
  const double steps = std::max(1.0, std::ceil(until_end / gained_ - kTokenRounding));
  if (reserves()) return steps;
  const double spare = (all_blocks_ - used()) / (started() * token_blocks_);
  return std::min(steps, std::max(1.0, std::floor(spare / gained_)));
}

/// A run without a prompt ends with the step in which the next request comes.
void Replica::shorten() {
  if (run_.work.prompts > 0) return;
  const Seconds next = admitted(incoming_.front());
  if (run_.work.sequences > 0) {
    end_by(next);
  } else {
    run_.each = max(Seconds{}, min(run_.each, next - now_));  // Everything waits for a tier.
  }
}

/// The run under way passes.
void Replica::pass() {
  const auto [work, repeats, each] = std::exchange(run_, {});
  const Seconds elapsed = repeats * each;
  const double in_system = sequences_ + static_cast<double>(prompts_.size() + waiting_.size());
  now_ += elapsed;
  if (work.prompts > 0 || work.sequences > 0) {
    totals_.steps += repeats;
    totals_.busy += elapsed;
  }
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
void Replica::begin(const Prompt& prompt) {
  Chain chain = prompt.chain;
  if (caching_.enabled()) extend(chain, prompt.request, requests_[prompt.request].input);
  const double end = gain_ + prompt.answer;
  running_.push_back(
      {prompt.request, gain_, end, prompt.tokens, prompt.answer, chain, begun_++, true});
  context_ += prompt.tokens;
  sequences_ += 1;
  if (prompt.answer <= kTokenRounding) {
    leave(running_.size() - 1);
    served_[prompt.request].finished = now_;
    return;
  }
  push_ending(end, running_.size() - 1);
}

void Replica::push_ending(double end, std::size_t place) {
  endings_.push_back({end, running_[place].begun, place});
  std::push_heap(endings_.begin(), endings_.end(), std::greater<>());
}

void Replica::pop_ending() {
  std::pop_heap(endings_.begin(), endings_.end(), std::greater<>());
  endings_.pop_back();
}

void Replica::finish() {
  while (!endings_.empty() && endings_.front().end <= gain_ + kTokenRounding) {
    const Ending first = endings_.front();
    pop_ending();
    if (!runs(first)) continue;
    leave(first.place);
    served_[running_[first.place].request].finished = now_;
  }
  drop_dead();
  compact();
}

bool Replica::runs(const Ending& ending) const {
  if (ending.place >= running_.size()) return false;
  const Running& there = running_[ending.place];
  return there.alive && there.begun == ending.begun;
}

void Replica::drop_dead() {
  while (!endings_.empty() && !runs(endings_.front())) pop_ending();
  while (!running_.empty() && !running_.back().alive) running_.pop_back();
}

/// Sequences that ended long ago give up their places; the order of the others stays.
void Replica::compact() {
  if (static_cast<double>(running_.size()) < 2 * sequences_ + kMaxEnded) return;
  std::erase_if(endings_, [&](const Ending& each) { return !runs(each); });
  std::vector<std::size_t> moved(running_.size());
  std::size_t alive = 0;
  for (std::size_t place = 0; place < running_.size(); ++place) {
    moved[place] = alive;
    if (running_[place].alive) running_[alive++] = running_[place];
  }
  for (Ending& ending : endings_) ending.place = moved[ending.place];
  std::make_heap(endings_.begin(), endings_.end(), std::greater<>());
  running_.resize(alive);
}

/// Takes a sequence out; returns the tokens it had gained.
double Replica::leave(std::size_t place) {
  Running& one = running_[place];
  const double gained = gain_ - one.start;
  one.alive = false;
  sequences_ -= 1;
  context_ -= one.tokens + gained;
  held_ -= one.tokens + gained;
  reserved_ -= blocks_.of(requests_[one.request].input + requests_[one.request].output);
  if (caching_.enabled()) {
    // The last token of a sequence is never computed.
    extend(one.chain, one.request, one.tokens + gained - 1);
    prefixes_.release_chain(one.chain.last);
  }
  return gained;
}

/// The latest sequences lose their cache when it is full, and start again as prompts.
void Replica::preempt() {
  if (reserves()) return;
  while (sequences_ > 1 && used() > all_blocks_) {
    const std::size_t place = victim();
    const Running last = running_[place];
    const double gained = leave(place);
    drop_dead();
    const double tokens = last.tokens + gained;
    queue_again({last.request, tokens, tokens, last.answer - gained, {}, {}});
    backlog_ += tokens;
    ++served_[last.request].preemptions;
    totals_.preemptions += 1;
  }
}

/// The last to begin, of those that are the least urgent.
std::size_t Replica::victim() const {
  std::size_t found = running_.size();
  for (std::size_t place = running_.size(); place-- > 0;) {
    if (!running_[place].alive) continue;
    const bool first = found == running_.size();
    if (first || priority(running_[place].request) > priority(running_[found].request)) {
      found = place;
    }
    if (priority_.empty()) break;
  }
  return found;
}

std::vector<std::size_t> Replica::fail(Seconds now) {
  const Seconds elapsed = now - now_;
  if (run_.repeats > 0) {
    const bool works = run_.work.prompts > 0 || run_.work.sequences > 0;
    if (works) totals_.busy += elapsed;
    totals_.running_s += sequences_ * elapsed.base();
    totals_.in_system_s += (started() + static_cast<double>(waiting_.size())) * elapsed.base();
  }
  std::vector<std::size_t> lost;
  for (const Running& each : running_) {
    if (each.alive) lost.push_back(each.request);
  }
  for (const Prompt& each : prompts_) lost.push_back(each.request);
  for (const Prompt& each : waiting_) lost.push_back(each.request);
  for (const Prompt& each : incoming_) {
    totals_.in_system_s += (now - each.since).base();
    lost.push_back(each.request);
  }
  while (!running_.empty()) {
    if (running_.back().alive) {
      prefixes_.release_chain(running_.back().chain.last);
    }
    running_.pop_back();
  }
  for (const Prompt& each : prompts_) prefixes_.release_chain(each.chain.last);
  while (prefixes_.idle_tokens() > 0) prefixes_.forget_oldest();
  tiers_.clear();
  prompts_.clear();
  waiting_.clear();
  incoming_.clear();
  endings_.clear();
  run_ = {};
  loading_ = 0;
  sequences_ = context_ = held_ = reserved_ = backlog_ = 0;
  stopped_ = {};
  now_ = max(now_, now);
  return lost;
}

bool Replica::may_start(const Prompt& prompt, double room, const StepWork& work) const {
  if (started() + 1 > capacity_.step_sequences) return false;
  const bool fits = prompt.rest <= room;
  const bool whole = !times_.engine().chunked_prefill;
  // A prompt longer than any step runs alone where it cannot be cut.
  if (prompt.rest > 0 && (whole ? !fits && work.prompts > 0 : room < 1)) return false;
  return used() + needed(prompt) <= all_blocks_ + kTokenRounding;
}

/// Tokens of a prompt computed in this step; `attended` grows by the pairs of them and what each
/// attends to.
double Replica::take(Prompt& prompt, double room, StepWork& work, double& attended) {
  if (prompt.rest <= 0 || room < 1 || loads(prompt)) return 0;
  const double tokens = times_.engine().chunked_prefill ? std::min(prompt.rest, room) : prompt.rest;
  prompt.rest -= tokens;
  backlog_ -= tokens;
  work.prompts += 1;
  work.prompt_tokens += tokens;
  work.longest = std::max(work.longest, tokens);
  work.images += tokens * images_per_token(mix_, prompt.tokens);
  attended += tokens * (prompt.tokens - prompt.rest - tokens / 2);
  if (caching_.enabled()) extend(prompt.chain, prompt.request, prompt.tokens - prompt.rest);
  return tokens;
}

void TotalsOfReplicas::add(const Replica& replica) {
  const StreamTotals& part = replica.totals();
  sums_.steps += part.steps;
  sums_.running_s += part.running_s;
  sums_.in_system_s += part.in_system_s;
  sums_.preemptions += part.preemptions;
  sums_.busy += part.busy;
  gaps_.merge(replica.gaps());
  end_ = max(end_, replica.now());
}

StreamTotals TotalsOfReplicas::since(Seconds begin) const {
  StreamTotals found = sums_;
  found.makespan = end_ - begin;
  found.itl_median = gaps_.quantile(0.5);
  found.itl_p90 = gaps_.quantile(0.9);
  found.itl_p99 = gaps_.quantile(0.99);
  return found;
}

}  // namespace scalemodel
