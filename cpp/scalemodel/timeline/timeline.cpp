#include "scalemodel/timeline/timeline.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/index.hpp"
#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

/// Gradient or parameter traffic of one chunk, waiting or under way.
struct Job {
  TrafficEvent event;
  Seconds remaining;
  Seconds bucket;
  int buckets = 1;
  bool started = false;
};

/// The data-parallel stream of one stage: jobs one after the other.
class TrafficStream {
 public:
  void push(const TrafficEvent& event, const Traffic& traffic, int buckets) {
    if (traffic.time <= Seconds{}) return;
    jobs_.push_back({event, traffic.time, traffic.time / buckets, buckets});
    jobs_.back().event.bytes = traffic.bytes;
  }

  /// `budget` of progress, spread evenly over [from, to]; returns what was used.
  Seconds advance(Seconds from, Seconds to, Seconds budget) {
    Seconds used;
    const auto when = [&] {
      return budget > Seconds{} ? from + (used / budget) * (to - from) : from;
    };
    while (next_ < jobs_.size() && used < budget) {
      Job& job = jobs_[next_];
      start(job, when());
      const Seconds step = min(job.remaining, budget - used);
      job.remaining = job.remaining - step;
      used += step;
      if (job.remaining > Seconds{}) break;
      finish(job, when());
    }
    return used;
  }

  /// Everything that is left, at full rate. Returns when it is done.
  Seconds drain(Seconds from) { return from + advance(from, from + pending(), pending()); }

  Seconds pending() const {
    Seconds sum;
    for (std::size_t i = next_; i < jobs_.size(); ++i) sum += jobs_[i].remaining;
    return sum;
  }

  /// Unfinished parameters of a chunk, or null. They are first in line: chunks are used in order.
  Job* parameters_of(int chunk) {
    if (next_ == jobs_.size()) return nullptr;
    Job& job = jobs_[next_];
    return !job.event.reduce && job.event.chunk == chunk ? &job : nullptr;
  }

  void start(Job& job, Seconds now) {
    if (job.started) return;
    job.started = true;
    job.event.start = max(now, free_);
  }

  /// The last job pushed has `done` behind it already, from `begin` to `end`.
  void run_ahead(Seconds done, Seconds begin, Seconds end) {
    if (next_ == jobs_.size()) return;
    Job& job = jobs_.back();
    if (done <= Seconds{}) return;
    start(job, begin);
    job.remaining = job.remaining - done;
    if (job.remaining <= Seconds{}) finish(job, end);
  }

  /// Takes `time` off the jobs, those of the latest-needed layers first.
  void defer(Seconds time) {
    for (std::size_t i = next_; i < jobs_.size() && time > Seconds{}; ++i) {
      const Seconds step = min(time, jobs_[i].remaining);
      jobs_[i].remaining = jobs_[i].remaining - step;
      time = time - step;
    }
  }

  void collect(std::vector<TrafficEvent>& events) const {
    for (const Job& job : jobs_) {
      if (job.started) events.push_back(job.event);
    }
  }

 private:
  void finish(Job& job, Seconds now) {
    job.remaining = Seconds{};
    job.event.end = max(now, job.event.start);
    free_ = job.event.end;
    ++next_;
  }

  std::vector<Job> jobs_;
  std::size_t next_ = 0;
  Seconds free_;
};

struct StageState {
  std::int32_t next = 0;  ///< pass, as an index into Timeline::passes
  Seconds kernels_end;    ///< of the last pass
  Seconds free;           ///< the next pass may start
  Seconds next_channel_free, previous_channel_free;
  std::vector<int> weight_gradients_left;  ///< per chunk
  TrafficStream traffic;
  // What sending by need must know.
  Seconds left_over;               ///< gradients still to reduce when the last kernel ended
  Seconds critical;                ///< the bucket of them that the next step needs first
  Seconds spare_overlappable{-1};  ///< of the first forward pass
};

/// An input that a pass waits for.
struct Arrival {
  Seconds time{-1};
  std::int32_t producer = -1;
};

