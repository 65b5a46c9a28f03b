// What the C++ tests share: a reference accelerator and cluster, a few decoders, random strategies.
// The numbers are H100-like, but no test depends on a particular value of a fitted constant.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "approx.hpp"
#include "draws.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/vision.hpp"

namespace scalemodel::testing {

// ------------------------------------------------------------------------------------ hardware
/// Dense peaks, memory and kernels of an 80 GB accelerator of the Hopper generation, without FP4.
inline Accelerator reference_accelerator() {
  Accelerator a;
  const auto tflop = [](double rate) { return FlopPerSecond{rate * 1e12}; };
  a.peak = {tflop(67), tflop(495), tflop(990), tflop(990), tflop(1980), tflop(0)};
  a.multiprocessors = 132;
  a.clock = Hertz{1.8e9};
  a.memory_capacity = 80 * unit::GiB;
  a.memory_bandwidth = 3.35e12 * (unit::B / unit::s);
  a.l2 = 50 * unit::MB;
  a.host_bandwidth = 60 * (unit::GB / unit::s);
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
  wide.wave_weight = 0.25;
  wide.split = 2.5 * unit::us;
  wide.split_passes = 6;
  wide.memory_ramp = 0.1 * unit::us;
  wide.blend = 3.4;
  a.gemm.fp8 = wide;
  a.gemm.fp8.launch = 5.5 * unit::us;
  a.gemm.fp8.quantise_passes = 2;
  a.gemm.tile_rows = {160, 96, 128, 64, 128, 16, 192, 256};
  a.gemm.tile_columns = {64, 128, 32, 32, 96, 32, 32, 128};
  a.gemm.wave_targets = 2;
  a.gemm.reference_peak = tflop(990);
  a.gemm.roofline_compute_fraction = 0.76;
  a.gemm.roofline_memory_fraction = 0.82;
  a.gemm.roofline_launch = 3 * unit::us;
  a.attention = {0.34, 0.3, 0.62, 0.54, 0.33, 10 * unit::us};
  a.elementwise = {0.88, 0.6, 0.76, 2 * unit::us};
  a.power = {700 * unit::W, 75 * unit::W, 0.94, 0.79};
  return a;
}

/// Nodes of eight accelerators on NVLink and one 400 Gbit/s port each.
inline Cluster reference_cluster(int accelerators) {
  Cluster c;
  c.accelerator = reference_accelerator();
  c.accelerators = accelerators;
  c.node_accelerators = 8;
  c.host_power = 1750 * unit::W;
  c.host_memory = 2000 * unit::GB;
  c.scale_up.domain = 8;
  c.scale_up.bandwidth = 450 * (unit::GB / unit::s);
  c.scale_up.all_reduce = {4.7 * unit::us,  0.88 * unit::us, 0.28,         9.4 * unit::us,
                           0.44 * unit::us, 0.847,           10 * unit::us};
  c.scale_up.all_gather = {5.0 * unit::us, 0.82 * unit::us, 0.246,       17.4 * unit::us,
                           0 * unit::us,   0.759,           5 * unit::us};
  c.scale_up.reduce_scatter = {5.2 * unit::us,  0.87 * unit::us, 0.359,       10.3 * unit::us,
                               0.01 * unit::us, 0.739,           6 * unit::us};
  c.scale_up.all_to_all = {7.9 * unit::us,  0.04 * unit::us, 0.162,        6.2 * unit::us,
                           0.25 * unit::us, 0.783,           14 * unit::us};
  c.scale_up.p2p_latency = 10 * unit::us;
  c.scale_up.p2p_fraction = 0.75;
  c.fabric.bandwidth = 50 * (unit::GB / unit::s);
  c.fabric.ring_hop_ll128 = 4 * unit::us;
  c.fabric.ring_hop_simple = 14 * unit::us;
  c.fabric.tree_hop_ll128 = 8.5 * unit::us;
  c.fabric.tree_hop_simple = 14 * unit::us;
  c.fabric.latency_factor = 2;
  c.fabric.bandwidth_fraction = 0.93;
  c.fabric.all_to_all_fraction = 0.74;
  c.fabric.p2p_latency = 15 * unit::us;
  c.fabric.p2p_fraction = 0.7;
  c.pue = 1.2;
  c.price = DollarsPerSecond{2.0 / 3600};
  return c;
}

/// The same without any latency and with equal fractions of every link: time is bytes over
/// bandwidth, so that traffic can be compared exactly.
inline Cluster without_latency(Cluster c) {
  const CollectiveFit pure{Seconds{}, Seconds{}, 1e-3, Seconds{}, Seconds{}, 0.8, Seconds{}};
  c.scale_up.all_reduce = c.scale_up.all_gather = pure;
  c.scale_up.reduce_scatter = c.scale_up.all_to_all = pure;
  c.scale_up.p2p_latency = c.fabric.p2p_latency = Seconds{};
  c.fabric.latency_factor = 0;
  return c;
}

inline Stack reference_stack() {
  Stack s;
  s.gemm_efficiency = s.memory_efficiency = 0.9;
  s.host_launch = 4 * unit::us;
  s.overlap_efficiency = 0.8;
  s.step_overhead = 10 * unit::ms;
  s.fragmentation_fraction = 0.03;
  s.reserve = 2 * unit::GiB;
  return s;
}

/// Nothing is hidden, nothing slows down, nothing is charged once per step.
inline Stack plain_sum_stack() {
  Stack s = reference_stack();
  s.host_launch = s.step_overhead = Seconds{};
  s.contention = 0;
  s.overlap_grad_reduce = s.overlap_param_gather = false;
  return s;
}

// -------------------------------------------------------------------------------------- models
/// 175 billion parameters, multi-head attention, learned positions.
inline DecoderShape gpt3_shape() {
  DecoderShape s;
  s.layers = 96;
  s.hidden = 12288;
  s.vocab = 51200;
  s.position = Position::learned;
  s.positions = 2048;
  s.tied_embeddings = true;
  s.heads = 96;
  s.ffn = 49152;
  s.norm = Norm::layernorm;
  s.qkv_bias = s.out_bias = s.mlp_bias = true;
  return s;
}

/// Layers of widths that can be counted by hand, gated.
inline DecoderShape hand_sized_shape(int layers) {
  DecoderShape s;
  s.layers = layers;
  s.hidden = 64;
  s.vocab = 100;
  s.heads = 8;
  s.kv_heads = 2;
  s.head_dim = 16;
  s.ffn = 256;
  s.gated = true;
  return s;
}

/// 7 billion parameters, gated.
inline DecoderShape dense_7b_shape() {
  DecoderShape s;
  s.layers = 32;
  s.hidden = 4096;
  s.vocab = 32000;
  s.heads = 32;
  s.ffn = 11008;
  s.gated = true;
  return s;
}

/// 70 billion parameters, eight key/value heads.
inline DecoderShape grouped_70b_shape() {
  DecoderShape s;
  s.layers = 80;
  s.hidden = 8192;
  s.vocab = 128256;
  s.heads = 64;
  s.kv_heads = 8;
  s.ffn = 28672;
  s.gated = true;
  return s;
}

/// 47 billion parameters in eight experts, two per token.
inline DecoderShape experts_8x7b_shape() {
  DecoderShape s = dense_7b_shape();
  s.kv_heads = 8;
  s.ffn = s.expert_ffn = 14336;
  s.experts = 8;
  s.experts_per_token = 2;
  return s;
}

/// Latent attention, leading dense layers, shared and routed experts, one prediction module.
inline DecoderShape latent_experts_shape() {
  DecoderShape s;
  s.layers = 27;
  s.hidden = 2048;
  s.vocab = 102400;
  s.heads = 16;
  s.head_dim = 192;
  s.v_head_dim = 128;
  s.kv_lora_rank = 512;
  s.q_lora_rank = 1536;
  s.qk_rope_head_dim = 64;
  s.ffn = 10944;
  s.gated = true;
  s.experts = 64;
  s.experts_per_token = 6;
  s.shared_experts = 2;
  s.expert_ffn = 1408;
  s.first_dense_layers = 1;
  s.mtp_layers = 1;
  return s;
}

/// A vision tower over patches of 16 pixels, four of which a projector of two matrices makes one
/// token of.
inline VisionShape small_tower() {
  VisionShape s;
  s.layers = 12;
  s.hidden = 1024;
  s.heads = 16;
  s.ffn = 4096;
  s.patch = 16;
  s.merge = 2;
  s.projector_inner = 4096;
  return s;
}

/// Sliding window, every second layer with full attention, tied tables, four norms a layer.
inline DecoderShape window_shape() {
  DecoderShape s = dense_7b_shape();
  s.layers = 42;
  s.hidden = 3584;
  s.vocab = 256000;
  s.heads = 16;
  s.kv_heads = 8;
  s.head_dim = 256;
  s.ffn = 14336;
  s.window = 4096;
  s.full_attention_every = 2;
  s.norms_per_layer = 4;
  s.tied_embeddings = true;
  return s;
}

inline Task training(int global_batch, int sequence, Precision precision = Precision::bf16) {
  Task task;
  task.global_batch = global_batch;
  task.sequence = sequence;
  task.precision = precision;
  return task;
}

// ----------------------------------------------------------------------------------- questions
inline Estimate estimate(const DecoderShape& shape, const Cluster& cluster, const Task& task,
                         const Strategy& strategy, const Stack& stack = reference_stack()) {
  Tables tables(make_decoder(shape), cluster, task, stack);
  tables.tabulate(strategy);
  return evaluate(tables, strategy);
}

/// Degrees only; the rest stays default.
inline Strategy degrees(int tp, int pp = 1, int cp = 1, int ep = 1) {
  Strategy s;
  s.tp = static_cast<std::uint16_t>(tp);
  s.pp = static_cast<std::uint16_t>(pp);
  s.cp = static_cast<std::uint16_t>(cp);
  s.ep = static_cast<std::uint16_t>(ep);
  return s;
}

inline bool can_run(const Estimate& e) { return !is_illegal(e.verdict); }

inline Seconds exposed(const Estimate& e) {
  return e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp + e.exposed_dp +
         e.exposed_offload;
}

inline Seconds sum_of_times(const Estimate& e) {
  return e.compute + exposed(e) + e.bubble + e.optimizer + e.overhead;
}

inline Bytes sum_of_memory(const Estimate& e) {
  return e.memory_weights + e.memory_gradients + e.memory_optimizer + e.memory_activations +
         e.memory_logits + e.memory_temporary + e.memory_communication + e.memory_gathered +
         e.memory_reserve;
}

/// Equal but for the rounding of differently ordered sums.
template <Dim D>
bool about_equal(Quantity<D> a, Quantity<D> b, double relative = 1e-9) {
  const double scale = std::max(std::abs(a.base()), std::abs(b.base()));
  return std::abs(a.base() - b.base()) <= relative * scale;
}

/// Not above, but for rounding.
template <Dim D>
bool at_most(Quantity<D> low, Quantity<D> high, double relative = 1e-9) {
  return low.base() <= high.base() + relative * std::abs(high.base());
}

// ---------------------------------------------------------------------------- random strategies
/// A small generator whose sequence is the same on every platform (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  int below(int count) { return static_cast<int>(next() % static_cast<std::uint64_t>(count)); }
  bool flip() { return below(2) == 1; }
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1.0p-53);
  }
  template <class T>
  T pick(std::initializer_list<T> options) {
    return options.begin()[below(static_cast<int>(options.size()))];
  }
  template <NamedEnum E>
  E pick_enum() {
    return static_cast<E>(below(static_cast<int>(EnumNames<E>::names.size())));
  }

 private:
  std::uint64_t state_;
};

