// One version of a software stack: which kernels it fuses, what it overlaps, what the host costs.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/ops/attention.hpp"

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
/// allocator took from the device, or what the device itself counts (context and communication
/// buffers included).
enum class MemoryReport : std::uint8_t { allocated, reserved, device };

template <>
struct EnumNames<MemoryReport> {
  static constexpr std::string_view what = "memory report";
  static constexpr std::array<std::string_view, 3> names{"allocated", "reserved", "device"};
};

struct Stack {
  // Free constants, fitted per stack and bounded by physics.
  double gemm_efficiency = 1;    ///< GEMMs in a step over the same in a tight loop
  double memory_efficiency = 1;  ///< memory-bound kernels likewise
  Seconds host_launch;           ///< host time per kernel; a layer cannot run faster
  /// Share of compute time that can hide communication; of layers whose parameters are gathered,
  /// how nearly their traffic hides beside as much compute.
  double overlap_efficiency = 1;
  // Facts about the stack.
  AttentionKernel attention = AttentionKernel::flash2;
  Selective selective = Selective::core_attention;
  bool fused_norm = true, fused_activation = true, fused_rope = true, fused_loss = false;
  bool dropout = false;
  bool grouped_launch = false;  ///< the GEMMs of all experts are one kernel
  bool drops_tokens = false;    ///< experts take what they have room for: rows known in advance
  bool fused_experts = false;   ///< their activation and quantisation are inside the GEMMs
  bool gradients_fp32 = true;
  bool overlap_grad_reduce = true, overlap_param_gather = true;
  bool overlap_tp = false, overlap_p2p = false, overlap_ep = false;
  bool overlap_tp_in_node = false;     ///< only among accelerators of one node
  bool overlap_ep_between = false;     ///< the same where experts span scale-up domains
  bool deduplicated_dispatch = false;  ///< one copy of a token per rank, not one per expert
  bool fused_accumulation = true;      ///< weight gradients add up inside their GEMMs
  bool split_gate = false;             ///< gate and up are GEMMs of their own
  bool async_tp = false;               ///< backward exchange under the weight gradient's GEMM
  bool ends_as_layers = false;         ///< stages count embedding, final norm and head as layers
  bool serial_p2p = false;             ///< a stage's four transfers follow one another
  bool whole_p2p = false;              ///< every tensor rank sends the whole boundary
  bool all_reduces_gradients = false;  ///< even where optimizer states are sharded
  bool reduces_fp32 = false;           ///< gradients travel in FP32 whatever they are kept in
  bool tensor_gathers = false;         ///< sharded parameters: tensor by tensor, in every pass
  bool early_stop = false;             ///< recomputation ends at the last tensor that is needed
  bool deduplicated_between = false;   ///< one per domain where experts span several
  bool pads_experts = false;           ///< rows are copied into whole blocks of narrow formats
  bool fp32_router = false;            ///< scores of experts are computed in FP32
  bool batch_first = false;            ///< gathers along the sequence copy the tensor into place
  bool narrow_gather = false;  ///< tensor ranks gather inputs in the format of the linear layers
  Bytes optimizer_copy;        ///< per sharded parameter it updates: copies of gradient and weight
  // Facts about what it keeps.
  Bytes loss_per_logit{14};        ///< unfused loss, vocabulary on one rank: peak over both passes
  Bytes split_loss_per_logit{14};  ///< the same with the head split over tensor ranks
  bool whole_logits = false;       ///< every tensor rank gathers the whole vocabulary's logits
  bool keep_gathered = false;  ///< sequence parallelism: gathered inputs are kept, not regathered
  bool keep_stage_outputs = false;  ///< each micro-batch in flight also keeps its stage's output
  bool master_shards = false;       ///< fully sharded weights exist as master weights only
  bool unused_gradients = false;    ///< an unread gradient per weight shape beside the FP32 one
  bool narrow_gradients = false;    ///< gradients in the storage format beside the FP32 ones
  MemoryReport memory_report = MemoryReport::allocated;
  double contention = 0.1;            ///< slow-down of compute, per second of hidden communication
  double kernel_spread = 0;           ///< standard deviation of ranks' kernel times over the mean
  Seconds step_overhead;              ///< data, logging, clipping: once per step
  double fragmentation_fraction = 0;  ///< of what the allocator hands out and takes back
  Bytes reserve;  ///< driver context, communication buffers outside the allocator

  bool operator==(const Stack&) const = default;
};

