#include "scalemodel/estimator/step_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/estimator/stage_parts.hpp"
#include "scalemodel/estimator/stragglers.hpp"
#include "scalemodel/schedule/pipeline.hpp"

namespace scalemodel {
namespace {

/// What one step of one strategy is put together from.
class Builder {
 public:
  Builder(const Tables& tables, const Strategy& strategy, const TimelineOptions& options)
      : tables_(tables),
        strategy_(strategy),
        compression_(options.gradient_compression),
        degrees_(resolve_degrees(strategy, tables.cluster(), tables.task())),
        cell_(*tables.find_cell(strategy, degrees_)),
        layout_(*tables.find_stages(strategy, degrees_)),
        pipeline_(pipeline_parts(tables, strategy, degrees_, cell_, layout_)),
        operators_(operators_by_kind(tables, strategy)) {}

  StepCosts build() const {
    return build(make_chunks(tables_.model(), degrees_.pp, degrees_.vpp,
                             chunk_placement(strategy_.schedule), tables_.stack().ends_as_layers));
  }

  StepCosts build(const std::vector<StageClass>& chunks) const {
    StepCosts costs;
    costs.schedule = running_schedule(strategy_.schedule, degrees_.pp, degrees_.vpp);
    costs.stages = degrees_.pp;
    costs.chunks_per_stage = layout_.mirrored ? 2 : degrees_.vpp;
    costs.micro_batches = static_cast<int>(std::lround(degrees_.micro_batches));
    costs.hop = pipeline_.hop;
    costs.boundary = pipeline_.boundary;
    costs.transfers_block = !pipeline_.transfers_overlap;
    costs.transfers_serial = pipeline_.transfers_serial;
    costs.hide_gather = pipeline_.hide_gather;
    costs.hide_reduce = pipeline_.hide_reduce;
    costs.overlap_efficiency = tables_.stack().overlap_efficiency;
    costs.overlap_slowdown = tables_.stack().contention;
    costs.overhead = tables_.stack().step_overhead;
    const auto per_stage = static_cast<std::size_t>(costs.chunks_per_stage);
    for (std::size_t first = 0; first < chunks.size(); first += per_stage) {
      add_stage(costs, {chunks.begin() + static_cast<std::ptrdiff_t>(first),
                        chunks.begin() + static_cast<std::ptrdiff_t>(first + per_stage)});
    }
    return costs;
  }

 private:
  StageParts parts_of(const StageClass& stage, const StageLayout& layout) const {
    return stage_parts(tables_, strategy_, degrees_, cell_, layout, stage, compression_);
  }

  void add_stage(StepCosts& costs, const std::vector<StageClass>& chunks) const {
    StageClass whole = chunks.front();
    whole.stage_layers = 0;
    for (std::size_t i = 1; i < chunks.size(); ++i) {
      for (std::size_t k = 0; k < kMaxLayerKinds; ++k) whole.layers[k] += chunks[i].layers[k];
      whole.embedding = whole.embedding || chunks[i].embedding;
      whole.head = whole.head || chunks[i].head;
    }
    const StageParts stage = parts_of(whole, layout_);
    StageResources resources;
    resources.resident = stage.memory;
    resources.resident.activations = resources.resident.logits = resources.resident.temporary =
        Bytes{};
    resources.decode = stage.encode;
    resources.optimizer = stage.optimizer;
    resources.optimizer_transfer = stage.optimizer_transfer;
    costs.resources.push_back(resources);
    // Offloaded activations stay only in part.
    const Bytes in_flight = stage.in_flight * stage.saved + stage.head_in_flight * stage.head_saved;
    const double kept = in_flight > Bytes{} ? stage.memory.activations / in_flight : 1;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      costs.chunks.push_back(chunk_cost(chunks[i], stage, kept, i == first_used(chunks)));
    }
  }

  /// The chunk of a stage that its first and its last pass run.
  std::size_t first_used(const std::vector<StageClass>& chunks) const {
    const bool far_half = layout_.mirrored && chunks.front().first_index >= degrees_.pp / 2;
    return far_half ? 1 : 0;
  }

