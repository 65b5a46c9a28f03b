// How one instance of a served model is spread over accelerators.
#pragma once

#include <cstdint>
#include <tuple>

#include "scalemodel/base/reason.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// Degrees of one instance. Attention and dense layers are split over `tp` ranks and repeated over
/// `dp`, which share the sequences out; experts are spread over `ep` of the tp dp cp ranks of a
/// stage and each expert is split over the rest. `redundant_experts` are copies of the experts that
/// are chosen most, placed so that the ranks are alike (EPLB, deepseek-ai/EPLB): every rank holds
/// (experts + redundant_experts)/ep. With `two_batch_overlap` the tokens of a step are computed in
/// two halves, each while the other one's are on their way to experts and back. With
/// `single_batch_overlap` tokens that decode are not halved: their shared experts and the end of
/// their routed ones run while they are exchanged. Ranks with `encoder_data_parallel` encode whole
/// images each with a whole vision tower, where they would otherwise shard every image.
///
/// With `expert_ranks` the experts lie on a pool of as many accelerators of their own, routed ones
/// spread over `ep` of these and each split over the rest, shared ones whole on all of them; other
/// layers stay with the tp dp ranks of attention. A step is then computed in `micro_batches`, which
/// go to and fro between the pools.
struct ServingLayout {
  std::uint16_t tp = 1, pp = 1, ep = 1, dp = 1, cp = 1;
  std::uint16_t redundant_experts = 0;
  bool two_batch_overlap = false;
  bool single_batch_overlap = false;
  bool encoder_data_parallel = false;
  std::uint16_t expert_ranks = 0, micro_batches = 1;

  constexpr int stage_ranks() const { return tp * dp * cp; }
  /// Without an expert pool: all but its ranks.
  constexpr int attention_ranks() const { return stage_ranks() * pp; }
  constexpr int ranks() const { return attention_ranks() + expert_ranks; }
  constexpr bool has_expert_pool() const { return expert_ranks > 0; }
  /// Ranks over which the experts of a layer are laid.
  constexpr int expert_mesh() const { return has_expert_pool() ? expert_ranks : stage_ranks(); }
  /// Batches of a step that are under way at the same time.
  constexpr int batches() const { return pp * micro_batches; }
  bool operator==(const ServingLayout&) const = default;
};

template <>
struct RecordOf<ServingLayout> {
  static constexpr std::string_view name = "ServingLayout";
  using T = ServingLayout;
  static constexpr FieldTable fields{
      field("tp", &T::tp, 1, 65535, "ranks that split every layer"),
      field("pp", &T::pp, 1, 65535, "pipeline stages"),
      field("ep", &T::ep, 1, 65535, "ranks over which the experts are sharded"),
      field("dp", &T::dp, 1, 65535, "attention data-parallel ranks of a stage"),
      field("cp", &T::cp, 1, 65535, "ranks over which a prompt is sharded"),
      field("redundant_experts", &T::redundant_experts, 0, 65535,
            "copies of experts, over all expert-parallel ranks, that balance them"),
      field("two_batch_overlap", &T::two_batch_overlap,
            "half a step is computed while the other half is exchanged"),
      field("single_batch_overlap", &T::single_batch_overlap,
            "shared experts and the down projection run beside the exchange of the same tokens"),
      field("encoder_data_parallel", &T::encoder_data_parallel,
            "tensor ranks encode images of their own, each with a whole vision tower"),
      field("expert_ranks", &T::expert_ranks, 0, 65535,
            "accelerators of a pool that holds the experts alone, 0 where they lie with attention"),
      field("micro_batches", &T::micro_batches, 1, 64,
            "parts of a step that go to and fro between attention and an expert pool")};
};

/// Whether tensor ranks shard a vision tower: where the degree divides its heads (vLLM and SGLang);
/// else each holds all of it.
inline bool splits_tower(const VisionTower& tower, const ServingLayout& layout) noexcept {
  return !layout.encoder_data_parallel && tower.heads % layout.tp == 0;
}

/// Throws MalformedQuestion where fields of an expert pool contradict others.
void expect_pool_fields(const ServingLayout& layout);

/// `ok`, or why the layout is none: precondition of everything else in this module. `pool`: the
/// cluster of an expert pool, null where it is a part of `cluster`. Precondition:
/// expect_pool_fields(layout) does not throw.
Reason check_layout(const Model& model, const ServingLayout& layout, const Cluster& cluster,
                    const Cluster* pool = nullptr) noexcept;

}  // namespace scalemodel
