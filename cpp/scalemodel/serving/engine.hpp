// One version of a serving engine: what it batches, its CPU overhead, which kernels it runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/collectives/custom_all_reduce.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/attention_kernels.hpp"
#include "scalemodel/ops/dispatch.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "scalemodel/ops/moe.hpp"
#include "scalemodel/ops/work_kernel.hpp"
#include "scalemodel/serving/adapters.hpp"
#include "scalemodel/serving/guided.hpp"

namespace scalemodel {

/// When a waiting request may start: when the cache holds all it will ever need (nothing is ever
/// preempted), or when it holds its prompt (the last to come is preempted when the KV cache runs
/// full).
enum class Admission : std::uint8_t { whole_output, prompt };

template <>
struct EnumNames<Admission> {
  static constexpr std::string_view what = "admission";
  static constexpr std::array<std::string_view, 2> names{"whole_output", "prompt"};
};

struct Engine {
  // Free constants, fitted per engine version and bounded by physics.
  double kernel_efficiency = 1;  ///< kernels in a tight loop over the same inside a step
  Seconds collective_wait;       ///< of eight ranks for one another, per collective
  Seconds step_host;             ///< CPU overhead per step
  Seconds broadcast_host;        ///< the same per doubling of the tensor ranks that are told of it
  Seconds sequence_host;         ///< CPU overhead per running sequence and step
  Seconds pipeline_host;         ///< the same on top, where stages form a pipeline
  Seconds request_host;    ///< CPU overhead from arrival to the scheduler, and back with a token
  Seconds prompt_host;     ///< CPU overhead of a prompt in the step that computes it
  Seconds adapter_kernel;  ///< a shrink or an expand of low-rank adapters takes at least
  Seconds adapter_launch;  ///< and one whose thread blocks are counted, beside them
  Seconds adapter_block;   ///< a thread block of theirs keeps its multiprocessor so long
  Seconds adapter_pass;    ///< and longer by this for every pass over its depth
  Seconds idle_adapter_block;  ///< one that finds no tokens; 0: none is launched without
  Seconds adapter_copy;        ///< CPU time to start the copy of one of their matrices
  // Facts.
  bool overlaps_host = false;   ///< a step is prepared while another runs, on one stage
  bool mixed_batches = true;    ///< prefill and decode share a step
  bool chunked_prefill = true;  ///< chunked prefill: a prompt may be computed over several steps
  bool uses_windows = true;     ///< sliding windows are honoured; else every layer is full
  bool window_cache = false;    ///< layers with a sliding window drop what is behind it
  bool tunes_limits = false;    ///< limits of a step follow from memory and request lengths
  bool fused_quantisation = false;  ///< norms and activations write the narrow format
  bool limits_per_rank = true;      ///< limits of a step are those of each data-parallel rank
  double expert_spread = 0;         ///< standard deviation of an expert's load over its mean
  double balanced_spread = 0;       ///< the same of its copies, where redundant ones balance it
  Admission admission = Admission::prompt;
  int block_tokens = 16;              ///< tokens of a KV cache block
  int max_batched_tokens = 8192;      ///< tokens of a step, >= 1
  int max_running_sequences = 1024;   ///< sequences of a step, >= 1
  double memory_fraction = 0.9;       ///< what the engine may fill
  bool fraction_of_free = false;      ///< of the memory left beside weights, not of all memory
  Bytes reserve;                      ///< driver context, graphs, workspaces
  Adapters adapters;                  ///< low-rank adapters it is started with
  bool overlaps_drafts = true;        ///< CPU overhead stays hidden where a layer drafts
  bool overlaps_draft_models = true;  ///< and where a draft model does
  bool phased_drafts = false;      ///< the CPU prepares drafts, verification and what is accepted
                                   ///< of it one by one, where a layer drafts
  Seconds draft_layer_host;        ///< the CPU launches a layer of a draft model, without graphs
  int max_drafting_sequences = 0;  ///< sequences of a step with drafts; 0: as without them
  GuidedDecoding guided;           ///< answers that follow a grammar
  bool overlaps_masks = false;     ///< masks of a step are made while it runs; else before it
  bool overlaps_draft_masks = false;  ///< the same of steps that verify drafts
  bool compiles_apart = true;         ///< grammars are compiled beside steps; else within them

