// The longest of a pipeline's critical paths against passes simulated one by one.
#include "scalemodel/schedule/critical_paths.hpp"

#include <algorithm>

#include "draws.hpp"
#include "scalemodel/timeline/timeline.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

/// The same pipeline twice: as parts and as passes.
struct Both {
  PipelineShape shape;
  PipelineTimes times;
  StepCosts costs;

  int micro_batches() const { return costs.micro_batches; }
};

PartTimes any_part(testing::Random& random, double size, double overlap_efficiency) {
  PartTimes t;
  t[kForward] = Seconds{size * random.between(0.3, 1)};
  t[kWeightGradient] = Seconds{size * random.between(0.1, 0.8)};
  t[kInputGradient] = Seconds{size * random.between(0.3, 1.5)};
  t[kPairedForward] = t[kForward];
  t[kPairedBackward] = t[kInputGradient] + t[kWeightGradient];
  for (std::size_t pass = 0; pass < kOverlappable; ++pass)
    t[kOverlappable + pass] = overlap_efficiency * t[pass];
  return t;
}

/// The cost of a chunk as its parts add up.
ChunkCost chunk_cost(const StageClass& chunk, const PipelineTimes& times, bool gather_hides,
                     bool reduce_hides) {
  ChunkCost cost;
  PartTimes sum;
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    const double count = part == kEmbeddingPart ? chunk.embedding
                         : part == kHeadPart    ? chunk.head
                                                : chunk.layers[part];
    for (std::size_t i = 0; i < kPassTimes; ++i) sum[i] += count * times.parts[part][i];
  }
  cost.layers = chunk.layers;
  cost.forward.compute = cost.paired_forward.compute = sum[kForward];
  cost.backward.compute = cost.paired_backward.compute = sum[kPairedBackward];
  cost.last_layer = times.parts[0][kPairedBackward];
  cost.weight_gradient = sum[kWeightGradient];
  const int buckets = std::max(1, chunk.total_layers());
  cost.gather = {sum[gather_hides ? kGathering : kGatheringBefore], Bytes{}, buckets};
  cost.reduce = {sum[reduce_hides ? kReduction : kReductionAfter], Bytes{}, buckets};
  return cost;
}

/// Any schedule, stages, chunks of any layers, micro-batches, transfers and traffic.
Both any_pipeline(testing::Random& random) {
  Both both;
  PipelineShape& shape = both.shape;
  StepCosts& costs = both.costs;
  shape.schedule = random.pick_enum<Schedule>();
  const bool dualpipe = shape.schedule == Schedule::dualpipe;
  const bool turns = traits_of(shape.schedule).v_shape;
  shape.pp = random.pick({2, 4, 6, 8});
  shape.vpp = shape.schedule == Schedule::interleaved ? random.pick({2, 3, 5}) : turns ? 2 : 1;
  const int per_stage = dualpipe ? 2 : shape.vpp;
  const int base = random.below(3) + 1;
  for (int i = 0; i < shape.pp * per_stage; ++i) {
    StageClass chunk;
    chunk.layers[0] = base + random.below(2);
    shape.chunks.push_back(chunk);
  }
  // Both directions of DualPipe begin with the embedding and end with the head.
  const auto last = shape.chunks.size() - 1;
  shape.chunks[0].embedding = shape.chunks[dualpipe || turns ? 1 : last].head = true;
  if (dualpipe) shape.chunks[last].embedding = shape.chunks[last - 1].head = true;
  shape.transfers_block = random.flip();
  shape.transfers_serial = shape.transfers_block && random.flip();
  shape.tower = random.below(4) == 0;

  const double overlap_efficiency = random.between(0.1, 1);
  const bool gather_hides = random.flip(), reduce_hides = random.flip();
  PipelineTimes& times = both.times;
  times.parts[0] = any_part(random, 1, overlap_efficiency);
  times.parts[kEmbeddingPart] =
      any_part(random, random.between(0.01, shape.tower ? 30 : 0.3), overlap_efficiency);
  times.parts[kHeadPart] = any_part(random, random.between(0.1, 2), overlap_efficiency);
  for (const std::size_t part : {std::size_t{0}, kEmbeddingPart, kHeadPart}) {
    const double size = part == 0 ? 1 : random.between(0.1, 4);
    times.parts[part][gather_hides ? kGathering : kGatheringBefore] =
        Seconds{size * random.between(0, 3)};
    times.parts[part][reduce_hides ? kReduction : kReductionAfter] =
        Seconds{size * random.between(0, 3)};
  }
  times.hop = Seconds{random.between(0, 0.5)};

  costs.schedule = shape.schedule;
  costs.stages = shape.pp;
  costs.chunks_per_stage = per_stage;
  costs.micro_batches = random.flip() ? 1 + random.below(shape.pp) : 1 + random.below(60);
  costs.resources.resize(static_cast<std::size_t>(shape.pp));
  costs.hop = times.hop;
  costs.transfers_block = shape.transfers_block;
  costs.transfers_serial = shape.transfers_serial;
  costs.hide_gather = gather_hides;
  costs.hide_reduce = reduce_hides;
  costs.overlap_efficiency = overlap_efficiency;
  for (const StageClass& chunk : shape.chunks) {
    costs.chunks.push_back(chunk_cost(chunk, times, gather_hides, reduce_hides));
  }
  return both;
}

/// What a micro-batch of the busiest stage takes; in DualPipe half of it runs through each chunk.
Seconds slowest(const StepCosts& costs) {
  Seconds most;
  for (int s = 0; s < costs.stages; ++s) {
    Seconds busy;
    for (int i = 0; i < costs.chunks_per_stage; ++i) {
      busy += costs.chunk(s, i).forward.compute + costs.chunk(s, i).backward.compute;
    }
    most = max(most, busy);
  }
  return costs.schedule == Schedule::dualpipe ? 0.5 * most : most;
}

TEST_CASE("the longest critical path is the step, whatever the pipeline") {
  testing::Random random(61);
  int far = 0;
  constexpr int kTrials = testing::draws(300);
  for (int i = 0; i < kTrials; ++i) {
    Both both = any_pipeline(random);
    if (!both.shape.transfers_block) {
      // A pair hands on early what its last layer does not change.
      both.times.early = both.costs.chunks[0].last_layer;
    }
    const int m = both.micro_batches(), p = both.shape.pp;
    const Seconds step = simulate(both.costs, {}, {}).period;
    const Seconds longest = critical_paths(both.shape, CriticalPaths::representative(p, m))
                                ->duration(both.times, m, slowest(both.costs))
                                .total();
    CAPTURE(name_of(both.shape.schedule));
    CAPTURE(p);
    CAPTURE(both.shape.vpp);
    CAPTURE(m);
    CHECK(longest / step == testing::Approx(1).epsilon(0.05));
    far += std::abs(longest / step - 1) > 0.02 ? 1 : 0;
  }
  CHECK(far <= kTrials / 100);
}

}  // namespace
}  // namespace scalemodel
