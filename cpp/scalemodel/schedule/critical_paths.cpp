#include "scalemodel/schedule/critical_paths.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/orders.hpp"

namespace scalemodel {
namespace {

/// Times at which paths are looked for, one layer's passes as the unit: backward passes one to
/// three times as long as forward ones, ends from nothing to several layers, kinds alike or not,
/// neighbours near or far. None is a round number: of paths that last equally long, one must not
/// stand for the other.
struct Sample {
  double forward, input, weight;
  double head, embedding;
  double later_kinds;  ///< a layer of another kind than the first
  double hop, alone;   ///< alone: a pass beside none over one in a pair
};
constexpr std::array<Sample, 14> kSamples{{
    {0.33, 0.34, 0.33, 0.7, 0.1, 2, 0.02, 1.1},
    {0.2, 0.25, 0.55, 0.5, 0.05, 2, 0.02, 1.1},
    {0.25, 0.5, 0.25, 1.5, 0.03, 1.1, 0.01, 1.01},
    {0.36, 0.44, 0.2, 4, 0.02, 3, 0.005, 1.02},
    {0.36, 0.44, 0.2, 1.03, 0.9, 2, 0.3, 1.3},
    {0.34, 0.34, 0.32, 0.02, 0.01, 1.1, 0.001, 1.01},
    {0.25, 0.5, 0.25, 0.3, 0.6, 3, 0.1, 1.2},
    {0.5, 0.45, 0.05, 2, 0.2, 1.1, 0.05, 1.1},
    {0.33, 0.34, 0.33, 10, 0.1, 2, 0.2, 1.1},
    {0.25, 0.5, 0.25, 1.03, 0.1, 1.1, 2, 1.5},
    {0.45, 0.5, 0.05, 0.3, 0.05, 8, 0.02, 1.1},
    {0.3, 0.6, 0.1, 0.2, 0.02, 0.3, 0.02, 1.02},
    {0.3, 0.6, 0.1, 30, 0.2, 1.1, 0.5, 1.1},
    {0.11, 0.17, 0.72, 0.1, 0.01, 3, 0.01, 1.05},
}};

PipelineTimes times_of(const Sample& s) {
  PipelineTimes times;
  const auto part = [&](double size) {
    const Seconds unit{size};
    return PartTimes{s.alone * s.forward * unit, s.alone * s.input * unit, s.weight * unit,
                     s.forward * unit, (s.input + s.weight) * unit};
  };
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k)
    times.parts[k] = part(k == 0 ? 1 : s.later_kinds);
  times.parts[kEmbeddingPart] = part(s.embedding);
  times.parts[kHeadPart] = part(s.head);
  times.hop = Seconds{s.hop};
  times.early = Seconds{s.input + s.weight};
  return times;
}

}  // namespace

/// Runs the passes of one step in order and remembers what each waited for.
class PipelineRun {
 public:
  using Counts = CriticalPaths::Counts;

  PipelineRun(const PipelineShape& shape, int micro_batches)
      : shape_(shape),
        chunks_per_stage_(static_cast<int>(shape.chunks.size()) / shape.pp),
        micro_batches_(micro_batches),
        stages_(at(shape.pp)),
        forward_inputs_(shape.chunks.size() * at(micro_batches)),
        gradient_inputs_(forward_inputs_.size()),
        lasts_(kKinds * shape.chunks.size()) {
    for (int s = 0; s < shape.pp; ++s) {
      orders_.push_back(stage_order(shape.schedule, shape.pp, chunks_per_stage_, s, micro_batches));
    }
    find_sequence();
  }

  /// Counts along the path that is critical at these times.
  Counts critical(const PipelineTimes& times) {
    set_durations(times);
    steps_.clear();
    for (Stage& stage : stages_) stage = Stage{};
    for (const Turn& turn : sequence_) run(turn);
    Node last;
    for (const Stage& stage : stages_) last = later(last, stage.free);
    return counted(last.step);
  }

 private:
  static constexpr std::int32_t kStart = -1;
  /// Kinds of steps of a chunk; a pair is its backward part on top of its forward part.
  static constexpr std::size_t kKinds = 6;
  enum Kind : std::uint8_t { kForward, kInput, kWeight, kPairedForward, kPairedBackward, kOther };

