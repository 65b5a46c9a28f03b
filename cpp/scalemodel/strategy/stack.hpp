// One version of a software stack: which kernels it fuses, what it overlaps, what the CPU costs.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/strategy/recompute_modules.hpp"

namespace scalemodel {

/// What selective recomputation repeats: the attention core (Megatron 2022); norms and activation
/// functions, whose outputs are cheap to make again (Megatron-Core modules); or everything but
/// every second GEMM (PyTorch selective checkpointing).
enum class Selective : std::uint8_t { core_attention, modules, operators };

template <>
struct EnumNames<Selective> {
  static constexpr std::string_view what = "selective recomputation";
  static constexpr std::array<std::string_view, 3> names{"core_attention", "modules", "operators"};
};

/// What a stack's log calls the memory of a run: live tensors at their peak, what the caching
/// allocator reserved on the device, or what the device itself counts (context and communication
/// buffers included), on the fullest rank; or live tensors of the last pipeline stage, where the
/// last rank writes the log.
enum class MemoryReport : std::uint8_t { allocated, reserved, device, last_stage };

template <>
struct EnumNames<MemoryReport> {
  static constexpr std::string_view what = "memory report";
  static constexpr std::array<std::string_view, 4> names{"allocated", "reserved", "device",
                                                         "last_stage"};
};

/// How near a step's kernels come to their tight loops, and what the CPU adds: fitted per stack and
/// bounded by physics.
struct KernelEfficiency {
  double gemm_efficiency = 1;    ///< speed of GEMMs in a step over the same in a tight loop
  double memory_efficiency = 1;  ///< speed of memory-bound kernels likewise
  Seconds host_launch;           ///< CPU overhead of a kernel launch; a layer cannot run faster
  bool host_computes = false;    ///< the CPU that launches also computes: launches add to kernels
  double kernel_spread = 0;      ///< standard deviation of ranks' kernel times over their mean
  double module_operations = 0;  ///< CPU overhead of a module each way, in framework operations
  Seconds step_overhead;         ///< data loading, logging, clipping: once per step
  bool cuda_graphs = false;      ///< layers are launched as graphs, single experts still one by one
  double collective_operations = 0;  ///< CPU overhead of a collective, in framework operations
  double update_launches = 1;  ///< of a kernel of an optimizer's loop over matrices, in launches
  /// What of a layer those graphs hold: attention with a dense feed-forward layer, recurrent
  /// mixers, and what routed layers do besides their experts.
  bool graphed_attention = true, graphed_scans = true, graphed_routing = true;

  bool operator==(const KernelEfficiency&) const = default;
};

/// Which kernels exist, and what is fused into one.
struct KernelFusion {
  AttentionKernel attention = AttentionKernel::flash2;
  bool fused_norm = true, fused_activation = true, fused_rope = true, fused_loss = false;
  bool joint_norm_gradients = false;  ///< one kernel returns both gradients of a norm
  bool fused_accumulation = true;     ///< weight gradients add up inside their GEMMs
  bool split_gate = false;            ///< gate and up are GEMMs of their own
  bool fp8_attention = false;         ///< narrow runs multiply queries, keys and values in FP8 too
  bool row_scales = false;            ///< narrow formats have a scale per row, not per tensor
  bool dropout = false;
  bool rope_by_document = false;  ///< rotary embedding of packs, one document after another
  bool deterministic = false;     ///< no kernel whose sums depend on who comes first
  bool softmax_loss = false;      ///< unfused loss: its softmax is one kernel each way
  /// Norm and output projection of a state space are computed again inside its scan.
  bool fused_mixer = true;
  bool autocast = false;  ///< weights stay in FP32, cast in every pass; gradients are cast back
  /// The head has as many columns as fill this many on every tensor rank, or some unused ones.
  int vocab_multiple = 1;