template <>
struct RecordOf<Stack> {
  static constexpr std::string_view name = "Stack";
  using T = Stack;
  static constexpr std::tuple fields{
      field("gemm_efficiency", &T::gemm_efficiency, 0.1, 1.5,
            "GEMMs in a step over the same in a tight loop"),
      field("memory_efficiency", &T::memory_efficiency, 0.1, 1.5,
            "memory-bound kernels in a step over the same in a tight loop"),
      field("host_launch_s", &T::host_launch, 0, 1e-3, "host time per kernel"),
      field("overlap_efficiency", &T::overlap_efficiency, 0, 1,
            "share of compute time that can hide communication; for gathered parameters 1 - 1/p of "
            "the smooth maximum of traffic and compute"),
      field("attention", &T::attention, "attention kernel"),
      field("selective", &T::selective, "what selective recomputation repeats"),
      field("fused_norm", &T::fused_norm, "norms in one kernel"),
      field("fused_activation", &T::fused_activation, "activations in one kernel"),
      field("fused_rope", &T::fused_rope, "rotary embedding in one kernel"),
      field("fused_loss", &T::fused_loss, "cross-entropy in one kernel"),
      field("grouped_launch", &T::grouped_launch, "all experts in one kernel"),
      field("drops_tokens", &T::drops_tokens, "experts have room for a fixed number of rows"),
      field("fused_experts", &T::fused_experts, "experts with activation and quantisation fused"),
      field("dropout", &T::dropout, "dropout masks are kept"),
      field("gradients_fp32", &T::gradients_fp32, "gradients accumulated and reduced in FP32"),
      field("overlap_grad_reduce", &T::overlap_grad_reduce, "gradient reduction hidden"),
      field("overlap_param_gather", &T::overlap_param_gather, "parameter gathering hidden"),
      field("overlap_tp", &T::overlap_tp, "tensor-parallel communication hidden"),
      field("overlap_tp_in_node", &T::overlap_tp_in_node, "the same, inside a node only"),
      field("overlap_p2p", &T::overlap_p2p, "pipeline transfers hidden"),
      field("overlap_ep", &T::overlap_ep, "expert-parallel communication hidden"),
      field("overlap_ep_between", &T::overlap_ep_between,
            "expert-parallel communication between scale-up domains hidden"),
      field("deduplicated_dispatch", &T::deduplicated_dispatch,
            "one copy of a token per rank, not one per expert"),
      field("fused_accumulation", &T::fused_accumulation,
            "weight gradients add up inside their GEMMs"),
      field("split_gate", &T::split_gate, "gate and up are GEMMs of their own"),
      field("async_tp", &T::async_tp,
            "backward tensor-parallel exchange under the weight gradient's GEMM"),
      field("ends_as_layers", &T::ends_as_layers,
            "pipeline stages count embedding, final norm and head as layers"),
      field("serial_p2p", &T::serial_p2p, "the four transfers of a stage follow one another"),
      field("whole_p2p", &T::whole_p2p, "every tensor rank sends the whole stage boundary"),
      field("all_reduces_gradients", &T::all_reduces_gradients,
            "gradients are all-reduced even where optimizer states are sharded"),
      field("reduces_fp32", &T::reduces_fp32, "gradients travel in FP32"),
      field("tensor_gathers", &T::tensor_gathers,
            "sharded parameters are gathered tensor by tensor, in every pass"),
      field("early_stop", &T::early_stop, "recomputation ends at the last tensor that is needed"),
      field("deduplicated_between", &T::deduplicated_between,
            "one copy of a token per scale-up domain"),
      field("pads_experts", &T::pads_experts, "rows copied into whole blocks of narrow formats"),
      field("fp32_router", &T::fp32_router, "scores of experts in FP32"),
      field("batch_first", &T::batch_first, "gathers along the sequence are copied into place"),
      field("narrow_gather", &T::narrow_gather, "tensor ranks gather quantised inputs"),
      field("optimizer_copy_bytes", &T::optimizer_copy, 0, 64,
            "per sharded parameter it updates: copies of gradient and weight"),
      field("loss_per_logit_bytes", &T::loss_per_logit, 0, 64,
            "unfused loss on the whole vocabulary, per logit"),
      field("split_loss_per_logit_bytes", &T::split_loss_per_logit, 0, 64,
            "unfused loss behind a head split over tensor ranks, per logit"),
      field("whole_logits", &T::whole_logits, "tensor ranks hold the whole vocabulary's logits"),
      field("keep_gathered", &T::keep_gathered, "gathered inputs are kept for the backward pass"),
      field("keep_stage_outputs", &T::keep_stage_outputs,
            "micro-batches in flight keep their stage's output"),
      field("master_shards", &T::master_shards, "fully sharded weights are master weights only"),
      field("unused_gradients", &T::unused_gradients,
            "an unread gradient per weight shape beside the FP32 one"),
      field("narrow_gradients", &T::narrow_gradients,
            "gradients in the storage format beside the FP32 ones"),
      field("memory_report", &T::memory_report, "what its log calls memory"),
      field("contention", &T::contention, 0, 2, "slow-down per second of hidden communication"),
      field("kernel_spread", &T::kernel_spread, 0, 0.5,
            "standard deviation of the ranks' kernel times over their mean"),
      field("step_overhead_s", &T::step_overhead, 0, 100, "once per step"),
      field("fragmentation_fraction", &T::fragmentation_fraction, 0, 1,
            "lost by the allocator, of what comes and goes"),
      field("reserve_bytes", &T::reserve, 0, 1e12, "outside the allocator")};
};

}  // namespace scalemodel