  /// A point in time and the step that ends there.
  struct Node {
    double time = 0;
    std::int32_t step = kStart;
  };
  /// One pass, or a hop, or what a pair hands on early, and the step that it waited for.
  struct Step {
    std::int32_t before;
    std::int16_t chunk;
    Kind kind;
    std::int8_t hops, early;
  };
  struct Stage {
    Node free, next_channel, previous_channel;
  };
  struct Turn {
    int stage;
    std::size_t position;
  };
  struct Neighbour {
    int stage = 0, chunk = 0;
    bool next = true, exists = false;
  };

  static const Node& later(const Node& a, const Node& b) { return b.time > a.time ? b : a; }

  Node add(const Node& from, double time, int chunk, Kind kind, int hops = 0, int early = 0) {
    steps_.push_back({from.step, static_cast<std::int16_t>(chunk), kind,
                      static_cast<std::int8_t>(hops), static_cast<std::int8_t>(early)});
    return {time, static_cast<std::int32_t>(steps_.size()) - 1};
  }

  bool dualpipe() const { return shape_.schedule == Schedule::dualpipe; }
  int chunk(int stage, int index) const { return stage * chunks_per_stage_ + index; }
  std::size_t input(int stage, ChunkBatch b) const {
    return at(chunk(stage, b.chunk)) * at(micro_batches_) + at(b.micro_batch);
  }

  /// Where the output of a chunk goes, and where its input comes from.
  Neighbour after(int s, int index) const {
    if (dualpipe() && index == 1) return {s - 1, index, false, s > 0};
    if (s + 1 < shape_.pp) return {s + 1, index, true, true};
    return {0, index + 1, true, !dualpipe() && index + 1 < chunks_per_stage_};
  }
  Neighbour before(int s, int index) const {
    if (dualpipe() && index == 1) return {s + 1, index, true, s + 1 < shape_.pp};
    if (s > 0) return {s - 1, index, false, true};
    return {shape_.pp - 1, index - 1, false, !dualpipe() && index > 0};
  }

  /// An order of all passes in which each comes after those it waits for: the same at any times.
  void find_sequence() {
    std::vector<bool> forward(forward_inputs_.size()), gradient(forward_inputs_.size());
    std::vector<std::size_t> position(orders_.size());
    const auto ready = [&](int s, const PassSlot& slot) {
      if (runs_forward(slot.pass) && before(s, slot.at.chunk).exists &&
          !forward[input(s, slot.at)]) {
        return false;
      }
      return !makes_input_gradient(slot.pass) || gradient[input(s, slot.backward_at())];
    };
    const auto hand_on = [&](int s, const PassSlot& slot) {
      if (runs_forward(slot.pass)) {
        const Neighbour to = after(s, slot.at.chunk);
        if (to.exists) forward[input(to.stage, {to.chunk, slot.at.micro_batch})] = true;
        if (!to.exists) gradient[input(s, slot.at)] = true;
      }
      if (!makes_input_gradient(slot.pass)) return;
      const ChunkBatch back = slot.backward_at();
      const Neighbour to = before(s, back.chunk);
      if (to.exists) gradient[input(to.stage, {to.chunk, back.micro_batch})] = true;
    };
    for (bool progress = true; progress;) {
      progress = false;
      for (int s = 0; s < shape_.pp; ++s) {
        std::size_t& next = position[at(s)];
        while (next < orders_[at(s)].size() && ready(s, orders_[at(s)][next])) {
          hand_on(s, orders_[at(s)][next]);
          sequence_.push_back({s, next++});
          progress = true;
        }
      }
    }
  }