  bool operator==(const KernelFusion&) const = default;
};

/// Which communication is overlapped with compute, and at what price.
struct OverlapPolicy {
  /// Share of compute time that can hide communication; of layers whose parameters are gathered,
  /// how nearly their traffic hides beside as much compute.
  double overlap_efficiency = 1;
  double contention = 0.1;  ///< slowdown of compute, seconds per second of hidden communication
  bool overlap_grad_reduce = true, overlap_param_gather = true;
  bool overlap_tp = false, overlap_p2p = false, overlap_ep = false;
  bool overlap_tp_in_node = false;  ///< only among accelerators of one node
  bool overlap_ep_between = false;  ///< expert-parallel, where experts span scale-up domains
  double unstaged_pairs = 1;        ///< share of it hidden by a single stage
  bool async_tp = false;            ///< backward exchange under the weight gradient's GEMM
  bool serial_p2p = false;          ///< a stage's four transfers follow one another

  bool operator==(const OverlapPolicy&) const = default;
};

/// How tokens reach their experts, and how experts run.
struct ExpertPolicy {
  bool grouped_launch = false;          ///< the GEMMs of all experts are one kernel
  bool drops_tokens = false;            ///< experts have a capacity: rows are known in advance
  bool fused_experts = false;           ///< activation and quantisation are inside the GEMMs
  bool fused_expert_bias = true;        ///< biases of experts are added inside their GEMMs
  bool fused_clamp = true;              ///< the activation's kernel clamps what it reads
  bool deduplicated_dispatch = false;   ///< one copy of a token per rank, not one per expert
  bool deduplicated_between = false;    ///< one per domain where experts span several
  bool pads_experts = false;            ///< rows are copied into whole blocks of narrow formats
  bool fp32_router = false;             ///< scores of experts are computed in FP32
  double biased_gradient_slowdown = 1;  ///< of GEMMs that return gradients of biased experts
  bool sequential_experts = false;      ///< every expert is a block of its own, called in turn
  /// The router's weights multiply what activations return, not the outputs of experts, which the
  /// weights' gradients would need.
  bool weighted_activation = false;
  bool narrow_dispatch = false;  ///< tokens, and gradients of what comes back, travel narrow

  bool operator==(const ExpertPolicy&) const = default;
};

/// What ranks send each other, in which format, and how they divide the layers.
struct CommunicationPolicy {
  bool ends_as_layers = false;         ///< stages count embedding, final norm and head as layers
  bool whole_p2p = false;              ///< every tensor rank sends the whole stage boundary
  bool all_reduces_gradients = false;  ///< even where optimizer states are sharded
  bool reduces_fp32 = false;           ///< gradients are reduced in FP32 whatever their format
  bool tensor_gathers = false;         ///< sharded parameters: tensor by tensor, in every pass
  bool batch_first = false;            ///< gathers along the sequence copy the tensor into place
  bool narrow_gather = false;  ///< tensor ranks gather inputs in the format of the linear layers
  /// Context ranks that exchange heads put packs in order document by document.
  bool exchange_by_document = false;
  /// Context ranks exchange keys and values of every query head, and their gradients in FP32.
  bool repeated_kv = false;

