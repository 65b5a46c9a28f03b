#include "scalemodel/estimator/mixed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "scalemodel/base/error.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
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
    chunks[s].first_index = static_cast<int>(s);
    chunks[s].count = 1;
    chunks[s].stage_layers = layers[s];
  }
  chunks.front().embedding = chunks.back().head = true;
  chunks.back().layers[model.layer_kind.back()] += model.mtp_layers;
  return chunks;
}

Seconds busy(const ChunkCost& chunk, double contention) {
  const auto of = [&](const PassCost& pass) {
    return pass.compute + pass.exposed() + contention * pass.hidden;
  };
  return of(chunk.forward) + of(chunk.backward);
}

/// A step whose stages run on their kinds; `kind`: of each stage.
StepCosts spliced(const std::vector<MixedPart>& parts, const std::vector<std::size_t>& kind,
                  const Strategy& strategy, const std::vector<StageClass>& chunks) {
  std::vector<StepCosts> costs;
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

/// Layer after layer to the stage that is done first with one more. A layer's time on a stage is
/// the mean over an even split, the ends' what their stages take beyond.
std::vector<int> balanced_layers(const StepCosts& even, const std::vector<int>& split) {
  const std::size_t stages = split.size();
  std::vector<Seconds> each(stages), taken(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const ChunkCost& chunk = even.chunks[s];
    const bool end = chunk.embedding || chunk.head;
    const std::size_t like = !end ? s : chunk.embedding ? std::min(s + 1, stages - 1) : s - 1;
    const bool alike = like != s && !even.chunks[like].embedding && !even.chunks[like].head;
    const Seconds own = busy(chunk, even.contention);
    each[s] = own / std::max(1, chunk.total_layers());
    if (!alike) continue;
    // An inner neighbour tells a layer from the end, if it is of the same kind.
    const Seconds inner =
        busy(even.chunks[like], even.contention) / std::max(1, even.chunks[like].total_layers());
    each[s] = min(each[s], inner);
    taken[s] = max(Seconds{}, own - chunk.total_layers() * each[s]);
  }
  std::vector<int> layers(stages, 1);
  for (std::size_t s = 0; s < stages; ++s) taken[s] += each[s];
  const int all = std::accumulate(split.begin(), split.end(), 0);
  for (int left = all - static_cast<int>(stages); left > 0; --left) {
    std::size_t next = 0;
    for (std::size_t s = 1; s < stages; ++s) {
      if (taken[s] + each[s] < taken[next] + each[next]) next = s;
    }
    ++layers[next];
    taken[next] += each[next];
  }
  return layers;
}

void set_memory(MixedStep& step, const std::vector<MixedPart>& parts, std::size_t k, Bytes memory) {
  step.memory[k] = max(step.memory[k], memory);
  if (memory > parts[k].tables->cluster().accelerator.memory_capacity) {
    step.verdict = Reason::out_of_memory;
  }
}

}  // namespace

MixedStep mixed_by_stage(const std::vector<MixedPart>& parts, const Strategy& strategy,
                         bool balanced) {
  check_shares(parts, strategy.pp, "pipeline stages");
  if (strategy.vpp > 1 || strategy.schedule == Schedule::dualpipe) {
    throw MalformedQuestion(
        "strategy: stages of several kinds must be whole; give vpp=1 and a schedule without a "
        "second direction");
  }
  MixedStep step;
  step.verdict = first_reason(parts, strategy);
  if (step.verdict != Reason::ok) return step;
  const Model& model = parts.front().tables->model();
  std::vector<std::size_t> kind;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    kind.insert(kind.end(), static_cast<std::size_t>(parts[k].share), k);
  }
  step.layers = even_layers(model.layers(), strategy.pp);
  StepCosts costs = spliced(parts, kind, strategy, chunks_of(model, step.layers));
  Timeline timeline = simulate(costs, {}, {});
  if (balanced) {
    const std::vector<int> layers = balanced_layers(costs, step.layers);
    Timeline other = simulate(spliced(parts, kind, strategy, chunks_of(model, layers)), {}, {});
    if (other.step_time < timeline.step_time) {
      timeline = std::move(other);
      step.layers = layers;
    }
  }
  step.step_time = timeline.step_time;
  step.times.resize(parts.size());
  step.memory.resize(parts.size());
  for (std::size_t s = 0; s < kind.size(); ++s) {
    step.times[kind[s]] = max(step.times[kind[s]], timeline.stage_end[s]);
  }
  for (const MemorySample& sample : memory_profile(timeline)) {
    set_memory(step, parts, kind[static_cast<std::size_t>(sample.rank)], sample.held.total());
  }
  step.micro_batches.assign(parts.size(), timeline.costs.micro_batches);
  return step;
}

MixedStep mixed_by_replica(const std::vector<MixedPart>& parts, const Strategy& strategy,
                           bool balanced) {
  MixedStep step;
  step.verdict = first_reason(parts, strategy);
  if (step.verdict != Reason::ok) return step;
  const Tables& first = *parts.front().tables;
  const Degrees whole = resolve_degrees(strategy, first.cluster(), first.task());
  check_shares(parts, whole.dp, "replicas");
  const auto estimate = [&](std::size_t k, double micro_batches) {
    const Tables& t = *parts[k].tables;
    Degrees degrees = resolve_degrees(strategy, t.cluster(), t.task());
    degrees.micro_batches = micro_batches;
    return evaluate(t, strategy, degrees, *t.find_cell(strategy, degrees),
                    *t.find_stages(strategy, degrees));
  };
  step.micro_batches.assign(parts.size(), whole.micro_batches);
  if (balanced) {
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
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Estimate e = estimate(k, std::max(1.0, step.micro_batches[k]));
    step.times.push_back(e.step_time);
    step.step_time = max(step.step_time, e.step_time);
    set_memory(step, parts, k, e.memory);
  }
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
