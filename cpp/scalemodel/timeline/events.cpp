#include "scalemodel/timeline/events.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "scalemodel/base/index.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::array<std::pair<Stream, Activity>, 4> kPassStreams{
    {{Stream::tp, Activity::tensor_parallel},
     {Stream::cp, Activity::context_parallel},
     {Stream::ep, Activity::expert_parallel},
     {Stream::host, Activity::offload}}};

/// A half of a pass: the kernels and traffic of one micro-batch in one chunk.
struct PassPart {
  Activity activity = Activity::forward;
  ChunkBatch what;
  const PassCost* cost = nullptr;
  Seconds recompute, compute;  ///< before the slowdown; compute without recomputation
};

/// The one or two halves of a pass.
class Parts {
 public:
  Parts(const Timeline& timeline, const PassEvent& pass) {
    const StepCosts& costs = timeline.costs;
    const PassSlot& slot = pass.slot;
    const bool pair = slot.pass == Pass::pair;
    const ChunkCost& ahead = costs.chunk(pass.stage, slot.at.chunk);
    const ChunkCost& back = costs.chunk(pass.stage, slot.backward_at().chunk);
    const PassCost& forward = pair ? ahead.paired_forward : ahead.forward;
    const PassCost& backward = pair ? back.paired_backward : back.backward;
    if (runs_forward(slot.pass)) {
      add({Activity::forward, slot.at, &forward, Seconds{}, forward.compute});
    }
    const Seconds kernels = backward.compute - back.recompute;
    const ChunkBatch what = slot.backward_at();
    switch (slot.pass) {
      case Pass::forward:
        break;
      case Pass::backward:
      case Pass::pair:
        add({Activity::backward, what, &backward, back.recompute, kernels});
        break;
      case Pass::input_gradient:
        add({Activity::input_gradient, what, &backward, back.recompute,
             kernels - back.weight_gradient});
        break;
      case Pass::weight_gradient:
        add({Activity::weight_gradient, what, nullptr, Seconds{}, back.weight_gradient});
        break;
    }
  }

  const PassPart* begin() const { return parts_.data(); }
  const PassPart* end() const { return parts_.data() + count_; }
  Seconds compute() const {
    Seconds sum;
    for (const PassPart& part : *this) sum += part.recompute + part.compute;
    return sum;
  }

 private:
  void add(const PassPart& part) { parts_[count_++] = part; }

  std::array<PassPart, 2> parts_;
  std::size_t count_ = 0;
};

Activity pass_traffic(const PassPart& part) {
  return part.activity == Activity::forward ? Activity::gather_parameters
                                            : Activity::reduce_gradients;
}

std::size_t stream_of(const Event& event) {
  return at(event.rank) * kStreams + static_cast<std::size_t>(event.stream);
}

/// How many events each stream of each rank has.
class EventCounts {
 public:
  explicit EventCounts(const Timeline& timeline) : counts_(at(timeline.costs.stages) * kStreams) {}

  void add(const Event& event) {
    if (event.duration > Seconds{}) ++counts_[stream_of(event)];
  }

  std::vector<std::size_t> places() const {
    std::vector<std::size_t> places{0};
    for (const std::size_t count : counts_) places.push_back(places.back() + count);
    return places;
  }

 private:
  std::vector<std::size_t> counts_;
};

/// Puts every event where it belongs in a table with `put(place, event)` and `get(place)`.
template <class Table>
class EventWriter {
 public:
  EventWriter(const std::vector<std::size_t>& places, Table& table)
      : places_(places), table_(table), next_(places.begin(), places.end() - 1) {
    newest_.resize(next_.size());
    unsorted_.resize(next_.size());
  }

  void add(const Event& event) {
    if (event.duration <= Seconds{}) return;
    const std::size_t stream = stream_of(event);
    if (event.start < newest_[stream]) unsorted_[stream] = true;
    newest_[stream] = event.start;
    table_.put(next_[stream]++, event);
  }

  /// Brings each stream into the order of time.
  void finish() {
    for (std::size_t stream = 0; stream < next_.size(); ++stream) {
      if (unsorted_[stream]) sort(places_[stream], places_[stream + 1]);
    }
  }

 private:
  void sort(std::size_t begin, std::size_t end) {
    poll_point(static_cast<std::int64_t>(end - begin));
    std::vector<Event> sorted;
    sorted.reserve(end - begin);
    for (std::size_t place = begin; place < end; ++place) sorted.push_back(table_.get(place));
    const auto start = [](const Event& event) { return event.start.base(); };
    std::ranges::stable_sort(sorted, {}, start);
    for (const Event& event : sorted) table_.put(begin++, event);
  }

