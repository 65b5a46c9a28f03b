// What the benchmarks of the engine share: two models and a cluster.
#pragma once

#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel {

/// GPT-3 175B: 96 layers, multi-head attention.
inline DecoderShape gpt3_175b() {
  DecoderShape s;
  s.layers = 96;
  s.hidden = 12288;
  s.vocab = 51200;
  s.position = Position::learned;
  s.positions = 2048;
  s.heads = 96;
  s.ffn = 49152;
  s.norm = Norm::layernorm;
  return s;
}

/// Llama 3.1 405B: 126 layers, eight key/value heads.
inline DecoderShape llama_405b() {
  DecoderShape s;
  s.layers = 126;
  s.hidden = 16384;
  s.vocab = 128256;
  s.heads = 128;
  s.kv_heads = 8;
  s.ffn = 53248;
  s.gated = true;
  return s;
}

/// Nodes of eight 80 GB accelerators; the constants matter to no branch but the tile form's.
inline Cluster cluster(int accelerators = 1024) {
  Cluster c;
  Accelerator& a = c.accelerator;
  a.peak.fill(FlopPerSecond{989e12});
  a.multiprocessors = 132;
  a.clock = Hertz{1.8e9};
  a.memory_capacity = 80 * unit::GiB;
  a.memory_bandwidth = BytesPerSecond{3.35e12};
  a.host_bandwidth = BytesPerSecond{60e9};
  a.gemm.tiled = true;
  TileGemm& wide = a.gemm.dense16;
  wide.launch = 2.5 * unit::us;
  wide.tau_cycles = 140;
  wide.burst_fraction = 0.83;
  wide.sustained_fraction = 0.72;
  wide.throttle = 1400 * unit::us;
  wide.memory_fraction = 0.84;
  wide.cache_bytes_per_clock = 113;
  wide.epilogue_bytes_per_clock = 28;
  wide.wave_weight = 0.02;
  wide.split = 2.5 * unit::us;
  wide.split_passes = 6;
  a.gemm.fp8 = wide;
  a.gemm.tile_rows = {160, 96, 128, 64, 128, 16, 192, 256};
  a.gemm.tile_columns = {64, 128, 32, 32, 96, 32, 32, 128};
  a.gemm.wave_targets = 2;
  a.gemm.reference_peak = FlopPerSecond{989e12};
  a.gemm.roofline_compute_fraction = 0.7;  // formats without constants of their own: TF32
  a.gemm.roofline_memory_fraction = 0.8;
  a.gemm.roofline_launch = 5 * unit::us;
  a.attention = {0.34, 0.3, 0.62, 0.54, 0.33, 10 * unit::us};
  a.elementwise = {0.88, 0.6, 0.76, 2 * unit::us};
  a.power = {700 * unit::W, 75 * unit::W, 0.94, 0.79};
  c.accelerators = accelerators;
  c.node_accelerators = 8;
  c.host_memory = Bytes{2e12};
  const CollectiveFit fit{5 * unit::us, 0.9 * unit::us, 0.28, 10 * unit::us, 0.4 * unit::us,
                          0.8,          10 * unit::us};
  c.scale_up.domain = 8;
  c.scale_up.bandwidth = BytesPerSecond{450e9};
  c.scale_up.all_reduce = c.scale_up.all_gather = fit;
  c.scale_up.reduce_scatter = c.scale_up.all_to_all = fit;
  c.scale_up.p2p_fraction = 0.75;
  c.fabric.bandwidth = BytesPerSecond{50e9};
  c.fabric.ring_hop_ll128 = c.fabric.tree_hop_ll128 = 4 * unit::us;
  c.fabric.ring_hop_simple = c.fabric.tree_hop_simple = 14 * unit::us;
  c.fabric.bandwidth_fraction = 0.93;
  c.fabric.all_to_all_fraction = 0.74;
  c.fabric.p2p_fraction = 0.7;
  return c;
}

}  // namespace scalemodel