/// Any strategy, most of them legal on a power-of-two cluster.
inline Strategy random_strategy(Random& random) {
  Strategy s = degrees(random.pick({1, 1, 2, 4, 8}), random.pick({1, 1, 2, 4, 8}),
                       random.pick({1, 1, 1, 2, 4}), random.pick({1, 1, 1, 2, 4, 8}));
  s.vpp = static_cast<std::uint8_t>(random.pick({1, 1, 1, 2, 3}));
  s.micro_batch = static_cast<std::uint16_t>(random.pick({1, 1, 2, 4}));
  s.schedule = s.vpp > 1
                   ? random.pick({Schedule::one_f_one_b, Schedule::interleaved})
                   : random.pick({Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble,
                                  Schedule::dualpipe, Schedule::zero_bubble_2p,
                                  Schedule::zero_bubble_v, Schedule::dualpipe_v});
  s.sharding = random.pick_enum<Sharding>();
  s.shard_degree = static_cast<std::uint16_t>(random.pick({0, 1, 2, 4}));
  s.recompute = random.pick_enum<Recompute>();
  s.recompute_layers = static_cast<std::uint16_t>(random.pick({0, 0, 1, 3}));
  s.context = random.pick_enum<ContextParallel>();
  s.etp = static_cast<std::uint8_t>(random.pick({0, 0, 1, 2}));
  if (random.below(4) == 0) s.placement = random.pick_enum<Placement>();
  s.sequence_parallel = random.flip();
  s.offload_weights = random.below(8) == 0;
  s.offload_activations = random.below(8) == 0;
  s.offload_optimizer = random.below(8) == 0;
  s.overlap_grad_reduce = random.pick_enum<OrDefault<OnOff>>();
  s.overlap_param_gather = random.pick_enum<OrDefault<OnOff>>();
  s.overlap_tp = random.pick_enum<OrDefault<TensorOverlap>>();
  s.regather = random.flip();
  s.split_p2p = random.flip();
  s.linear_precision = random.pick<OrDefault<Precision>>({{}, {}, Precision::bf16, Precision::fp8});
  if (gathers_parameters(s.sharding)) {
    // Decided by knobs that mean something else, so that no other draw moves.
    s.secondary_degree = s.etp;
    s.quantized_gather = s.regather;
    s.quantized_reduce = s.split_p2p;
  }
  return s;
}