  const std::vector<std::size_t>& places_;
  Table& table_;
  std::vector<std::size_t> next_;  ///< place of the next event of each stream
  std::vector<Seconds> newest_;    ///< start of its last one
  std::vector<bool> unsorted_;
};

/// Events as records.
struct EventRecords {
  std::vector<Event>& all;

  void put(std::size_t place, const Event& event) { all[place] = event; }
  const Event& get(std::size_t place) const { return all[place]; }
};

/// Events as columns.
struct EventTable {
  const EventColumns& to;

  void put(std::size_t place, const Event& event) const {
    to.rank[place] = event.rank;
    to.stream[place] = static_cast<std::int8_t>(event.stream);
    to.activity[place] = static_cast<std::int8_t>(event.activity);
    to.chunk[place] = event.chunk;
    to.micro_batch[place] = event.micro_batch;
    to.start[place] = event.start.base();
    to.duration[place] = event.duration.base();
    to.bytes[place] = event.bytes.base();
  }
  Event get(std::size_t place) const {
    return {to.rank[place],
            static_cast<Stream>(to.stream[place]),
            static_cast<Activity>(to.activity[place]),
            to.chunk[place],
            to.micro_batch[place],
            Seconds{to.start[place]},
            Seconds{to.duration[place]},
            Bytes{to.bytes[place]}};
  }
};

/// Kernels, then the exposed part of each stream's traffic.
template <class List>
void add_pass(List& list, const Timeline& timeline, const PassEvent& pass) {
  const Parts parts(timeline, pass);
  const Seconds plain = parts.compute();
  const double slow = plain > Seconds{} ? pass.compute / plain : 0;
  Seconds now = pass.start;
  const auto kernels = [&](Activity activity, const PassPart& part, Seconds compute) {
    list.add({pass.stage, Stream::compute, activity, part.what.chunk, part.what.micro_batch, now,
              slow * compute, Bytes{}});
    now += slow * compute;
  };
  for (const PassPart& part : parts) {
    kernels(Activity::recompute, part, part.recompute);
    kernels(part.activity, part, part.compute);
  }
  now += pass.stall;
  for (const auto& [stream, activity] : kPassStreams) {
    // Halves of a pair share a stream: one after the other, the exposed parts at the end.
    Seconds exposed, busy;
    for (const PassPart& part : parts) {
      if (part.cost == nullptr) continue;
      exposed += part.cost->on(stream).exposed;
      busy += part.cost->on(stream).busy;
    }
    now += exposed;
    Seconds start = max(pass.start, now - busy);
    for (const PassPart& part : parts) {
      if (part.cost == nullptr) continue;
      const StreamUse& use = part.cost->on(stream);
      const Seconds duration = min(use.busy, now - start);
      list.add({pass.stage, stream, activity, part.what.chunk, part.what.micro_batch, start,
                duration, use.bytes});
      start += duration;
    }
  }
  // Last, so that traffic between the passes goes on before it.
  Seconds busy;
  for (const PassPart& part : parts) {
    if (part.cost != nullptr) busy += part.cost->on(Stream::dp).busy;
  }
  Seconds start = max(pass.start, pass.end - busy);
  for (const PassPart& part : parts) {
    if (part.cost == nullptr) continue;
    const StreamUse& use = part.cost->on(Stream::dp);
    const Activity activity = pass_traffic(part);
    const Seconds duration = min(use.busy, pass.end - start);
    list.add({pass.stage, Stream::dp, activity, part.what.chunk, part.what.micro_batch, start,
              duration, use.bytes});
    start += duration;
  }
}

template <class List>
void add_transfer(List& list, const Timeline& timeline, const TransferEvent& transfer) {
  const Seconds duration = transfer.end - transfer.start;
  const Bytes bytes = timeline.costs.boundary;
  const Activity sends = transfer.gradient ? Activity::send_gradients : Activity::send_activations;
  const Activity receives =
      transfer.gradient ? Activity::receive_gradients : Activity::receive_activations;
  list.add({transfer.from, transfer.to_next ? Stream::send_next : Stream::send_previous, sends,
            transfer.at.chunk, transfer.at.micro_batch, transfer.start, duration, bytes});
  list.add({transfer.to, transfer.to_next ? Stream::receive_previous : Stream::receive_next,
            receives, transfer.at.chunk, transfer.at.micro_batch, transfer.start, duration, bytes});
}