  void set_durations(const PipelineTimes& times) {
    hop_ = times.hop.base();
    early_ = times.early.base();
    for (std::size_t c = 0; c < shape_.chunks.size(); ++c) {
      double* lasts = &lasts_[kKinds * c];
      std::fill_n(lasts, kKinds, 0.0);
      for (std::size_t part = 0; part < kPipelineParts; ++part) {
        const double n = count(shape_.chunks[c], part);
        const PartTimes& t = times.parts[part];
        lasts[kForward] += n * t.forward.base();
        lasts[kInput] += n * t.input_gradient.base();
        lasts[kWeight] += n * t.weight_gradient.base();
        lasts[kPairedForward] += n * t.paired_forward.base();
        lasts[kPairedBackward] += n * t.paired_backward.base();
      }
    }
  }

  static double count(const StageClass& chunk, std::size_t part) {
    if (part == kEmbeddingPart) return chunk.embedding ? 1 : 0;
    if (part == kHeadPart) return chunk.head ? 1 : 0;
    return chunk.layers[part];
  }

  void run(const Turn& turn) {
    const int s = turn.stage;
    const PassSlot& slot = orders_[at(s)][turn.position];
    Stage& stage = stages_[at(s)];
    const ChunkBatch back = slot.backward_at();
    const bool forward_arrives = runs_forward(slot.pass) && before(s, slot.at.chunk).exists;
    const bool gradient_arrives = makes_input_gradient(slot.pass);
    Node node = stage.free;
    if (shape_.transfers_serial &&
        (forward_arrives || (gradient_arrives && after(s, back.chunk).exists))) {
      node = add(node, node.time + hop_, 0, kOther, 1);
    }
    if (forward_arrives) node = later(node, forward_inputs_[input(s, slot.at)]);
    if (gradient_arrives) node = later(node, gradient_inputs_[input(s, back)]);
    const int ahead = chunk(s, slot.at.chunk), behind = chunk(s, back.chunk);
    const auto pass = [&](int c, Kind kind) {
      node = add(node, node.time + lasts_[kKinds * at(c) + kind], c, kind);
    };
    switch (slot.pass) {
      case Pass::forward:
        pass(ahead, kForward);
        break;
      case Pass::backward:
        pass(behind, kInput);
        pass(behind, kWeight);
        break;
      case Pass::input_gradient:
        pass(behind, kInput);
        break;
      case Pass::weight_gradient:
        pass(behind, kWeight);
        break;
      case Pass::pair:
        pass(ahead, kPairedForward);
        pass(behind, kPairedBackward);
        break;
    }
    stage.free = node;
    send(s, slot, node);
  }

  void send(int s, const PassSlot& slot, const Node& done) {
    const bool early = slot.pass == Pass::pair && !shape_.transfers_block;
    const Node ready = early ? add(done, done.time - early_, 0, kOther, 0, 1) : done;
    if (runs_forward(slot.pass)) {
      const Neighbour to = after(s, slot.at.chunk);
      if (!to.exists) {
        gradient_inputs_[input(s, slot.at)] = done;
      } else {
        forward_inputs_[input(to.stage, {to.chunk, slot.at.micro_batch})] = transfer(s, to, ready);
      }
    }
    if (!makes_input_gradient(slot.pass)) return;
    const ChunkBatch back = slot.backward_at();
    const Neighbour to = before(s, back.chunk);
    if (to.exists) {
      gradient_inputs_[input(to.stage, {to.chunk, back.micro_batch})] = transfer(s, to, ready);
    }
  }

  /// Transfers of one channel follow each other.
  Node transfer(int s, const Neighbour& to, const Node& ready) {
    Stage& stage = stages_[at(s)];
    Node& channel = to.next ? stage.next_channel : stage.previous_channel;
    const Node from = later(ready, channel);
    channel = add(from, from.time + hop_, 0, kOther, 1);
    if (shape_.transfers_block) stage.free = later(stage.free, channel);
    return channel;
  }

  Counts counted(std::int32_t step) const {
    Counts counts{};
    double* ends = &counts[CriticalPaths::kPasses * kPipelineParts];
    for (; step != kStart; step = steps_[at(step)].before) {
      const Step& taken = steps_[at(step)];
      ends[0] += taken.hops;
      ends[1] -= taken.early;
      if (taken.kind == kOther) continue;
      for (std::size_t part = 0; part < kPipelineParts; ++part) {
        counts[CriticalPaths::kPasses * part + taken.kind] +=
            count(shape_.chunks[at(taken.chunk)], part);
      }
    }
    return counts;
  }

