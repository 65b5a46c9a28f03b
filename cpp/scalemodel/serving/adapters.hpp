// Low-rank adapters that share one served model: how many, how large, and where they lie.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// Adapters (LoRA, arXiv 2106.09685) of which every request names one, all as often as each other.
/// The engine holds a number of them on the accelerator, in slots that are allocated once, and the
/// others on the host. `rank` is the one that slots are made for: kernels compute as many columns
/// whatever the rank of the adapter in a slot (vLLM, lora/ops/triton_ops).
struct Adapters {
  int count = 0;  ///< distinct adapters that requests name; 0: none
  int rank = 16;
  LoraTargets targets = LoraTargets::all;
  int slots = 0;  ///< room for adapters on the accelerator; 0: for as many as there are

  bool operator==(const Adapters&) const = default;
  bool any() const noexcept { return count > 0; }
  int allocated() const noexcept { return slots > 0 ? slots : count; }
  int resident() const noexcept { return allocated() < count ? allocated() : count; }
};

template <>
struct RecordOf<Adapters> {
  static constexpr std::string_view name = "Adapters";
  using T = Adapters;
  static constexpr FieldTable fields{
      field("adapters", &T::count, 0, 1e6, "distinct adapters that requests name; 0: none"),
      field("adapter_rank", &T::rank, 1, 4096, "rank that the engine is started for"),
      field("adapter_targets", &T::targets, "matrices with adapters"),
      field("adapter_slots", &T::slots, 0, 1e6,
            "adapters that the accelerator has room for; 0: as many as there are")};
};

/// Whether a GEMM has an adapter. Those of attention alone, or of every layer with weights; scores
/// of experts have none.
bool adapted(const Adapters& adapters, const LayerOperator& op) noexcept;

/// Matrices of a GEMM with an adapter each: queries, keys and values, a gate and an up projection.
double adapter_slices(const LayerOperator& op) noexcept;

/// Columns of the widest of those matrices on one of `tp` ranks.
double widest_slice(const LayerOperator& op, double tp) noexcept;

/// Distinct adapters among `requests`, each of which names one of `count` at random, at most as
/// many as there are slots: count (1 - (1 - 1/count)^requests).
double distinct_adapters(const Adapters& adapters, double requests) noexcept;

/// Thread blocks of the two kernels of one GEMM's adapters, and passes of a block of the first over
/// its share of the depth; one of the second multiplies all of the rank in one pass.
struct AdapterBlocks {
  double shrink = 0, expand = 0, shrink_passes = 0;
};

/// Thread blocks that the kernels of vLLM launch for one adapter with `rows` of the `tokens` of a
/// step: their grids span all tokens for every slot, and blocks that find none of their adapter
/// exit (lora/ops/triton_ops/lora_shrink_op.py and lora_expand_op.py, 0.8;
/// vllm-project/vllm#32317). `depth`, `widest`: of the input, and columns of the widest slice.
AdapterBlocks adapter_blocks(double rows, double tokens, double rank, double slices, double depth,
                             double widest) noexcept;

/// Bytes of one adapter on the fullest rank, in 16 bits. Of a matrix split by columns every rank
/// has all of A and its columns of B; split by depth, its rows of A and all of B.
Bytes adapter_bytes(const Model& model, const Adapters& adapters, const ServingLayout& layout);

/// Matrices of one adapter on a rank: A and B of every slice.
double adapter_matrices(const Model& model, const Adapters& adapters, const ServingLayout& layout);

/// Mean time to bring the adapter of a request to the accelerator from its host: a request finds it
/// there with the share of adapters that have a slot, whichever leaves first. The CPU starts a copy
/// of every matrix, in `copy` each, which small ones do not exceed.
Seconds adapter_load_time(const Model& model, const Adapters& adapters, const ServingLayout& layout,
                          BytesPerSecond host_bandwidth, Seconds copy);

}  // namespace scalemodel
