#include "scalemodel/estimator/mixed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/economics/step.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
#include "scalemodel/power/phases.hpp"
#include "scalemodel/schedule/pipeline.hpp"
#include "scalemodel/timeline/events.hpp"

namespace scalemodel {
namespace {

/// The first reason for which a part cannot run; tabulates those that can.
Reason first_reason(const std::vector<MixedPart>& parts, const Strategy& strategy) {
  for (const MixedPart& part : parts) {
    const Tables& t = *part.tables;
    const Degrees degrees = resolve_degrees(strategy, t.cluster(), t.task());
    const Reason reason = first_violation(strategy, degrees, t.model(), t.cluster(), t.task());
    if (reason != Reason::ok) return reason;
    part.tables->tabulate(strategy);
  }
  return Reason::ok;
}

void check_shares(const std::vector<MixedPart>& parts, int whole, const char* what) {
  int sum = 0;
  bool positive = !parts.empty();
  for (const MixedPart& part : parts) {
    sum += part.share;
    positive = positive && part.share >= 1;
  }
  if (positive && sum == whole) return;
  throw MalformedQuestion("shares: " + std::to_string(sum) + " " + what +
                          " in all; must be at least 1 each and sum to " + std::to_string(whole));
}

/// Chunks of stages that hold these numbers of layers, in order.
std::vector<StageClass> chunks_of(const Model& model, const std::vector<int>& layers) {
  std::vector<StageClass> chunks(layers.size());
  std::size_t layer = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    for (int n = layers[s]; n > 0; --n, ++layer) ++chunks[s].layers[model.layer_kind[layer]];
    chunks[s].first_index = chunks[s].last_index = static_cast<int>(s);
    chunks[s].count = 1;
    chunks[s].stage_layers = layers[s];
  }
  chunks.front().embedding = chunks.back().head = true;
  chunks.back().layers[model.mtp_kind] += model.mtp_layers;
  return chunks;
}

Seconds busy(const ChunkCost& chunk, double overlap_slowdown) {
  const auto of = [&](const PassCost& pass) {
    return pass.compute + pass.exposed() + overlap_slowdown * pass.hidden;
  };
  return of(chunk.forward) + of(chunk.backward);
}

/// A step whose stages run on their kinds; `kind`: of each stage.
StepCosts spliced(const std::vector<MixedPart>& parts, const std::vector<std::size_t>& kind,
                  const Strategy& strategy, const std::vector<StageClass>& chunks) {
  std::vector<StepCosts> costs;
  costs.reserve(parts.size());
  for (const MixedPart& part : parts) {
    costs.push_back(step_costs(*part.tables, strategy, {}, chunks));
  }
  StepCosts step = costs.front();
  for (std::size_t s = 0; s < kind.size(); ++s) {
    step.chunks[s] = costs[kind[s]].chunks[s];
    step.resources[s] = costs[kind[s]].resources[s];
  }
  for (const StepCosts& other : costs) {
    step.hop = max(step.hop, other.hop);
    step.overhead = max(step.overhead, other.overhead);
  }
  return step;
}

std::vector<int> even_layers(int layers, int stages) {
  std::vector<int> split(static_cast<std::size_t>(stages), layers / stages);
  const int extra = layers % stages, first = (stages - extra) / 2;
  for (int s = first; s < first + extra; ++s) ++split[static_cast<std::size_t>(s)];
  return split;
}

/// Layer after layer to the stage that is done first with one more, while its kind has any left of
/// its `quota`. A layer's time on a stage is the mean over an even split, the ends' what their
/// stages take beyond.
std::vector<int> balanced_layers(const StepCosts& even, const std::vector<int>& split,
                                 const std::vector<std::size_t>& kind, std::vector<int> quota) {
  const std::size_t stages = split.size();
  std::vector<Seconds> each(stages), taken(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const ChunkCost& chunk = even.chunks[s];
    const bool end = chunk.embedding || chunk.head;
    const std::size_t like = !end ? s : chunk.embedding ? std::min(s + 1, stages - 1) : s - 1;
    const bool alike = like != s && !even.chunks[like].embedding && !even.chunks[like].head;
    const Seconds own = busy(chunk, even.overlap_slowdown);
    each[s] = own / std::max(1, chunk.total_layers());
    if (!alike) continue;
    // An inner neighbour tells a layer from the end, if it is of the same kind.
    const Seconds inner = busy(even.chunks[like], even.overlap_slowdown) /
                          std::max(1, even.chunks[like].total_layers());
    each[s] = min(each[s], inner);
    taken[s] = max(Seconds{}, own - chunk.total_layers() * each[s]);
  }
  std::vector<int> layers(stages);
  const auto give = [&](std::size_t s) {
    ++layers[s];
    --quota[kind[s]];
    taken[s] += each[s];
  };
  for (std::size_t s = 0; s < stages; ++s) give(s);
  const int all = std::accumulate(split.begin(), split.end(), 0);
  for (int left = all - static_cast<int>(stages); left > 0; --left) {
    std::size_t next = stages;
    for (std::size_t s = 0; s < stages; ++s) {
      if (quota[kind[s]] <= 0) continue;
      if (next == stages || taken[s] + each[s] < taken[next] + each[next]) next = s;
    }
    give(next);
  }
  return layers;
}

/// A pipeline with its layers on stages, simulated.
struct StagedRun {
  std::vector<int> layers;
  Timeline timeline;
  std::vector<Bytes> memory;  ///< of each part
  double excess = 0;          ///< memory beyond that of the part that lacks most, as a share