  bool operator==(const CommunicationPolicy&) const = default;
};

/// What stays in memory, what is recomputed, and what the log calls memory.
struct MemoryPolicy {
  Selective selective = Selective::core_attention;
  RecomputeModules selective_modules{};
  bool early_stop = false;  ///< recomputation ends at the last tensor that is needed
  bool gradients_fp32 = true;
  Bytes optimizer_copy;      ///< copies of gradient and weight, per sharded parameter it updates
  Bytes loss_per_logit{14};  ///< unfused loss, vocabulary on one rank: peak over both passes
  Bytes split_loss_per_logit{14};   ///< the same with the head split over tensor ranks
  bool whole_logits = false;        ///< every tensor rank gathers the whole vocabulary's logits
  bool keep_gathered = false;       ///< sequence parallelism: gathered inputs saved for backward
  bool keep_stage_outputs = false;  ///< each micro-batch in flight also saves its stage's output
  bool master_shards = false;       ///< fully sharded weights exist as master weights only
  bool unused_gradients = false;    ///< an unread gradient per weight shape beside the FP32 one
  bool narrow_gradients = false;    ///< gradients in the storage format beside the FP32 ones
  bool narrow_weights = false;      ///< layers' weights exist in the narrow format alone
  bool narrow_activations = false;  ///< what activations read is saved in the narrow format
  bool master_remainders = false;   ///< master weights are the bits that 16-bit weights lack
  bool update_copies_gradients = false;  ///< to FP32, where gradients are narrower
  bool update_copies_moments = false;    ///< to FP32, where moments are narrower
  MemoryReport memory_report = MemoryReport::allocated;
  double fragmentation_fraction = 0;  ///< of what the allocator hands out and takes back
  Bytes reserve;  ///< driver context, communication buffers outside the allocator