  ChunkCost chunk_cost(const StageClass& chunk, const StageParts& stage, double kept,
                       bool first_used) const {
    // Alone in a pass; a pass of a mirrored layout counts for half of the micro-batches.
    StageLayout one_way = layout_;
    one_way.mirrored = one_way.pairs = false;
    const StageParts alone = parts_of(chunk, one_way);
    const StageParts paired = layout_.pairs ? parts_of(chunk, layout_) : alone;
    ChunkCost cost;
    cost.layers = chunk.layers;
    cost.embedding = chunk.embedding;
    cost.head = chunk.head;
    cost.forward = forward_pass(chunk, alone, 1);
    cost.backward = backward_pass(chunk, alone, 1);
    const double whole = layout_.mirrored ? 2 : 1;
    cost.paired_forward = forward_pass(chunk, paired, whole);
    cost.paired_backward = backward_pass(chunk, paired, whole);
    if (layout_.pairs && chunk.total_layers() > 0) {
      const StageClass layers = chunk.without_ends();
      cost.last_layer =
          backward_pass(layers, parts_of(layers, layout_), whole).compute / chunk.total_layers();
    }
    cost.recompute = alone.recompute.compute;
    cost.weight_gradient = alone.weight_gradient;
    cost.activations = kept * (alone.saved + alone.head_saved);
    cost.logits = alone.logits;
    cost.temporary = alone.memory.temporary;
    set_step_traffic(cost, alone, stage, first_used);
    return cost;
  }

  /// Traffic outside the passes: a chunk's share of the stage's, in a bucket per layer; experts
  /// travel in groups of their own. Parameters gathered layer by layer leave the first layer's and
  /// the last gradients exposed.
  void set_step_traffic(ChunkCost& cost, const StageParts& chunk, const StageParts& stage,
                        bool first_used) const {
    const int layers = std::max(1, cost.total_layers());
    const auto share = [&](Seconds all, Seconds of_experts) {
      const auto part = [](double own, double whole) { return whole > 0 ? own / whole : 0; };
      return part(chunk.trainable_dense, stage.trainable_dense) * (all - of_experts) +
             part(chunk.trainable_expert, stage.trainable_expert) * of_experts;
    };
    if (pipeline_.gathered) {
      // Their bytes travel in the passes.
      if (first_used) {
        cost.gather.time = chunk.first_gather;
        cost.reduce.time = chunk.last_reduce;
      }
      return;
    }
    cost.gather = {share(stage.step_gather, stage.expert_gather), chunk.parameter_bytes, layers};
    cost.reduce = {share(stage.step_reduce, stage.expert_reduce), chunk.gradient_bytes, layers};
    if (stage.step_reduce > Seconds{}) cost.encode = chunk.encode;
  }

  PassCost forward_pass(const StageClass& chunk, const StageParts& parts, double scale) const {
    PassCost pass = pass_of(parts.forward, scale);
    add_exchange(pass, chunk, 1, 0);
    add_use(pass, Stream::dp, scale * parts.pass_gather, scale * parts.forward_dp,
            parts.pass_gather > Seconds{} ? parts.parameter_bytes : Bytes{});
    add_use(pass, Stream::host, scale * parts.host_one_way, scale * parts.forward_offload,
            parts.host_bytes);
    return pass;
  }

  PassCost backward_pass(const StageClass& chunk, const StageParts& parts, double scale) const {
    const Phase both = parts.backward + parts.recompute;
    PassCost pass = pass_of(both, scale);
    // Full recomputation repeats the forward exchange too.
    const double again = strategy_.recompute == Recompute::full && parts.forward.compute > Seconds{}
                             ? parts.recompute.compute / parts.forward.compute
                             : 0;
    add_exchange(pass, chunk, again, 1);
    // Parameters are gathered again, without the ends', and the gradients reduced.
    Seconds busy = parts.pass_reduce;
    Bytes bytes = parts.pass_reduce > Seconds{} ? parts.gradient_bytes : Bytes{};
    if (parts.pass_again > Seconds{}) {
      busy += parts.pass_again;
      bytes += parts.parameter_bytes;
    }
    add_use(pass, Stream::dp, scale * busy, scale * parts.backward_dp, bytes);
    add_use(pass, Stream::host, scale * parts.host_one_way, scale * parts.backward_offload,
            parts.host_bytes);
    if (parts.pass_reduce > Seconds{}) pass.compute += parts.encode;
    return pass;
  }

  static PassCost pass_of(const Phase& phase, double scale) {
    PassCost pass;
    pass.compute = scale * phase.compute;
    pass.hidden = scale * phase.hidden;
    pass.on(Stream::tp).exposed = scale * phase.tp;
    pass.on(Stream::cp).exposed = scale * phase.cp;
    pass.on(Stream::ep).exposed = scale * phase.ep;
    return pass;
  }