  bool better_than(const StagedRun& other) const {
    if (excess != other.excess) return excess < other.excess;
    return timeline.step_time < other.timeline.step_time;
  }
};

/// What a rank does in a step; the rest of it idles.
struct Work {
  Seconds computing, communicating;
};

Work work_of_stage(const Timeline& timeline, std::size_t stage) {
  Work work;
  Seconds last;
  const auto begin = static_cast<std::size_t>(timeline.first_pass[stage]);
  const auto end = static_cast<std::size_t>(timeline.first_pass[stage + 1]);
  for (std::size_t p = begin; p < end; ++p) {
    const PassEvent& pass = timeline.passes[p];
    work.computing += pass.compute;
    work.communicating += pass.end - pass.start - pass.compute;
    last = pass.end;
  }
  work.computing += timeline.costs.resources[stage].optimizer;
  work.communicating += timeline.stage_end[stage] - last;
  return work;
}

/// Energy and price from what the ranks of each part do on average.
void set_energy_and_cost(MixedStep& step, const std::vector<MixedPart>& parts,
                         const std::vector<Work>& work) {
  int shares = 0;
  for (const MixedPart& part : parts) shares += part.share;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Cluster& cluster = parts[k].tables->cluster();
    const double accelerators = static_cast<double>(cluster.accelerators) * parts[k].share / shares;
    step.power.push_back(mean_power(cluster.accelerator.power, work[k].computing / step.step_time,
                                    work[k].communicating / step.step_time));
    step.energy += facility_energy(step.step_time, step.power[k], accelerators, cluster.host_power,
                                   accelerators / cluster.node_accelerators, cluster.pue);
    step.cost += rental_cost(step.step_time, accelerators, cluster.price);
  }
}

void set_memory(MixedStep& step, const std::vector<MixedPart>& parts, std::size_t k, Bytes memory) {
  step.memory[k] = max(step.memory[k], memory);
  if (memory > parts[k].tables->cluster().accelerator.memory_capacity) {
    step.verdict = Reason::out_of_memory;
  }
}

/// What no split of the layers can beat. With y_s the time of stage s for a micro-batch, at c_s
/// layers a second, the first micro-batch has to reach a stage and the last to return from it:
///
///     m y_s + sum over i < s of y_i <= step,   sum of c_s y_s = layers,   y_s >= 0
///
/// The most layers per second of step follow backwards, v_s being that of the stages from s on:
/// v_s = max(v_(s+1), c_s/m + (1 - 1/m) v_(s+1)). Deferred weight gradients do not hold up the
/// return: 1 - 0/m. `two`: costs of two layers on each stage, `one` of one.
Seconds least_time(const StepCosts& one, const StepCosts& two, int layers) {
  const double m = one.micro_batches;
  const double chained = traits_of(one.schedule).splits_backward ? 0 : 1;
  double most = 0;
  for (std::size_t s = one.chunks.size(); s-- > 0;) {
    const Seconds each =
        busy(two.chunks[s], two.overlap_slowdown) - busy(one.chunks[s], one.overlap_slowdown);
    if (each <= Seconds{}) return Seconds{};
    most = std::max(most, 1 / (m * each.base()) + (1 - chained / m) * most);
  }
  return Seconds{layers / most};
}

