#include "scalemodel/calibration/fit_kernels.hpp"

#include <algorithm>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

TileGemm GemmKernels::* tile_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
    case Precision::fp16:
    case Precision::bf16:
      return &GemmKernels::dense16;
    case Precision::fp8:
      return &GemmKernels::fp8;
    case Precision::fp4:
      return &GemmKernels::fp4;
  }
  return &GemmKernels::dense16;
}

double ElementwiseKernels::* fraction_of(MemoryBound family) {
  switch (family) {
    case MemoryBound::add:
      return &ElementwiseKernels::add_fraction;
    case MemoryBound::norm:
      return &ElementwiseKernels::norm_fraction;
    case MemoryBound::softmax:
      return &ElementwiseKernels::softmax_fraction;
    case MemoryBound::activation:
      return &ElementwiseKernels::activation_fraction;
  }
  return &ElementwiseKernels::add_fraction;
}

CollectiveFit ScaleUp::* constants_of(Collective op) {
  switch (op) {
    case Collective::all_reduce:
      return &ScaleUp::all_reduce;
    case Collective::all_gather:
      return &ScaleUp::all_gather;
    case Collective::reduce_scatter:
      return &ScaleUp::reduce_scatter;
    case Collective::all_to_all:
      return &ScaleUp::all_to_all;
  }
  return &ScaleUp::all_reduce;
}

void gemm_times(const Accelerator& accelerator, Precision precision,
                std::span<const GemmShape> shapes, std::span<double> times_s) {
  const GemmTimer timer(accelerator, precision);
  for (std::size_t i = 0; i < shapes.size(); ++i) times_s[i] = timer.time(shapes[i]).base();
}

void collective_times(const Cluster& cluster, std::span<const CollectiveCall> calls,
                      std::span<double> times_s) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    times_s[i] = collective_time(calls[i].op, calls[i].size, calls[i].group, cluster).base();
  }
}

template <class Kernel, class Time>
RecordFit<Kernel> fit_attention(const Accelerator& accelerator, const Kernel& prior,
                                std::span<const AttentionCall> calls,
                                std::span<const TimedSample> samples,
                                std::span<const FreeField> fields, Time time) {
  return fit_record(prior, samples, fields, [&](const Kernel& kernel, std::span<double> times_s) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      times_s[i] = time(calls[i], kernel, accelerator).base();
    }
  });
}

}  // namespace

RecordFit<TileGemm> fit_tile_gemm(const Accelerator& accelerator, Precision precision,
                                  std::span<const GemmShape> shapes,
                                  std::span<const TimedSample> samples,
                                  std::span<const FreeField> fields) {
  Accelerator changed = accelerator;
  const auto member = tile_of(precision);
  return fit_record(accelerator.gemm.*member, samples, fields,
                    [&](const TileGemm& tile, std::span<double> times_s) {
                      changed.gemm.*member = tile;
                      gemm_times(changed, precision, shapes, times_s);
                    });
}

RecordFit<GemmKernels> fit_roofline_gemm(const Accelerator& accelerator, Precision precision,
                                         std::span<const GemmShape> shapes,
                                         std::span<const TimedSample> samples,
                                         std::span<const FreeField> fields) {
  Accelerator changed = accelerator;
  return fit_record(accelerator.gemm, samples, fields,
                    [&](const GemmKernels& kernels, std::span<double> times_s) {
                      changed.gemm = kernels;
                      gemm_times(changed, precision, shapes, times_s);
                    });
}

RecordFit<ElementwiseKernels> fit_elementwise(const Accelerator& accelerator,
                                              std::span<const MemoryBoundCall> calls,
                                              std::span<const TimedSample> samples,
                                              std::span<const FreeField> fields) {
  Accelerator changed = accelerator;
  return fit_record(accelerator.elementwise, samples, fields,
                    [&](const ElementwiseKernels& kernels, std::span<double> times_s) {
                      changed.elementwise = kernels;
                      for (std::size_t i = 0; i < calls.size(); ++i) {
                        const double fraction = kernels.*fraction_of(calls[i].family);
                        times_s[i] = memory_time(calls[i].bytes, fraction, changed).base();
                      }
                    });
}

RecordFit<PrefillKernel> fit_prefill(const Accelerator& accelerator, const PrefillKernel& prior,
                                     std::span<const AttentionCall> calls,
                                     std::span<const TimedSample> samples,
                                     std::span<const FreeField> fields) {
  return fit_attention(accelerator, prior, calls, samples, fields, &prefill_time);
}

RecordFit<DecodeKernel> fit_decode(const Accelerator& accelerator, const DecodeKernel& prior,
                                   std::span<const AttentionCall> calls,
                                   std::span<const TimedSample> samples,
                                   std::span<const FreeField> fields) {
  return fit_attention(accelerator, prior, calls, samples, fields, &decode_time);
}

