#include "scalemodel/strategy/legal.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

Reason attention_violation(const Strategy& strategy, const Degrees& d, const Model& model) {
  for (const LayerKind& kind : model.kinds) {
    if (kind.attention.heads % d.tp != 0) return Reason::tp_heads;
    if (kind.recurrence.heads % d.tp != 0) return Reason::tp_heads;
    if (strategy.context == ContextParallel::all_to_all &&
        kind.attention.heads % (d.tp * d.cp) != 0) {
      return Reason::cp_heads;
    }
    // A scan sees its whole sequence: context ranks exchange it for heads, however they attend.
    if (kind.recurrence.heads % (d.tp * d.cp) != 0) return Reason::cp_heads;
  }
  return Reason::ok;
}

Reason feed_forward_violation(const Degrees& d, const Model& model) {
  bool routed = false;
  for (const LayerKind& kind : model.kinds) {
    const FeedForwardShape& ff = kind.feed_forward;
    if (!ff.routed()) {
      if (ff.width % d.tp != 0) return Reason::tp_ffn;
      continue;
    }
    routed = true;
    if (ff.experts % d.ep != 0) return Reason::ep_experts;
    if (ff.width % d.etp != 0) return Reason::etp_ffn;
    if (ff.shared_width % d.tp != 0) return Reason::tp_ffn;
  }
  if (!routed && d.ep > 1) return Reason::ep_experts;
  if (routed && d.inner() % (d.ep * d.etp) != 0) return Reason::ep_mesh;
  return Reason::ok;
}

Reason pipeline_violation(const Strategy& strategy, const Degrees& d, const Model& model) {
  if (strategy.vpp > 1 && d.pp == 1) return Reason::vpp_without_pp;
  // Embedding and head may be chunks of their own.
  const long long chunks = static_cast<long long>(d.pp) * d.vpp;
  if (d.pp > model.layers() || chunks > model.layers() + 2LL) return Reason::pp_layers;
  const ScheduleTraits traits = traits_of(strategy.schedule);
  if (strategy.vpp > 1 ? !traits.allows_chunks : traits.needs_chunks) return Reason::vpp_schedule;
  if (traits.two_directions && (d.pp % 2 != 0 || d.micro_batches < 2 * d.pp)) {
    return Reason::dualpipe_stages;
  }
  if (traits.v_shape && traits.pairs && d.micro_batches < 2 * d.pp)
    return Reason::dualpipe_v_batches;
  return Reason::ok;
}

Reason traffic_violation(const Strategy& strategy, const Degrees& d) {
  if (strategy.secondary_degree == 0 && !strategy.quantized_gather && !strategy.quantized_reduce) {
    return Reason::ok;
  }
  const bool gathers = gathers_parameters(strategy.sharding);
  if (strategy.secondary_degree > 0 && (!gathers || d.shard % strategy.secondary_degree != 0)) {
    return Reason::secondary_degree;
  }
  return gathers ? Reason::ok : Reason::quantized_sharding;
}

}  // namespace

Degrees resolve_degrees(const Strategy& s, const Cluster& cluster, const Task& task) noexcept {
  Degrees d;
  d.tp = s.tp;
  d.cp = s.cp;
  d.pp = s.pp;
  d.ep = s.ep;
  d.vpp = virtual_stages(s.schedule, s.pp, s.vpp);
  d.micro_batch = s.micro_batch;
  const long long model_ranks = static_cast<long long>(s.tp) * s.cp * s.pp;
  d.dp = s.dp > 0 ? static_cast<int>(s.dp)
                  : static_cast<int>(std::max(1LL, cluster.accelerators / model_ranks));
  d.etp = s.etp > 0 ? s.etp : (s.ep > 1 ? 1 : s.tp);
  // Degrees may be far beyond the cluster here; the mesh rule comes later.
  const long long all_replicas = static_cast<long long>(d.dp) * d.cp;
  const int replicas = static_cast<int>(std::min(all_replicas, 1'000'000'000LL));
  switch (s.sharding) {
    case Sharding::ddp:
      d.shard = 1;
      break;
    case Sharding::zero1:
    case Sharding::zero2:
    case Sharding::zero3:
      d.shard = replicas;
      break;
    case Sharding::hsdp:
      d.shard = s.shard_degree > 0
                    ? s.shard_degree
                    : std::clamp(cluster.node_accelerators / std::max(1, d.tp), 1, replicas);
      break;
  }
  const int whole = task.global_batch / d.dp;
  const double sequences =
      task.batch_is_limit ? whole : static_cast<double>(task.global_batch) / d.dp;
  d.micro_batches = sequences / d.micro_batch;
  return d;
}

Reason first_violation(const Strategy& s, const Degrees& d, const Model& model,
                       const Cluster& cluster, const Task& task) noexcept {
  const double ranks = static_cast<double>(d.tp) * d.cp * d.pp * static_cast<double>(d.dp);
  if (ranks != cluster.accelerators) return Reason::mesh;
  const Precision precision = s.linear_precision.value_or(task.precision);
  if (cluster.accelerator.peak_of(precision) <= FlopPerSecond{}) return Reason::precision;
  if (cluster.accelerator.peak_of(storage_precision(precision)) <= FlopPerSecond{}) {
    return Reason::precision;
  }
  if (Reason r = attention_violation(s, d, model); r != Reason::ok) return r;
  if (Reason r = feed_forward_violation(d, model); r != Reason::ok) return r;
  if (Reason r = pipeline_violation(s, d, model); r != Reason::ok) return r;
  if (task.sequence % d.cp != 0) return Reason::cp_sequence;
  if (s.sequence_parallel && (task.sequence / d.cp) % d.tp != 0) return Reason::sp_sequence;
  if (task.batch_is_limit) {
    const int sequences = task.global_batch / d.dp;
    if (sequences == 0 || sequences % d.micro_batch != 0) return Reason::batch;
  } else if (task.global_batch % (static_cast<long long>(d.dp) * d.micro_batch) != 0) {
    return Reason::batch;
  }
  if (d.shard > d.dp * d.cp || (d.dp * d.cp) % d.shard != 0) return Reason::shard_degree;
  if (s.recompute_layers > model.layers()) return Reason::recompute_layers;
  return traffic_violation(s, d);
}

}  // namespace scalemodel