/// Whether all layers find room: each takes its weights and states on a stage, and its activations
/// of every micro-batch in flight there. `capacity`: of each stage; `one`, `two` as above.
bool may_fit(const StepCosts& one, const StepCosts& two, const std::vector<Bytes>& capacity,
             int layers) {
  double room = 0;
  for (std::size_t s = 0; s < one.chunks.size(); ++s) {
    const double held = in_flight(one.schedule, one.stages, 1, static_cast<int>(s),
                                  static_cast<double>(one.micro_batches));
    const auto of = [&](const StepCosts& costs) {
      return costs.resources[s].resident.total() + held * costs.chunks[s].activations;
    };
    const Bytes first = of(one), each = of(two) - first;
    if (each <= Bytes{}) return true;
    room += std::max(0.0, 1 + (capacity[s] - first) / each);
  }
  return room >= layers;
}

void check_stages(const std::vector<MixedPart>& parts, const Strategy& strategy) {
  check_shares(parts, strategy.pp, "pipeline stages");
  const ScheduleTraits& traits = traits_of(strategy.schedule);
  if (strategy.vpp > 1 || traits.two_directions || traits.v_shape || traits.flows_on) {
    throw MalformedQuestion(
        "strategy: stages of several kinds must be whole and end a step together; give vpp=1 and "
        "gpipe, 1f1b or zero_bubble");
  }
}

class StagedPipeline {
 public:
  StagedPipeline(const std::vector<MixedPart>& parts, const Strategy& strategy)
      : parts_(parts), strategy_(strategy) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      kind_.insert(kind_.end(), static_cast<std::size_t>(parts[k].share), k);
    }
  }

  const std::vector<std::size_t>& kind() const { return kind_; }

  StepCosts costs(const std::vector<int>& layers) const {
    return spliced(parts_, kind_, strategy_, chunks_of(parts_.front().tables->model(), layers));
  }

  StagedRun run(const std::vector<int>& layers) const { return run(layers, costs(layers)); }

  StagedRun run(const std::vector<int>& layers, StepCosts costs) const {
    StagedRun run;
    run.layers = layers;
    run.timeline = simulate(std::move(costs), {}, {});
    run.memory.resize(parts_.size());
    for (const MemorySample& sample : memory_profile(run.timeline)) {
      Bytes& fullest = run.memory[kind_[static_cast<std::size_t>(sample.rank)]];
      fullest = max(fullest, sample.allocated.total());
    }
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      const Bytes capacity = parts_[k].tables->cluster().accelerator.memory_capacity;
      run.excess = std::max(run.excess, run.memory[k] / capacity - 1);
    }
    return run;
  }

  /// Layers move between kinds, then between neighbouring stages, as long as that helps.
  StagedRun searched(StagedRun best, const StepCosts& even, const std::vector<int>& split) const {
    for (bool moving = true; moving;) {
      moving = false;
      for (std::size_t from = 0; from < parts_.size(); ++from) {
        for (std::size_t to = 0; to < parts_.size(); ++to) {
          while (from != to && move_between_kinds(best, from, to, even, split)) moving = true;
        }
      }
    }
    for (bool moving = true; moving;) {
      moving = false;
      for (std::size_t s = 0; s + 1 < kind_.size(); ++s) {
        moving = move_layer(best, s, s + 1) || move_layer(best, s + 1, s) || moving;
      }
    }
    return best;
  }

  /// What became of the step.
  void describe(MixedStep& step, const StagedRun& run) const {
    step.layers = run.layers;
    step.step_time = run.timeline.step_time;
    step.times.resize(parts_.size());
    step.memory.resize(parts_.size());
    std::vector<Work> work(parts_.size());
    for (std::size_t s = 0; s < kind_.size(); ++s) {
      const std::size_t k = kind_[s];
      step.times[k] = max(step.times[k], run.timeline.stage_end[s]);
      const Work own = work_of_stage(run.timeline, s);
      work[k].computing += own.computing / parts_[k].share;
      work[k].communicating += own.communicating / parts_[k].share;
    }
    for (std::size_t k = 0; k < parts_.size(); ++k) set_memory(step, parts_, k, run.memory[k]);
    set_energy_and_cost(step, parts_, work);
    step.micro_batches.assign(parts_.size(), run.timeline.costs.micro_batches);
  }

 private:
  bool take_better(StagedRun& best, const std::vector<int>& layers) const {
    StepCosts step = costs(layers);
    // A stage that is busy for longer than the best step needs no simulation.
    Seconds slowest;
    for (const ChunkCost& chunk : step.chunks)
      slowest = max(slowest, busy(chunk, step.overlap_slowdown));
    if (best.excess == 0 && step.micro_batches * slowest >= best.timeline.step_time) return false;
    StagedRun trial = run(layers, std::move(step));
    if (!trial.better_than(best)) return false;
    best = std::move(trial);
    return true;
  }

  /// A kind may hold several stages of equal load, so that up to a layer of each has to move before
  /// its slowest stage is any faster.
  bool move_between_kinds(StagedRun& best, std::size_t from, std::size_t to, const StepCosts& even,
                          const std::vector<int>& split) const {
    std::vector<int> quota(parts_.size());
    for (std::size_t s = 0; s < kind_.size(); ++s) quota[kind_[s]] += best.layers[s];
    for (int moved = 1; moved <= std::max(parts_[from].share, parts_[to].share); ++moved) {
      --quota[from];
      ++quota[to];
      if (quota[from] < parts_[from].share) return false;
      if (take_better(best, balanced_layers(even, split, kind_, quota))) return true;
    }
    return false;
  }

  bool move_layer(StagedRun& best, std::size_t from, std::size_t to) const {
    std::vector<int> layers = best.layers;
    if (layers[from] == 1) return false;
    --layers[from];
    ++layers[to];
    return take_better(best, layers);
  }

  const std::vector<MixedPart>& parts_;
  const Strategy& strategy_;
  std::vector<std::size_t> kind_;
};

}  // namespace