  /// A stream is busy at least while it is exposed, and never longer than the pass.
  static void add_use(PassCost& pass, Stream stream, Seconds busy, Seconds exposed, Bytes bytes) {
    StreamUse& use = pass.on(stream);
    use.exposed += exposed;
    use.busy = max(use.exposed, min(use.busy + busy, use.exposed + pass.hidden));
    use.bytes += bytes;
  }

  /// All traffic of the layers inside the passes: `forward` and `backward` times the operators'.
  void add_exchange(PassCost& pass, const StageClass& chunk, double forward,
                    double backward) const {
    constexpr std::array<std::pair<std::string_view, Stream>, 3> kinds{
        {{"tensor_parallel", Stream::tp},
         {"context_parallel", Stream::cp},
         {"expert_parallel", Stream::ep}}};
    for (const auto& [name, stream] : kinds) {
      Seconds busy;
      Bytes bytes;
      for (std::size_t k = 0; k + 1 < operators_.size(); ++k) {
        for (const OperatorCost& op : operators_[k]) {
          if (op.name != name) continue;
          busy += chunk.layers[k] * (forward * op.forward + backward * op.backward);
          bytes += chunk.layers[k] * (forward + backward) * op.bytes;
        }
      }
      add_use(pass, stream, busy, Seconds{}, bytes);
    }
  }

  const Tables& tables_;
  const Strategy& strategy_;
  double compression_;
  Degrees degrees_;
  const Cell& cell_;
  const StageLayout& layout_;
  PipelineParts pipeline_;
  std::vector<OperatorList> operators_;
};

void check_slowdown(const std::vector<double>& slowdown, int stages) {
  if (slowdown.empty()) return;
  if (slowdown.size() != static_cast<std::size_t>(stages)) {
    throw MalformedQuestion("slowdown: " + std::to_string(slowdown.size()) +
                            " factors; must be one per pipeline stage, " + std::to_string(stages));
  }
  for (const double factor : slowdown) {
    if (!std::isfinite(factor) || factor <= 0) {
      throw MalformedQuestion("slowdown=" + std::to_string(factor) + ": must be numbers > 0");
    }
  }
}

}  // namespace

std::vector<OperatorList> operators_by_kind(const Tables& tables, const Strategy& strategy) {
  std::vector<OperatorList> lists;
  for (std::size_t k = 0; k <= tables.model().kinds.size(); ++k) {
    lists.push_back(tables.operators(strategy, k));
  }
  return lists;
}

StepCosts step_costs(const Tables& tables, const Strategy& strategy,
                     const TimelineOptions& options) {
  return Builder(tables, strategy, options).build();
}

StepCosts step_costs(const Tables& tables, const Strategy& strategy, const TimelineOptions& options,
                     const std::vector<StageClass>& chunks) {
  return Builder(tables, strategy, options).build(chunks);
}

std::vector<double> draw_slowdown(const Tables& tables, const Strategy& strategy,
                                  std::uint64_t seed) {
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const Sharding sharding = with_meant_sharding(strategy, degrees).sharding;
  return draw_slowdown(tables.stack().kernel_spread, degrees, gathers_parameters(sharding), seed);
}

Timeline step_timeline(Tables& tables, const Strategy& strategy, const TimelineOptions& options,
                       std::vector<double> slowdown) {
  tables.tabulate(strategy);
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const Reason reason =
      first_violation(strategy, degrees, tables.model(), tables.cluster(), tables.task());
  if (reason != Reason::ok) {
    throw MalformedQuestion("strategy: cannot run (" + std::string(name_of(reason)) +
                            "), so that it has no timeline");
  }
  check_slowdown(slowdown, degrees.pp);
  if (strategy.quantized_reduce && options.gradient_compression < 1) {
    throw MalformedQuestion("gradient_compression=" + std::to_string(options.gradient_compression) +
                            ": quantized_reduce sends 4 bits already; must be 1");
  }
  const double chunks = degrees.pp * static_cast<double>(degrees.vpp);
  const double passes = 3 * chunks * degrees.micro_batches;
  if (passes > kMaxPasses) {
    const auto whole = [](double count) { return std::to_string(static_cast<long long>(count)); };
    throw MalformedQuestion("strategy: up to " + whole(passes) +
                            " passes in a step; a timeline holds at most " + whole(kMaxPasses));
  }
  return simulate(step_costs(tables, strategy, options), options, std::move(slowdown));
}

}  // namespace scalemodel