template <class List>
void add_end_of_step(List& list, const Timeline& timeline) {
  const StepCosts& costs = timeline.costs;
  for (std::int32_t s = 0; s < costs.stages; ++s) {
    const StageResources& r = costs.resources[at(s)];
    const Seconds end = timeline.stage_end[at(s)];
    list.add({s, Stream::compute, Activity::decode_gradients, -1, -1, end - r.decode, r.decode,
              Bytes{}});
    list.add({s, Stream::host, Activity::optimizer_transfer, -1, -1, timeline.update,
              r.optimizer_transfer, Bytes{}});
    list.add({s, Stream::compute, Activity::optimizer, -1, -1,
              timeline.update + r.optimizer_transfer, r.optimizer, Bytes{}});
    list.add(
        {s, Stream::host, Activity::overhead, -1, -1, timeline.overhead, costs.overhead, Bytes{}});
  }
}

template <class List>
void add_events(List& list, const Timeline& timeline) {
  for (const PassEvent& pass : timeline.passes) {
    poll_point();
    add_pass(list, timeline, pass);
  }
  for (const TransferEvent& transfer : timeline.transfers) {
    poll_point();
    add_transfer(list, timeline, transfer);
  }
  for (const TrafficEvent& traffic : timeline.traffic) {
    list.add({traffic.stage, Stream::dp,
              traffic.reduce ? Activity::reduce_gradients : Activity::gather_parameters,
              traffic.chunk, -1, traffic.start, traffic.end - traffic.start, traffic.bytes});
  }
  add_end_of_step(list, timeline);
}

/// Collects a path from its end to its beginning.
class PathWriter {
 public:
  explicit PathWriter(const Timeline& timeline) : t_(timeline), now_(timeline.step_time) {}

  std::vector<Event> write() {
    const StepCosts& costs = t_.costs;
    step(0, Stream::host, Activity::overhead, {-1, -1}, t_.overhead);
    const std::int32_t slowest = slowest_update();
    const StageResources& r = costs.resources[at(slowest)];
    step(slowest, Stream::compute, Activity::optimizer, {-1, -1}, now_ - r.optimizer);
    step(slowest, Stream::host, Activity::optimizer_transfer, {-1, -1}, t_.update);
    const auto last = std::ranges::max_element(t_.stage_end);
    const auto stage = static_cast<std::int32_t>(last - t_.stage_end.begin());
    step(stage, Stream::compute, Activity::decode_gradients, {-1, -1},
         now_ - costs.resources[at(stage)].decode);
    follow_passes(stage);
    std::ranges::reverse(path_);
    return std::move(path_);
  }

 private:
  std::int32_t slowest_update() const {
    const auto& all = t_.costs.resources;
    const auto found = std::ranges::max_element(
        all, {}, [](const StageResources& r) { return r.optimizer + r.optimizer_transfer; });
    return static_cast<std::int32_t>(found - all.begin());
  }

  void step(std::int32_t rank, Stream stream, Activity activity, ChunkBatch what, Seconds start) {
    if (start >= now_) return;
    path_.push_back(
        {rank, stream, activity, what.chunk, what.micro_batch, start, now_ - start, Bytes{}});
    now_ = start;
  }

  void follow_passes(std::int32_t stage) {
    std::int32_t index = t_.first_pass[at(stage + 1)] - 1;
    const Seconds kernels_end = t_.passes[at(index)].end;
    step(stage, Stream::dp, Activity::reduce_gradients, {-1, -1}, kernels_end);
    while (true) {
      poll_point();
      const PassEvent& pass = t_.passes[at(index)];
      follow_pass(pass);
      const ChunkBatch parameters{pass.slot.at.chunk, -1};
      step(pass.stage, Stream::dp, Activity::gather_parameters, parameters, pass.ready);
      if (pass.wait == Wait::none) {
        step(pass.stage, Stream::dp, Activity::gather_parameters, {-1, -1}, Seconds{});
        return;
      }
      index = pass.before;
      const PassEvent& before = t_.passes[at(index)];
      send(before, pass.wait == Wait::gradient ||
                       (pass.wait == Wait::order && !runs_forward(before.slot.pass)));
    }
  }