MixedStep mixed_by_stage(const std::vector<MixedPart>& parts, const Strategy& strategy,
                         MixedSplit split) {
  check_stages(parts, strategy);
  MixedStep step;
  step.verdict = first_reason(parts, strategy);
  if (step.verdict != Reason::ok) return step;
  const StagedPipeline pipeline(parts, strategy);
  const Model& model = parts.front().tables->model();
  const int layers = model.layers();
  const std::vector<int> even_split = even_layers(layers, strategy.pp);
  StagedRun best = pipeline.run(even_split);
  if (split != MixedSplit::even) {
    const StepCosts even = best.timeline.costs;
    const std::vector<int> unlimited(parts.size(), layers);
    StagedRun balanced =
        pipeline.run(balanced_layers(even, even_split, pipeline.kind(), unlimited));
    const bool searched = split == MixedSplit::searched;
    if (searched ? balanced.better_than(best)
                 : balanced.timeline.step_time < best.timeline.step_time) {
      best = std::move(balanced);
    }
    if (searched) best = pipeline.searched(std::move(best), even, even_split);
  }
  pipeline.describe(step, best);
  if (model.kinds.size() == 1 && layers >= 2 * strategy.pp) {
    const std::vector<int> one(strategy.pp, 1), two(strategy.pp, 2);
    const StepCosts of_one = pipeline.costs(one), of_two = pipeline.costs(two);
    std::vector<Bytes> capacity;
    for (const std::size_t k : pipeline.kind()) {
      capacity.push_back(parts[k].tables->cluster().accelerator.memory_capacity);
    }
    step.least_time = least_time(of_one, of_two, layers);
    step.may_fit = may_fit(of_one, of_two, capacity, layers);
  }
  return step;
}

MixedStep mixed_with_layers(const std::vector<MixedPart>& parts, const Strategy& strategy,
                            const std::vector<int>& layers) {
  check_stages(parts, strategy);
  const int all = parts.front().tables->model().layers();
  const bool each = layers.size() == strategy.pp &&
                    std::ranges::all_of(layers, [](int of_stage) { return of_stage >= 1; });
  if (!each || std::accumulate(layers.begin(), layers.end(), 0LL) != all) {
    throw MalformedQuestion("split: must give each of " + std::to_string(strategy.pp) +
                            " stages at least 1 layer and sum to " + std::to_string(all));
  }
  MixedStep step;
  step.verdict = first_reason(parts, strategy);
  if (step.verdict != Reason::ok) return step;
  const StagedPipeline pipeline(parts, strategy);
  pipeline.describe(step, pipeline.run(layers));
  return step;
}