RecordFit<DispatchKernel> fit_dispatch(const DispatchKernel& prior,
                                       std::span<const DispatchCall> calls,
                                       std::span<const TimedSample> samples,
                                       std::span<const FreeField> fields) {
  return fit_record(prior, samples, fields,
                    [&](const DispatchKernel& kernel, std::span<double> times_s) {
                      for (std::size_t i = 0; i < calls.size(); ++i) {
                        DispatchKernel there = kernel;
                        there.value_bytes = calls[i].value_bytes;
                        there.domain_rate = calls[i].domain_scale * kernel.domain_rate;
                        times_s[i] = dispatch_time(calls[i].work, there).base();
                      }
                    });
}

RecordFit<AttentionKernels> fit_flash(const Accelerator& accelerator, Precision precision,
                                      std::span<const FlashPass> passes,
                                      std::span<const TimedSample> samples,
                                      std::span<const FreeField> fields) {
  Accelerator changed = accelerator;
  const GemmTimer gemm(accelerator, precision);
  return fit_record(accelerator.attention, samples, fields,
                    [&](const AttentionKernels& kernels, std::span<double> times_s) {
                      changed.attention = kernels;
                      for (std::size_t i = 0; i < passes.size(); ++i) {
                        const AttentionTime time = attention_time(
                            passes[i].work, AttentionKernel::flash2, changed, precision, gemm);
                        times_s[i] = (passes[i].backward ? time.backward : time.forward).base();
                      }
                    });
}

RecordFit<CollectiveFit> fit_collective(const Cluster& cluster,
                                        std::span<const CollectiveCall> calls,
                                        std::span<const TimedSample> samples,
                                        std::span<const FreeField> fields) {
  const auto member = constants_of(calls.empty() ? Collective::all_reduce : calls.front().op);
  Cluster changed = cluster;
  return fit_record(cluster.scale_up.*member, samples, fields,
                    [&](const CollectiveFit& fit, std::span<double> times_s) {
                      changed.scale_up.*member = fit;
                      collective_times(changed, calls, times_s);
                    });
}

RecordFit<Fabric> fit_fabric(const Cluster& cluster, std::span<const CollectiveCall> calls,
                             std::span<const TimedSample> samples,
                             std::span<const FreeField> fields) {
  Cluster changed = cluster;
  return fit_record(cluster.fabric, samples, fields,
                    [&](const Fabric& fabric, std::span<double> times_s) {
                      changed.fabric = fabric;
                      collective_times(changed, calls, times_s);
                    });
}

Seconds memory_bound(Bytes bytes, const Accelerator& accelerator) {
  const double speedup = bytes < accelerator.l2 ? kCacheSpeedup : 1;
  return bytes / (speedup * accelerator.memory_bandwidth);
}

Bytes gemm_traffic(const GemmShape& shape, Precision precision) {
  const double operands = operand_bytes(precision) * (shape.m * shape.k + shape.n * shape.k);
  return Bytes{shape.batch * (operands + shape.output_bytes * shape.m * shape.n)};
}

Seconds gemm_bound(const GemmShape& shape, Precision precision, const Accelerator& accelerator) {
  return max(shape.flop() / accelerator.peak_of(precision),
             memory_bound(gemm_traffic(shape, precision), accelerator));
}

Seconds attention_bound(const AttentionCall& call, const Accelerator& accelerator) {
  const AttentionWork& w = call.work;
  const bool windowed = w.window > 0 && w.window < w.keys;
  const double keys = windowed ? w.window : w.keys;
  // Keys a query sees on average, without the blocks on the diagonal.
  double seen = keys;
  if (w.causal) seen -= windowed ? keys * keys / (2 * w.queries) : w.queries / 2;
  const double width = w.head_dim + w.v_head_dim;
  const FlopPerSecond peak =
      max(accelerator.peak_of(Precision::bf16), accelerator.peak_of(Precision::fp16));
  const Seconds gemms =
      peak > FlopPerSecond{}
          ? Flop{2 * w.batch * w.heads * width * w.queries * std::max(0.0, seen)} / peak
          : Seconds{};
  const Bytes touched{w.batch * width *
                      (operand_bytes(call.math) * w.queries * w.heads +
                       operand_bytes(call.cache) * keys * w.kv_heads)};
  return max(gemms, memory_bound(touched, accelerator));
}

Seconds collective_bound(const CollectiveCall& call, const Cluster& cluster) {
  const GroupShape& group = call.group;
  if (group.ranks <= 1) return Seconds{};
  const double n = group.ranks;
  const double inside = group.per_domain, outside = n - inside;
  const bool once = call.op == Collective::all_reduce;
  // Per rank, over its scale-up links; what leaves the domain over the ports of its ranks.
  const Bytes rank = (once ? 1.0 : (inside - 1) / n) * call.size;
  const Bytes domain = (once                                ? 1.0
                        : call.op == Collective::all_to_all ? inside * outside / n
                                                            : outside / n) *
                       call.size;
  const Seconds within = group.per_domain > 1 ? rank / cluster.scale_up.bandwidth : Seconds{};
  if (group.domains == 1) return within;
  return max(within, domain / (inside * fabric_bandwidth(cluster.fabric, group)));
}

}  // namespace scalemodel