  bool operator==(const Engine&) const = default;
};

/// Bytes of an activation between kernels, and of a logit that is sampled from.
inline constexpr double kElement = 2, kLogitBytes = 4;

/// The kernels an engine runs on one accelerator, as the catalogue knows them.
struct ServingKernels {
  bool tiled = false;       ///< linear layers have constants of their own
  TileGemm linear;          ///< their constants
  GemmKernels linear_gemm;  ///< and the tile shapes those refer to
  GemmFormat linear_format;
  Precision math = Precision::bf16;       ///< of linear layers, where the form is the roofline
  Precision cache = Precision::bf16;      ///< keys and values
  Precision attention = Precision::bf16;  ///< operands of the attention GEMMs
  PrefillKernel prefill;
  DecodeKernel decode;
  GroupedGemmKernel experts;
  bool experts_as_linear = false;  ///< their GEMMs run as a batch of linear layers
  bool sends_tokens = false;       ///< token dispatch has kernels of its own
  DispatchKernel dispatch, combine;
  int dispatch_ranks = 1;   ///< least expert-parallel ranks that they are used between, >= 1
  bool sends_many = false;  ///< and others for many tokens, which take multiprocessors from compute
  DispatchKernel many_dispatch, many_combine;
  double few_tokens = 0;       ///< of a rank, at most: these never take the kernels for many
  double dispatch_blocks = 0;  ///< multiprocessors of these; 0: as many as they like
  GroupedGemmKernel received_experts;  ///< of tokens that were sent, in place of `experts`
  double combine_blocks = 0;           ///< multiprocessors that a combine takes from compute beside
                                       ///< it, single-batch overlap; 0: the engine has none
  bool down_overlaps = false;          ///< the combine starts with the experts' down projection
  bool shared_overlaps_dispatch = false;  ///< shared experts run beside the dispatch; else the
                                          ///< combine
  bool own_all_reduce = false;            ///< the engine has an all-reduce of its own
  CustomAllReduce all_reduce;
  double host_slowdown = 1;  ///< CPU overhead over that of the machine of the fits
  bool encodes = false;      ///< attention of vision towers has constants of its own
  WorkKernel encoder;        ///< these; else prompts' attention stands in