MixedStep mixed_by_replica(const std::vector<MixedPart>& parts, const Strategy& strategy,
                           MixedSplit split) {
  MixedStep step;
  step.verdict = first_reason(parts, strategy);
  if (step.verdict != Reason::ok) return step;
  const Tables& first = *parts.front().tables;
  const Degrees whole = resolve_degrees(strategy, first.cluster(), first.task());
  check_shares(parts, whole.dp, "replicas");
  const auto estimate = [&](std::size_t k, double micro_batches) {
    Tables& t = *parts[k].tables;
    Degrees degrees = resolve_degrees(strategy, t.cluster(), t.task());
    degrees.micro_batches = micro_batches;
    t.tabulate(strategy, degrees);
    return evaluate(t, strategy, degrees, *t.find_cell(strategy, degrees),
                    *t.find_stages(strategy, degrees));
  };
  step.micro_batches.assign(parts.size(), whole.micro_batches);
  if (split != MixedSplit::even) {
    // Micro-batch after micro-batch to the kind that is done first with one more.
    std::vector<std::int64_t> given(parts.size());
    const auto most = [&](std::size_t k, std::int64_t more) {
      return std::ceil(static_cast<double>(given[k] + more) / parts[k].share);
    };
    std::vector<Seconds> next(parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) next[k] = estimate(k, 1).step_time;
    const auto all = std::llround(whole.micro_batches * whole.dp);
    for (std::int64_t n = 0; n < all; ++n) {
      const auto k = static_cast<std::size_t>(std::ranges::min_element(next) - next.begin());
      ++given[k];
      if (given[k] % parts[k].share == 0) next[k] = estimate(k, most(k, 1)).step_time;
    }
    for (std::size_t k = 0; k < parts.size(); ++k) step.micro_batches[k] = most(k, 0);
  }
  step.memory.resize(parts.size());
  std::vector<Work> work(parts.size());
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Estimate e = estimate(k, std::max(1.0, step.micro_batches[k]));
    step.times.push_back(e.step_time);
    step.least_time = step.step_time = max(step.step_time, e.step_time);
    set_memory(step, parts, k, e.memory);
    work[k] = {e.compute + e.optimizer, e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                                            e.exposed_dp + e.exposed_offload};
  }
  // A replica that is done waits inside the collective for the others.
  for (std::size_t k = 0; k < parts.size(); ++k) {
    work[k].communicating += step.step_time - step.times[k];
  }
  set_energy_and_cost(step, parts, work);
  return step;
}

Fabric slowest_fabric(const Fabric& a, const Fabric& b) {
  Fabric worse = a;
  worse.bandwidth = min(a.bandwidth, b.bandwidth);
  worse.oversubscription = std::max(a.oversubscription, b.oversubscription);
  if (a.pod == 0 || b.pod == 0) {
    worse.pod = std::max(a.pod, b.pod);
  } else {
    worse.pod = std::min(a.pod, b.pod);
  }
  worse.ring_hop_ll128 = max(a.ring_hop_ll128, b.ring_hop_ll128);
  worse.ring_hop_simple = max(a.ring_hop_simple, b.ring_hop_simple);
  worse.tree_hop_ll128 = max(a.tree_hop_ll128, b.tree_hop_ll128);
  worse.tree_hop_simple = max(a.tree_hop_simple, b.tree_hop_simple);
  worse.latency_factor = std::max(a.latency_factor, b.latency_factor);
  worse.bandwidth_fraction = std::min(a.bandwidth_fraction, b.bandwidth_fraction);
  worse.all_to_all_fraction = std::min(a.all_to_all_fraction, b.all_to_all_fraction);
  worse.p2p_latency = max(a.p2p_latency, b.p2p_latency);
  worse.p2p_fraction = std::min(a.p2p_fraction, b.p2p_fraction);
  worse.in_network_reduction = a.in_network_reduction && b.in_network_reduction;
  return worse;
}

}  // namespace scalemodel