  /// Through a pass, from what its kernels wait for to the kernels.
  void follow_pass(const PassEvent& pass) {
    const Parts parts(t_, pass);
    const PassPart last = *(parts.end() - 1);
    const auto exposed = [&](Stream stream) {
      Seconds sum;
      for (const PassPart& part : parts) {
        if (part.cost != nullptr) sum += part.cost->on(stream).exposed;
      }
      return sum;
    };
    Seconds start = pass.end - exposed(Stream::dp);
    step(pass.stage, Stream::dp, pass_traffic(last), last.what, start);
    for (std::size_t i = kPassStreams.size(); i > 0; --i) {
      const auto& [stream, activity] = kPassStreams[i - 1];
      start = start - exposed(stream);
      step(pass.stage, stream, activity, last.what, start);
    }
    step(pass.stage, Stream::dp, Activity::gather_parameters, last.what, start - pass.stall);
    step(pass.stage, Stream::compute, last.activity, last.what, pass.start);
  }

  /// From the end of a pass to the arrival of what it sent.
  void send(const PassEvent& pass, bool gradient) {
    const ChunkBatch what = gradient ? pass.slot.backward_at() : pass.slot.at;
    const ScheduleTraits& traits = traits_of(t_.costs.schedule);
    const bool turned = (traits.two_directions || traits.v_shape) && what.chunk == 1;
    step(pass.stage, gradient != turned ? Stream::send_previous : Stream::send_next,
         gradient ? Activity::send_gradients : Activity::send_activations, what, pass.end);
  }

  const Timeline& t_;
  Seconds now_;
  std::vector<Event> path_;
};

/// Changes of what one stage holds.
class StageMemory {
 public:
  StageMemory(const Timeline& timeline, std::int32_t stage, std::vector<MemorySample>& samples)
      : t_(timeline), stage_(stage), samples_(samples) {}

  void write() {
    MemoryKinds allocated = t_.costs.resources[at(stage_)].resident;
    record(Seconds{}, allocated);
    for (std::int32_t i = t_.first_pass[at(stage_)]; i < t_.first_pass[at(stage_ + 1)]; ++i) {
      poll_point();
      const PassEvent& pass = t_.passes[at(i)];
      const PassSlot& slot = pass.slot;
      if (runs_forward(slot.pass)) {
        const ChunkCost& chunk = t_.costs.chunk(stage_, slot.at.chunk);
        allocated.activations += chunk.activations;
        allocated.logits += chunk.logits;
      }
      const ChunkCost& back = t_.costs.chunk(stage_, slot.backward_at().chunk);
      const ChunkCost& ahead = t_.costs.chunk(stage_, slot.at.chunk);
      allocated.temporary = max(back.temporary, ahead.temporary);
      record(pass.start, allocated);
      allocated.temporary = Bytes{};
      if (makes_input_gradient(slot.pass))
        allocated.logits = without(allocated.logits, back.logits);
      if (makes_weight_gradient(slot.pass)) {
        allocated.activations = without(allocated.activations, back.activations);
      }
      record(pass.end, allocated);
    }
    allocated.activations = allocated.logits = Bytes{};
    record(t_.step_time, allocated);
  }

 private:
  /// Sums of many terms come back to zero only nearly.
  static Bytes without(Bytes allocated, Bytes freed) { return max(Bytes{}, allocated - freed); }

  void record(Seconds time, const MemoryKinds& allocated) {
    if (!samples_.empty() && samples_.back().rank == stage_ && samples_.back().time == time) {
      samples_.back().allocated = allocated;
      return;
    }
    samples_.push_back({stage_, time, allocated});
  }

  const Timeline& t_;
  std::int32_t stage_;
  std::vector<MemorySample>& samples_;
};

}  // namespace

std::vector<std::size_t> event_places(const Timeline& timeline) {
  EventCounts counts(timeline);
  add_events(counts, timeline);
  return counts.places();
}

std::vector<Event> events(const Timeline& timeline) {
  const std::vector<std::size_t> places = event_places(timeline);
  std::vector<Event> all(places.back());
  EventRecords records{all};
  EventWriter writer(places, records);
  add_events(writer, timeline);
  writer.finish();
  return all;
}

void write_events(const Timeline& timeline, const std::vector<std::size_t>& places,
                  const EventColumns& columns) {
  EventTable table{columns};
  EventWriter writer(places, table);
  add_events(writer, timeline);
  writer.finish();
}

void write_records(const std::vector<Event>& events, const EventColumns& columns) {
  EventTable table{columns};
  for (std::size_t place = 0; place < events.size(); ++place) table.put(place, events[place]);
}

std::vector<Event> critical_path(const Timeline& timeline) { return PathWriter(timeline).write(); }

std::vector<MemorySample> memory_profile(const Timeline& timeline) {
  std::vector<MemorySample> samples;
  for (std::int32_t s = 0; s < timeline.costs.stages; ++s) {
    StageMemory(timeline, s, samples).write();
  }
  return samples;
}

}  // namespace scalemodel