class Simulation {
 public:
  Simulation(const StepCosts& costs, const TimelineOptions& options,
             const std::vector<double>& slowdown, const std::vector<Seconds>& carried)
      : c_(costs), options_(options), slowdown_(slowdown), stages_(at(costs.stages)) {
    const std::size_t inputs = costs.chunks.size() * at(costs.micro_batches);
    forward_inputs_ = large_vector<Arrival>(inputs);
    gradient_inputs_ = large_vector<Arrival>(inputs);
    result_.first_pass.push_back(0);
    for (int s = 0; s < costs.stages; ++s) prepare(s, carried.empty() ? Seconds{} : carried[at(s)]);
    reserve_large(result_.transfers, 2 * inputs);  // at most one each way of a micro-batch
  }

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int s = 0; s < c_.stages; ++s) {
        while (run_next(s)) progress = true;
      }
    }
  }

  Timeline finish(const std::vector<Seconds>& carried) {
    result_.stage_end.resize(stages_.size());
    for (int s = 0; s < c_.stages; ++s) {
      StageState& stage = stages_[at(s)];
      if (!c_.hide_reduce) push_reductions(s);
      stage.left_over = stage.traffic.pending();
      if (!carried.empty()) stage.traffic.defer(carried[at(s)]);
      const StageResources& resources = c_.resources[at(s)];
      result_.stage_end[at(s)] = stage.traffic.drain(stage.free) + resources.decode;
      result_.update = max(result_.update, result_.stage_end[at(s)]);
      stage.traffic.collect(result_.traffic);
    }
    result_.overhead = result_.update;
    for (const StageResources& r : c_.resources) {
      result_.overhead = max(result_.overhead, result_.update + r.optimizer_transfer + r.optimizer);
    }
    result_.step_time = result_.overhead + c_.overhead;
    result_.period = traits_of(c_.schedule).flows_on ? longest_of_stage() : result_.step_time;
    return std::move(result_);
  }

  /// Gradient traffic of each stage that may hide under the next step's first forward pass.
  std::vector<Seconds> deferrable() const {
    std::vector<Seconds> times;
    for (const StageState& stage : stages_) {
      const Seconds late = max(Seconds{}, stage.left_over - stage.critical);
      times.push_back(min(late, max(Seconds{}, stage.spare_overlappable)));
    }
    return times;
  }

 private:
  /// What the stage that takes longest takes for a step, if none waits for the others at its end:
  /// the first micro-batch reaches it only after its passes on the stages before.
  Seconds longest_of_stage() const {
    Seconds longest, reached;
    for (int s = 0; s < c_.stages; ++s) {
      const StageResources& r = c_.resources[at(s)];
      longest =
          max(longest, result_.stage_end[at(s)] - reached + r.optimizer_transfer + r.optimizer);
      const PassEvent& first = result_.passes[at(result_.first_pass[at(s)])];
      reached += first.end - first.start - first.stall + c_.hop;
    }
    return longest + c_.overhead;
  }

  int buckets(const Traffic& traffic) const {
    return std::max(1, traffic.buckets) * options_.slices;
  }

  /// Lists the passes of a stage in their order, which need not be kept beside them.
  void prepare(int s, Seconds carried) {
    StageState& stage = stages_[at(s)];
    const StageOrder order =
        stage_order(c_.schedule, c_.stages, c_.chunks_per_stage, s, c_.micro_batches);
    stage.next = result_.first_pass.back();
    result_.first_pass.push_back(stage.next + static_cast<std::int32_t>(order.size()));
    // Stages have about as many passes each.
    if (s == 0) reserve_large(result_.passes, at(c_.stages) * order.size());
    stage.weight_gradients_left.resize(at(c_.chunks_per_stage));
    std::vector<bool> seen(at(c_.chunks_per_stage));
    PollPoints points;
    for (const PassSlot& slot : order) {
      points();
      PassEvent& pass = result_.passes.emplace_back();
      pass.slot = slot;
      pass.stage = s;
      if (makes_weight_gradient(slot.pass)) {
        ++stage.weight_gradients_left[at(slot.backward_at().chunk)];
      }
      if (!runs_forward(slot.pass) || seen[at(slot.at.chunk)]) continue;
      seen[at(slot.at.chunk)] = true;
      const Traffic& gather = c_.chunk(s, slot.at.chunk).gather;
      stage.traffic.push({s, slot.at.chunk, false, false, {}, {}, {}}, gather, buckets(gather));
    }
    if (!c_.hide_gather) stage.free = stage.kernels_end = stage.traffic.drain(Seconds{});
    if (carried > Seconds{}) {
      const Traffic left{carried, Bytes{}, 1};
      stage.traffic.push({s, 0, true, true, {}, {}, {}}, left, 1);
    }
  }

  void push_reductions(int s) {
    for (int chunk = c_.chunks_per_stage - 1; chunk >= 0; --chunk) {
      const Traffic& reduce = c_.chunk(s, chunk).reduce;
      stages_[at(s)].traffic.push({s, chunk, true, false, {}, {}, {}}, reduce, buckets(reduce));
    }
  }

  std::size_t input(int stage, ChunkBatch b) const {
    return at(stage * c_.chunks_per_stage + b.chunk) * at(c_.micro_batches) + at(b.micro_batch);
  }

  ChunkNeighbour after(int s, int chunk) const {
    return chunk_after(c_.schedule, c_.stages, c_.chunks_per_stage, s, chunk);
  }
  ChunkNeighbour before(int s, int chunk) const {
    return chunk_before(c_.schedule, c_.stages, s, chunk);
  }

  /// Whether all inputs have arrived; moves the start of the pass to the last of them.
  bool await_inputs(int s, PassEvent& pass) const {
    const auto await = [&](const Arrival& arrival, Wait wait) {
      if (arrival.time < Seconds{}) return false;
      if (arrival.time > pass.ready) {
        pass.ready = arrival.time;
        pass.before = arrival.producer;
        pass.wait = wait;
      }
      return true;
    };
    const PassSlot& slot = pass.slot;
    if (runs_forward(slot.pass) && before(s, slot.at.chunk).exists &&
        !await(forward_inputs_[input(s, slot.at)], Wait::activations)) {
      return false;
    }
    return !makes_input_gradient(slot.pass) ||
           await(gradient_inputs_[input(s, slot.backward_at())], Wait::gradient);
  }

  bool run_next(int s) {
    poll_point();
    StageState& stage = stages_[at(s)];
    const std::int32_t index = stage.next;
    if (index == result_.first_pass[at(s + 1)]) return false;
    const bool is_first = index == result_.first_pass[at(s)];
    PassEvent pass = result_.passes[at(index)];
    pass.ready = stage.free;
    if (!is_first) {
      pass.before = index - 1;
      pass.wait = Wait::order;
    }
    if (!await_inputs(s, pass)) return false;
    const Seconds received = stage.free + c_.hop;
    if (c_.transfers_serial && receives(s, pass.slot) && received > pass.ready) {
      pass.ready = received;
      pass.before = is_first ? pass.before : index - 1;
      pass.wait = is_first ? pass.wait : Wait::order;
    }
    stage.traffic.advance(stage.kernels_end, pass.ready, pass.ready - stage.kernels_end);
    pass.start = pass.ready;
    time_pass(stage, pass);
    stage.kernels_end = stage.free = pass.end;
    result_.passes[at(index)] = pass;
    send(s, index);
    ++stage.next;
    return true;
  }

  /// Whether a pass works on something that another stage sent.
  bool receives(int s, const PassSlot& slot) const {
    const auto sends = [](const ChunkNeighbour& from) { return from.exists && !from.stays; };
    return (runs_forward(slot.pass) && sends(before(s, slot.at.chunk))) ||
           (makes_input_gradient(slot.pass) && sends(after(s, slot.backward_at().chunk)));
  }

  /// Sum of what the slot runs.
  PassCost cost_of(int s, const PassSlot& slot) const {
    PassCost sum;
    const auto add = [&](const PassCost& part) {
      sum.compute += part.compute;
      sum.hidden += part.hidden;
      for (std::size_t i = 0; i < kStreams; ++i) {
        sum.streams[i].busy += part.streams[i].busy;
        sum.streams[i].exposed += part.streams[i].exposed;
      }
    };
    const ChunkCost& ahead = c_.chunk(s, slot.at.chunk);
    const ChunkCost& back = c_.chunk(s, slot.backward_at().chunk);
    switch (slot.pass) {
      case Pass::forward:
        add(ahead.forward);
        break;
      case Pass::backward:
        add(back.backward);
        break;
      case Pass::input_gradient:
        add(back.backward);
        sum.compute = sum.compute - back.weight_gradient;
        break;
      case Pass::weight_gradient:
        sum.compute = back.weight_gradient;
        break;
      case Pass::pair:
        add(ahead.paired_forward);
        add(back.paired_backward);
        break;
    }
    return sum;
  }

  /// End of a pass: kernels, what they wait for, and what the traffic underneath costs them.
  void time_pass(StageState& stage, PassEvent& pass) {
    const int s = pass.stage;
    const PassSlot& slot = pass.slot;
    PassCost cost = cost_of(s, slot);
    const ChunkCost& back = c_.chunk(s, slot.backward_at().chunk);
    int* left = makes_weight_gradient(slot.pass)
                    ? &stage.weight_gradients_left[at(slot.backward_at().chunk)]
                    : nullptr;
    const bool reduces = left != nullptr && --*left == 0;
    if (reduces) cost.compute += back.encode;
    cost.compute = slowdown_.empty() ? cost.compute : slowdown_[at(s)] * cost.compute;
    const Seconds overlappable = max(Seconds{}, c_.overlap_efficiency * cost.compute - cost.hidden);

    // Parameters first: the pass cannot start without its first bucket.
    Seconds hidden;
    Job* gather = runs_forward(slot.pass) ? stage.traffic.parameters_of(slot.at.chunk) : nullptr;
    if (gather != nullptr) {
      const Seconds first = gather->remaining - (gather->buckets - 1.0) * gather->bucket;
      if (first > Seconds{}) {
        stage.traffic.advance(pass.start, pass.start + first, first);
        pass.start += first;
        gather = stage.traffic.parameters_of(slot.at.chunk);
      }
    }
    if (gather != nullptr) {
      const double pieces = gather->buckets;
      hidden = min(gather->remaining, (pieces - 1) / pieces * overlappable);
      pass.stall = gather->remaining - hidden;
    }
    const Seconds older = min(stage.traffic.pending() - pass.stall, overlappable);
    const Seconds queued = max(hidden, older);
    Seconds own;
    if (reduces && c_.hide_reduce) {
      const double pieces = buckets(back.reduce);
      const Seconds share = (pieces - 1) / pieces * overlappable;
      own = min((pieces - 1) / pieces * back.reduce.time, min(share, overlappable - queued));
    }
    const double overlap_slowdown = options_.contention ? c_.overlap_slowdown : 0;
    pass.compute = cost.compute + overlap_slowdown * (cost.hidden + queued + own);
    pass.end = pass.start + pass.compute + cost.exposed() + pass.stall;
    note_spare_overlappable(stage, slot, overlappable - queued);

    // The stream's own work of the pass comes at its end.
    const Seconds until = pass.end - cost.on(Stream::dp).busy;
    stage.traffic.advance(pass.start, until, queued + pass.stall);
    if (reduces && c_.hide_reduce) {
      const int pieces = buckets(back.reduce);
      stage.traffic.push({s, slot.backward_at().chunk, true, false, {}, {}, {}}, back.reduce,
                         pieces);
      stage.traffic.run_ahead(own, pass.start + (1.0 / pieces) * (pass.end - pass.start), pass.end);
      stage.critical = back.reduce.time / pieces;
    }
  }

  static void note_spare_overlappable(StageState& stage, const PassSlot& slot, Seconds spare) {
    if (stage.spare_overlappable < Seconds{} && runs_forward(slot.pass))
      stage.spare_overlappable = spare;
  }

  /// Hands the outputs of a pass on.
  void send(int s, std::int32_t index) {
    const PassEvent& pass = result_.passes[at(index)];
    const PassSlot& slot = pass.slot;
    // In a pair, the last layer's backward pass hides what is sent.
    Seconds ready = pass.end;
    if (slot.pass == Pass::pair && !c_.transfers_block) {
      ready = ready - c_.chunk(s, slot.backward.chunk).last_layer;
    }
    if (runs_forward(slot.pass)) {
      const ChunkNeighbour next = after(s, slot.at.chunk);
      // Behind the last chunk stands the loss: its gradient is there at once.
      if (!next.exists) {
        gradient_inputs_[input(s, slot.at)] = {pass.end, index};
      } else {
        const ChunkBatch there{next.chunk, slot.at.micro_batch};
        forward_inputs_[input(next.stage, there)] = {
            next.stays ? pass.end : transfer(s, next, slot.at, false, ready), index};
      }
    }
    if (makes_input_gradient(slot.pass)) {
      const ChunkBatch back = slot.backward_at();
      const ChunkNeighbour previous = before(s, back.chunk);
      if (previous.exists) {
        const ChunkBatch there{previous.chunk, back.micro_batch};
        gradient_inputs_[input(previous.stage, there)] = {
            previous.stays ? pass.end : transfer(s, previous, back, true, ready), index};
      }
    }
  }

  /// Returns when it has arrived. Transfers of one channel follow each other.
  Seconds transfer(int s, const ChunkNeighbour& to, ChunkBatch what, bool gradient, Seconds ready) {
    StageState& stage = stages_[at(s)];
    Seconds& channel = to.next ? stage.next_channel_free : stage.previous_channel_free;
    const Seconds start = max(ready, channel);
    channel = start + c_.hop;
    if (c_.transfers_block) stage.free = max(stage.free, channel);
    result_.transfers.push_back({s, to.stage, gradient, to.next, what, start, channel});
    return channel;
  }

  const StepCosts& c_;
  const TimelineOptions& options_;
  const std::vector<double>& slowdown_;
  std::vector<StageState> stages_;
  std::vector<Arrival> forward_inputs_, gradient_inputs_;
  Timeline result_;
};

}  // namespace

Timeline simulate(StepCosts costs, const TimelineOptions& options, std::vector<double> slowdown) {
  Simulation first(costs, options, slowdown, {});
  first.run();
  Timeline timeline = first.finish({});
  if (options.priority == Priority::by_need && costs.hide_reduce) {
    // What a step leaves over equals what it found left over: steps repeat.
    const std::vector<Seconds> carried = first.deferrable();
    Simulation again(costs, options, slowdown, carried);
    again.run();
    Timeline second = again.finish(carried);
    if (second.step_time < timeline.step_time) timeline = std::move(second);
  }
  timeline.costs = std::move(costs);
  timeline.options = options;
  timeline.slowdown = std::move(slowdown);
  return timeline;
}

}  // namespace scalemodel