  bool operator==(const MemoryPolicy&) const = default;
};

/// A stack by themes. They are bases, not members: its fields stay flat names here, in the field
/// table and in Python, and a function that needs one theme takes only that.
struct Stack : KernelEfficiency,
               KernelFusion,
               OverlapPolicy,
               ExpertPolicy,
               CommunicationPolicy,
               MemoryPolicy {
  bool operator==(const Stack&) const = default;
};

template <>
struct RecordOf<Stack> {
  static constexpr std::string_view name = "Stack";
  using T = Stack;
  static constexpr FieldTable fields{
      field<T>("gemm_efficiency", &T::gemm_efficiency, 0.1, 1.5,
               "speed of GEMMs in a step over the same in a tight loop"),
      field<T>("memory_efficiency", &T::memory_efficiency, 0.1, 1.5,
               "speed of memory-bound kernels in a step over the same in a tight loop"),
      field<T>("host_launch_s", &T::host_launch, 0, 1e-3, "CPU overhead of a kernel launch"),
      field<T>("host_computes", &T::host_computes,
               "the CPU that launches kernels runs them too: launches add to their times"),
      field<T>(
          "overlap_efficiency", &T::overlap_efficiency, 0, 1,
          "share of compute time that can hide communication; for gathered parameters 1 - 1/p of "
          "the smooth maximum of traffic and compute"),
      field<T>("attention", &T::attention, "attention kernel"),
      field<T>("selective", &T::selective, "what selective recomputation repeats"),
      field<T>("selective_modules", &T::selective_modules,
               "modules that selective recomputation repeats, instead of `selective`"),
      field<T>("fused_norm", &T::fused_norm, "norms in one kernel"),
      field<T>("joint_norm_gradients", &T::joint_norm_gradients,
               "gradients of a fused norm's input and scale in one kernel"),
      field<T>("fused_activation", &T::fused_activation, "activations in one kernel"),
      field<T>("fused_rope", &T::fused_rope, "rotary embedding in one kernel"),
      field<T>("fused_loss", &T::fused_loss, "cross-entropy in one kernel"),
      field<T>("softmax_loss", &T::softmax_loss, "softmax of an unfused loss in one kernel"),
      field<T>("fused_mixer", &T::fused_mixer,
               "norm and output projection of a state space computed again inside its scan"),
      field<T>("autocast", &T::autocast,
               "weights stay in FP32 and are cast in every pass, their gradients cast back"),
      field<T>("cuda_graphs", &T::cuda_graphs,
               "layers launched as CUDA graphs: the CPU launches single experts only"),
      field<T>("graphed_attention", &T::graphed_attention,
               "graphs hold attention, and feed-forward layers that do not route"),
      field<T>("graphed_scans", &T::graphed_scans, "graphs hold recurrent mixers"),
      field<T>("graphed_routing", &T::graphed_routing,
               "graphs hold what routed layers do besides their experts"),
      field<T>("grouped_launch", &T::grouped_launch, "all experts in one kernel"),
      field<T>("drops_tokens", &T::drops_tokens,
               "experts have a capacity: tokens beyond it are dropped"),
      field<T>("fused_experts", &T::fused_experts,
               "experts with activation and quantisation fused"),
      field<T>("fused_expert_bias", &T::fused_expert_bias, "biases of experts inside their GEMMs"),
      field<T>("fused_clamp", &T::fused_clamp, "clamps inside the kernel of an activation"),
      field<T>("fp8_attention", &T::fp8_attention, "attention of narrow runs in FP8"),
      field<T>("row_scales", &T::row_scales, "a scale per row of what narrow GEMMs read"),
      field<T>("dropout", &T::dropout, "dropout is applied, its masks saved for backward"),
      field<T>("rope_by_document", &T::rope_by_document,
               "rotary embedding of packs, one document after another"),
      field<T>("deterministic", &T::deterministic,
               "recurrent mixers in operations of the framework, whose sums have one order"),
      field<T>("vocab_multiple", &T::vocab_multiple, 1, 1e6,
               "columns of the head on a tensor rank are padded to a multiple of this"),
      field<T>("gradients_fp32", &T::gradients_fp32, "gradients accumulated and reduced in FP32"),
      field<T>("overlap_grad_reduce", &T::overlap_grad_reduce,
               "gradient reduction overlapped with compute"),
      field<T>("overlap_param_gather", &T::overlap_param_gather,
               "parameter gathering overlapped with compute"),
      field<T>("overlap_tp", &T::overlap_tp,
               "tensor-parallel communication overlapped with compute"),
      field<T>("overlap_tp_in_node", &T::overlap_tp_in_node,
               "tensor-parallel overlap inside a node only"),
      field<T>("overlap_p2p", &T::overlap_p2p, "pipeline transfers overlapped with compute"),
      field<T>("overlap_ep", &T::overlap_ep,
               "expert-parallel communication overlapped with compute"),
      field<T>("overlap_ep_between", &T::overlap_ep_between,
               "expert-parallel communication between scale-up domains overlapped with compute"),
      field<T>("unstaged_pairs", &T::unstaged_pairs, 0, 1,
               "share of that which one pipeline stage hides, without a schedule of stages"),
      field<T>("deduplicated_dispatch", &T::deduplicated_dispatch,
               "one copy of a token per rank, not one per expert"),
      field<T>("fused_accumulation", &T::fused_accumulation,
               "weight gradients add up inside their GEMMs"),
      field<T>("split_gate", &T::split_gate, "gate and up are GEMMs of their own"),
      field<T>("async_tp", &T::async_tp,
               "backward tensor-parallel exchange under the weight gradient's GEMM"),
      field<T>("ends_as_layers", &T::ends_as_layers,
               "pipeline stages count embedding, final norm and LM head as layers"),
      field<T>("serial_p2p", &T::serial_p2p, "the four transfers of a stage follow one another"),
      field<T>("whole_p2p", &T::whole_p2p, "every tensor rank sends the whole stage boundary"),
      field<T>("all_reduces_gradients", &T::all_reduces_gradients,
               "gradients are all-reduced even where optimizer states are sharded"),
      field<T>("reduces_fp32", &T::reduces_fp32,
               "gradients are reduced in FP32 whatever their format"),
      field<T>("tensor_gathers", &T::tensor_gathers,
               "sharded parameters are gathered tensor by tensor, in every pass"),
      field<T>("early_stop", &T::early_stop,
               "recomputation ends at the last tensor that is needed"),
      field<T>("deduplicated_between", &T::deduplicated_between,
               "one copy of a token per scale-up domain"),
      field<T>("pads_experts", &T::pads_experts, "rows copied into whole blocks of narrow formats"),
      field<T>("fp32_router", &T::fp32_router, "scores of experts in FP32"),
      field<T>("biased_gradient_slowdown", &T::biased_gradient_slowdown, 1, 1000,
               "time of input gradients of experts with biases over that without"),
      field<T>("sequential_experts", &T::sequential_experts,
               "experts are modules of their own, called one after another"),
      field<T>("weighted_activation", &T::weighted_activation,
               "the router's weights multiply activations, not the outputs of experts"),
      field<T>("narrow_dispatch", &T::narrow_dispatch,
               "tokens go to experts in the narrow format, gradients of their outputs likewise"),
      field<T>("batch_first", &T::batch_first, "gathers along the sequence are copied into place"),
      field<T>("narrow_gather", &T::narrow_gather, "tensor ranks gather quantised inputs"),
      field<T>("exchange_by_document", &T::exchange_by_document,
               "context ranks that exchange heads order packs document by document"),
      field<T>("repeated_kv", &T::repeated_kv,
               "rings of context ranks carry keys and values of every query head, gradients FP32"),
      field<T>("optimizer_copy_bytes", &T::optimizer_copy, 0, 64,
               "copies of gradient and weight, per sharded parameter that the optimizer updates"),
      field<T>("loss_per_logit_bytes", &T::loss_per_logit, 0, 64,
               "peak memory of the unfused loss on the whole vocabulary, per logit"),
      field<T>("split_loss_per_logit_bytes", &T::split_loss_per_logit, 0, 64,
               "peak memory of the unfused loss behind a vocabulary-parallel LM head, per logit"),
      field<T>("whole_logits", &T::whole_logits, "tensor ranks hold the whole vocabulary's logits"),
      field<T>("keep_gathered", &T::keep_gathered,
               "gathered inputs are saved for the backward pass"),
      field<T>("keep_stage_outputs", &T::keep_stage_outputs,
               "micro-batches in flight save their stage's output"),
      field<T>("master_shards", &T::master_shards, "fully sharded weights are master weights only"),
      field<T>("unused_gradients", &T::unused_gradients,
               "an unread gradient per weight shape beside the FP32 one"),
      field<T>("narrow_gradients", &T::narrow_gradients,
               "gradients in the storage format beside the FP32 ones"),
      field<T>("narrow_weights", &T::narrow_weights,
               "weights of layers in the narrow format alone, cast from the master weights"),
      field<T>("narrow_activations", &T::narrow_activations,
               "what activation functions read is saved for backward in the narrow format"),
      field<T>("master_remainders", &T::master_remainders,
               "master weights as the bits that 16-bit weights lack of them"),
      field<T>("update_copies_gradients", &T::update_copies_gradients,
               "the update of the parameters works on FP32 copies of narrower gradients"),
      field<T>("update_copies_moments", &T::update_copies_moments,
               "the update of the parameters works on FP32 copies of narrower moments"),
      field<T>("memory_report", &T::memory_report, "what the log of a run calls memory"),
      field<T>("contention", &T::contention, 0, 2,
               "slowdown of compute, seconds per second of hidden communication"),
      field<T>("kernel_spread", &T::kernel_spread, 0, 0.5,
               "standard deviation of the ranks' kernel times over their mean"),
      field<T>("module_operations", &T::module_operations, 0, 1e4,
               "CPU overhead of a module each way, in operations of the framework"),
      field<T>("collective_operations", &T::collective_operations, 0, 1e4,
               "CPU overhead of a collective among tensor or context ranks, in operations of the "
               "framework"),
      field<T>("update_launches", &T::update_launches, 0, 100,
               "CPU overhead of a kernel of an optimizer's loop over matrices, in launches of a "
               "layer's"),
      field<T>("step_overhead_s", &T::step_overhead, 0, 100,
               "data loading, logging and clipping, once per step"),
      field<T>("fragmentation_fraction", &T::fragmentation_fraction, 0, 1,
               "share lost by the allocator, of the memory it hands out and takes back"),
      field<T>("reserve_bytes", &T::reserve, 0, 1e12,
               "memory outside the allocator: driver context, communication buffers")};
};

}  // namespace scalemodel