  const PipelineShape& shape_;
  int chunks_per_stage_, micro_batches_;
  double hop_ = 0, early_ = 0;
  std::vector<StageOrder> orders_;
  std::vector<Turn> sequence_;
  std::vector<Stage> stages_;
  std::vector<Node> forward_inputs_, gradient_inputs_;
  std::vector<double> lasts_;
  std::vector<Step> steps_;
};

bool PipelineShape::has_closed_form(int micro_batches) const {
  if (pp == 1) return true;
  switch (schedule) {
    case Schedule::gpipe:
    case Schedule::one_f_one_b:
      return true;
    case Schedule::interleaved:
      return std::ranges::all_of(chunks, [&](const StageClass& chunk) {
        return chunk.total_layers() == chunks.front().total_layers();
      });
    case Schedule::zero_bubble:
      return micro_batches >= pp;
    case Schedule::dualpipe:
      return micro_batches % 2 == 0;
  }
  return true;
}

CriticalPaths::CriticalPaths(const PipelineShape& shape, int micro_batches)
    : pp_(shape.pp),
      micro_batches_(micro_batches),
      paced_by_stage_(shape.schedule != Schedule::interleaved) {
  const bool repeats = !paced_by_stage_ && micro_batches >= (kGroups - 1) * shape.pp;
  PipelineRun run(shape, micro_batches);
  PipelineRun further(shape, repeats ? micro_batches + shape.pp : 1);
  // Long pipelines are costly to run; the first samples are the most usual ones.
  const bool large = shape.chunks.size() * static_cast<std::size_t>(micro_batches) > 20'000;
  std::vector<Path> paths;
  for (const Sample& sample : std::span(kSamples).first(large ? 4 : kSamples.size())) {
    const PipelineTimes times = times_of(sample);
    const Path path{run.critical(times), repeats ? further.critical(times) : Counts{}};
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  }
  keep(paths);
}

void CriticalPaths::keep(const std::vector<Path>& paths) {
  for (std::size_t i = 0; i < kCounts; ++i) {
    const bool used = std::ranges::any_of(
        paths, [&](const Path& path) { return path.first[i] != 0 || path.longer[i] != 0; });
    if (used) used_.push_back(i);
  }
  for (const Path& path : paths) {
    for (const std::size_t i : used_) {
      first_.push_back(path.first[i]);
      longer_.push_back(path.longer[i]);
    }
  }
}

CriticalPaths::Counts CriticalPaths::flat(const PipelineTimes& times) noexcept {
  Counts flat{};
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    const PartTimes& t = times.parts[part];
    double* of_part = &flat[kPasses * part];
    of_part[0] = t.forward.base();
    of_part[1] = t.input_gradient.base();
    of_part[2] = t.weight_gradient.base();
    of_part[3] = t.paired_forward.base();
    of_part[4] = t.paired_backward.base();
  }
  flat[kPasses * kPipelineParts] = times.hop.base();
  flat[kPasses * kPipelineParts + 1] = times.early.base();
  return flat;
}

Seconds CriticalPaths::duration(const PipelineTimes& times, double micro_batches,
                                Seconds slowest) const noexcept {
  const Counts flat_times = flat(times);
  const std::size_t width = used_.size();
  Counts each;
  for (std::size_t i = 0; i < width; ++i) each[i] = flat_times[used_[i]];
  const double groups = (micro_batches - micro_batches_) / pp_;
  const bool extended = !paced_by_stage_ && groups > 0;
  const auto longest = [&](const std::vector<double>& counts) {
    double most = 0;
    for (std::size_t path = 0; path < counts.size(); path += width) {
      double lasts = 0;
      for (std::size_t i = 0; i < width; ++i) lasts += counts[path + i] * each[i];
      most = std::max(most, lasts);
    }
    return Seconds{most};
  };
  const Seconds first = longest(first_);
  if (!extended) return first + (micro_batches - micro_batches_) * slowest;
  return first + groups * max(longest(longer_) - first, pp_ * slowest);
}

}  // namespace scalemodel
