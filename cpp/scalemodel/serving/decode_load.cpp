#include "scalemodel/serving/decode_load.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

constexpr double kMaxWeightBytes = 8;  // per parameter; the law knows no more copies
constexpr double kFewestSequences = 1e-3;

FlopPerSecond decoding_peak(const Accelerator& accelerator, bool narrow) {
  const FlopPerSecond none{};
  const FlopPerSecond eight = accelerator.peak_of(Precision::fp8);
  if (narrow && eight > none) return eight;
  for (const Precision wide : {Precision::bf16, Precision::fp16}) {
    if (accelerator.peak_of(wide) > none) return accelerator.peak_of(wide);
  }
  return *std::max_element(accelerator.peak.begin(), accelerator.peak.end());
}

Watts power_of(const ServedAccelerator& on, const DecodeLoad& load, double busy) {
  return serving_power(on.power, on.accelerator.power.limit, load, busy);
}

}  // namespace

DecodeLoad decode_load(const DecodingInstance& instance, const RequestMix& mix, double sequences) {
  const ServingLayout& layout = instance.layout;
  const double context = mix.input + (mix.output + 1) / 2;
  const double stage_ranks = layout.tp * layout.cp * layout.pp;
  const double accelerators = stage_ranks * layout.dp;
  const bool apart = layout.has_expert_pool();
  const PoolParameters pool = apart ? pool_parameters(instance.model, 0) : PoolParameters{};
  // Data-parallel ranks of a dense model are copies of it; those of experts hold shards of these
  // and more than one copy of everything else.
  const double copies = instance.experts && !apart ? 1 : layout.dp;
  const double parameters = instance.model.parameters() - (pool.routed + pool.shared);
  const double held = instance.capacity.weights.base() * accelerators / (parameters * copies);
  DecodeLoad load;
  load.parameters = parameters;
  load.active_parameters = instance.model.active_parameters() - (pool.chosen + pool.shared);
  load.weight_bytes = std::min(held, kMaxWeightBytes);
  load.cache = instance.blocks.of(context) * instance.capacity.block * stage_ranks;
  load.sequences = std::max(sequences, kFewestSequences);
  load.accelerators = accelerators;
  load.replicas = copies;
  load.peak = decoding_peak(instance.cluster.accelerator, instance.narrow);
  load.bandwidth = instance.cluster.accelerator.memory_bandwidth;
  return load;
}

DecodeLoad expert_pool_load(const DecodingInstance& instance, const Accelerator& accelerator,
                            double sequences) {
  const PoolParameters pool = pool_parameters(instance.model, 0);
  DecodeLoad load;
  load.parameters = pool.routed + pool.shared;
  load.active_parameters = pool.chosen + pool.shared;
  load.accelerators = instance.layout.expert_ranks;
  const double held = instance.capacity.expert_weights.base() * load.accelerators / load.parameters;
  load.weight_bytes = std::min(held, kMaxWeightBytes);
  load.sequences = std::max(sequences, kFewestSequences);
  load.replicas = 1;
  load.peak = decoding_peak(accelerator, instance.narrow);
  load.bandwidth = accelerator.memory_bandwidth;
  return load;
}

Watts instance_power(const DecodingInstance& instance, const RequestMix& mix, double sequences,
                     const ServedAccelerator& own, const ServedAccelerator& experts,
                     const PoolLoad& busy) {
  const ServingLayout& layout = instance.layout;
  const DecodeLoad load = decode_load(instance, mix, sequences);
  if (!layout.has_expert_pool()) return layout.attention_ranks() * power_of(own, load, 1);
  const DecodeLoad pool = expert_pool_load(instance, experts.accelerator, sequences);
  return layout.attention_ranks() * power_of(own, load, busy.attention / busy.step) +
         layout.expert_ranks * power_of(experts, pool, busy.experts / busy.step);
}

DollarsPerSecond instance_price(const ServingLayout& layout, DollarsPerSecond own,
                                DollarsPerSecond experts) noexcept {
  const DollarsPerSecond unknown{};
  if (own <= unknown || (layout.has_expert_pool() && experts <= unknown)) return unknown;
  return layout.attention_ranks() * own + layout.expert_ranks * experts;
}

}  // namespace scalemodel