/// A model, a cluster and a task with their tables.
struct Question {
  std::string name;
  Tables tables;
};

/// Questions that between them use every layer kind, precision and attention kernel.
inline std::vector<Question> all_questions(int accelerators = 64) {
  const Cluster cluster = reference_cluster(accelerators);
  Cluster pods = cluster;
  pods.fabric.pod = 32;
  pods.fabric.oversubscription = 4;
  Task fp8 = training(256, 4096, Precision::fp8);
  fp8.gradient_precision = GradientPrecision::bf16;
  fp8.imbalance = 1.3;
  Task unfused = training(512, 2048, Precision::fp16);
  unfused.attention = AttentionKernel::unfused;
  unfused.fused_norm = OnOff::off;
  unfused.dropout = OnOff::on;
  unfused.optimizer = Optimizer::sgd_momentum;
  Task adapters = training(128, 4096);
  adapters.method = Method::lora;
  adapters.lora_targets = LoraTargets::all;
  Stack eager = reference_stack();
  eager.selective = Selective::operators;
  eager.fused_activation = eager.fused_rope = false;
  eager.fused_loss = eager.overlap_p2p = eager.overlap_tp = true;
  Stack plain_pytorch = reference_stack();
  plain_pytorch.fused_accumulation = false;
  plain_pytorch.split_gate = plain_pytorch.ends_as_layers = true;
  plain_pytorch.whole_logits = plain_pytorch.keep_gathered = true;
  plain_pytorch.serial_p2p = plain_pytorch.whole_p2p = plain_pytorch.async_tp = true;
  plain_pytorch.all_reduces_gradients = plain_pytorch.reduces_fp32 = true;
  plain_pytorch.tensor_gathers = plain_pytorch.early_stop = true;
  plain_pytorch.gradients_fp32 = false;
  eager.keep_gathered = eager.keep_stage_outputs = eager.whole_logits = true;
  eager.master_shards = eager.unused_gradients = eager.narrow_gradients = true;
  Stack routed = reference_stack();
  routed.deduplicated_dispatch = routed.deduplicated_between = routed.overlap_ep_between = true;
  routed.pads_experts = routed.fp32_router = routed.narrow_gather = routed.batch_first = true;
  routed.row_scales = routed.repeated_kv = true;
  routed.overlap_tp = routed.overlap_tp_in_node = true;
  eager.drops_tokens = true;
  Stack whole_graph = routed;
  whole_graph.grouped_launch = whole_graph.fused_experts = true;
  Accelerator measured_little = cluster.accelerator;
  measured_little.gemm.tiled = false;
  Cluster roofline = cluster;
  roofline.accelerator = measured_little;

  std::vector<Question> all;
  const auto add = [&](const char* name, const DecoderShape& shape, const Cluster& on,
                       const Task& task, const Stack& stack) {
    all.push_back({name, Tables(make_decoder(shape), on, task, stack)});
  };
  add("GPT-3", gpt3_shape(), cluster, unfused, reference_stack());
  add("7B", dense_7b_shape(), cluster, training(256, 4096), eager);
  add("70B", grouped_70b_shape(), pods, training(256, 8192), reference_stack());
  add("8x7B", experts_8x7b_shape(), cluster, fp8, reference_stack());
  add("latent experts", latent_experts_shape(), cluster, training(256, 4096), eager);
  add("routed FP8", latent_experts_shape(), cluster, fp8, routed);
  add("whole graph", experts_8x7b_shape(), pods, fp8, whole_graph);
  add("window", window_shape(), roofline, training(256, 8192), reference_stack());
  add("plain PyTorch", grouped_70b_shape(), cluster, training(256, 4096), plain_pytorch);
  add("adapters", grouped_70b_shape(), cluster, adapters, reference_stack());
  return all;
}

/// Calls `visit(question, strategy, estimate)` for `count` random strategies that can run.
template <class Visit>
void for_random_estimates(int count, std::uint64_t seed, Visit&& visit) {
  std::vector<Question> questions = all_questions();
  Random random(seed);
  int seen = 0;
  for (int attempt = 0; seen < count && attempt < 100 * count; ++attempt) {
    Question& question =
        questions[static_cast<std::size_t>(random.below(static_cast<int>(questions.size())))];
    const Strategy strategy = random_strategy(random);
    question.tables.tabulate(strategy);
    const Estimate e = evaluate(question.tables, strategy);
    if (!can_run(e)) continue;
    ++seen;
    visit(question, strategy, e);
  }
  REQUIRE(seen == count);
}

}  // namespace scalemodel::testing