  bool operator==(const ServingKernels&) const = default;
};

template <>
struct RecordOf<Engine> {
  static constexpr std::string_view name = "Engine";
  using T = Engine;
  static constexpr FieldTable fields{
      field("kernel_efficiency", &T::kernel_efficiency, 0.3, 1.5,
            "kernels in a tight loop over the same inside a step"),
      field("collective_wait_s", &T::collective_wait, 0, 2e-4,
            "of eight ranks for one another, per collective"),
      field("step_host_s", &T::step_host, 0, 0.1, "CPU overhead per step"),
      field("broadcast_host_s", &T::broadcast_host, 0, 0.01,
            "CPU overhead per step and doubling of tensor ranks, which are told of requests"),
      field("sequence_host_s", &T::sequence_host, 0, 1e-3,
            "CPU overhead per running sequence and step"),
      field("pipeline_host_s", &T::pipeline_host, 0, 1e-3,
            "further CPU overhead per sequence and step where stages form a pipeline"),
      field("request_host_s", &T::request_host, 0, 1,
            "CPU overhead per request before its first token"),
      field("prompt_host_s", &T::prompt_host, 0, 0.1,
            "CPU overhead per prompt in the step that computes it"),
      field("adapter_kernel_s", &T::adapter_kernel, 0, 1e-3,
            "least time of a shrink or an expand of low-rank adapters"),
      field("adapter_launch_s", &T::adapter_launch, 0, 1e-3,
            "time of one beside that of its thread blocks, where those are counted"),
      field("adapter_block_s", &T::adapter_block, 0, 1e-4,
            "multiprocessor time of a thread block of theirs; 0: they are not counted"),
      field("adapter_pass_s", &T::adapter_pass, 0, 1e-4,
            "the same for each of its passes over the depth of the input"),
      field("idle_adapter_block_s", &T::idle_adapter_block, 0, 1e-4,
            "multiprocessor time of one that finds no tokens; 0: none is launched without"),
      field("adapter_copy_s", &T::adapter_copy, 0, 1e-2,
            "CPU time to start the copy of one matrix of an adapter to the accelerator"),
      field("overlaps_host", &T::overlaps_host,
            "CPU overhead is hidden behind the accelerator, without pipeline stages"),
      field("mixed_batches", &T::mixed_batches, "mixed batches: prefill and decode share a step"),
      field("chunked_prefill", &T::chunked_prefill,
            "chunked prefill: a prompt may be computed over several steps"),
      field("uses_windows", &T::uses_windows, "sliding windows are honoured"),
      field("window_cache", &T::window_cache, "sliding windows bound the KV cache"),
      field("tunes_limits", &T::tunes_limits, "limits follow from memory and request lengths"),
      field("fused_quantisation", &T::fused_quantisation, "norms write the narrow format"),
      field("limits_per_rank", &T::limits_per_rank,
            "limits of a step hold for each data-parallel rank"),
      field("expert_spread", &T::expert_spread, 0, 10,
            "standard deviation of an expert's load over its mean"),
      field("balanced_spread", &T::balanced_spread, 0, 10,
            "the same of copies of experts that are balanced by redundant ones"),
      field("admission", &T::admission, "what must fit before a request starts"),
      field("block_tokens", &T::block_tokens, 1, 1e5, "tokens of a KV cache block"),
      field("max_batched_tokens", &T::max_batched_tokens, 1, 1e7, "tokens of a step, at most"),
      field("max_running_sequences", &T::max_running_sequences, 1, 1e7,
            "sequences running at once, at most"),
      field("memory_fraction", &T::memory_fraction, 0.05, 1, "share of memory the engine may fill"),
      field("fraction_of_free", &T::fraction_of_free,
            "that share is of what weights leave, not of all memory"),
      field("reserve_bytes", &T::reserve, 0, 1e12,
            "memory of driver context, CUDA graphs and workspaces"),
      field("adapters", &T::adapters, "low-rank adapters the engine is started with"),
      field("overlaps_drafts", &T::overlaps_drafts,
            "CPU overhead stays hidden where a layer drafts"),
      field("overlaps_draft_models", &T::overlaps_draft_models,
            "CPU overhead stays hidden where a draft model drafts"),
      field("phased_drafts", &T::phased_drafts,
            "passes of a step with a draft layer are prepared by the CPU one by one"),
      field("draft_layer_host_s", &T::draft_layer_host, 0, 0.01,
            "CPU overhead per layer and pass of a draft model that runs without CUDA graphs"),
      field("max_drafting_sequences", &T::max_drafting_sequences, 0, 1e7,
            "sequences running at once where drafts are verified, at most; 0 = as without"),
      field("guided", &T::guided, "answers that follow a grammar"),
      field("overlaps_masks", &T::overlaps_masks,
            "masks of guided decoding are made while the step runs that samples with them"),
      field("overlaps_draft_masks", &T::overlaps_draft_masks,
            "the same of steps that verify drafts"),
      field("compiles_apart", &T::compiles_apart,
            "a grammar is compiled while its request waits; else in the step of its prompt")};
};

template <>
struct RecordOf<ServingKernels> {
  static constexpr std::string_view name = "ServingKernels";
  using T = ServingKernels;
  static constexpr FieldTable fields{
      field("tiled", &T::tiled, "linear layers have constants of their own"),
      field("linear", &T::linear, "constants of linear layers"),
      field("linear_gemm", &T::linear_gemm, "tile shapes those refer to"),
      field("linear_format", &T::linear_format, "what linear layers are stored in"),
      field("math", &T::math, "format of linear layers in the roofline form"),
      field("cache", &T::cache, "format of keys and values"),
      field("attention", &T::attention, "operands of the attention GEMMs"),
      field("prefill", &T::prefill, "prefill attention"),
      field("decode", &T::decode, "decode attention"),
      field("experts", &T::experts, "expert layers"),
      field("experts_as_linear", &T::experts_as_linear,
            "their GEMMs run as a batch of linear layers"),
      field("sends_tokens", &T::sends_tokens, "token dispatch has kernels of its own"),
      field("dispatch", &T::dispatch, "tokens to their experts"),
      field("combine", &T::combine, "tokens back from their experts"),
      field("dispatch_ranks", &T::dispatch_ranks, 1, 65535,
            "least expert-parallel ranks that tokens are sent between"),
      field("sends_many", &T::sends_many, "token dispatch has other kernels for many tokens"),
      field("many_dispatch", &T::many_dispatch, "many tokens to their experts"),
      field("many_combine", &T::many_combine, "many tokens back from their experts"),
      field("few_tokens", &T::few_tokens, 0, 1e6,
            "tokens of a rank, at most, that never take the kernels for many"),
      field("dispatch_blocks", &T::dispatch_blocks, 0, 1024,
            "multiprocessors that kernels for many tokens take from compute"),
      field("received_experts", &T::received_experts, "expert layers of tokens that were sent"),
      field("combine_blocks", &T::combine_blocks, 0, 1024,
            "multiprocessors that a combine beside compute takes (single-batch overlap); 0 = none"),
      field("down_overlaps", &T::down_overlaps,
            "what the down projection has finished is combined beside the rest of it"),
      field("shared_overlaps_dispatch", &T::shared_overlaps_dispatch,
            "shared experts run beside the dispatch, else beside the combine"),
      field("own_all_reduce", &T::own_all_reduce, "the engine has its own all-reduce"),
      field("all_reduce", &T::all_reduce, "constants of that all-reduce"),
      field("host_slowdown", &T::host_slowdown, 0.1, 10,
            "CPU overhead over that of the machine of the fits"),
      field("encodes", &T::encodes, "attention of vision towers has constants of its own"),
      field("encoder", &T::encoder, "attention of vision towers")};
};

/// Throws MalformedQuestion where an overlap of exchange and compute is asked for that the layout
/// has nothing for, or the engine no kernels on its accelerator.
void expect_overlap_fields(const ServingLayout& layout, const ServingKernels& kernels);

}  // namespace scalemodel
