#include "scalemodel/serving/layout.hpp"

#include <string>

#include "scalemodel/base/error.hpp"
#include "scalemodel/serving/engine.hpp"

namespace scalemodel {
namespace {

void refuse(const char* name, int value, const char* why) {
  throw MalformedQuestion(std::string(name) + "=" + std::to_string(value) + ": " + why);
}

}  // namespace

void expect_overlap_fields(const ServingLayout& layout, const ServingKernels& kernels) {
  if (!layout.single_batch_overlap) return;
  constexpr auto kName = "single_batch_overlap";
  if (layout.two_batch_overlap) {
    refuse(kName, 1, "a step is overlapped one way; give it or two_batch_overlap");
  }
  if (layout.has_expert_pool()) {
    refuse(kName, 1, "experts of a pool of their own overlap by micro_batches");
  }
  if (layout.ep == 1 || layout.dp == 1) {
    refuse(kName, 1, "no tokens are sent to experts; give ep and dp from 2");
  }
  if (kernels.combine_blocks <= 0) {
    refuse(kName, 1,
           "the engine has no kernels for it on this accelerator; SGLang has them on Hopper and "
           "Blackwell");
  }
}

void expect_pool_fields(const ServingLayout& layout) {
  if (!layout.has_expert_pool()) {
    if (layout.micro_batches > 1) {
      refuse("micro_batches", layout.micro_batches,
             "go to and fro between attention and an expert pool; give expert_ranks from 1");
    }
    return;
  }
  constexpr auto kOne = "must be 1 where experts have a pool of their own";
  if (layout.pp > 1) refuse("pp", layout.pp, kOne);
  if (layout.cp > 1) refuse("cp", layout.cp, kOne);
  if (layout.two_batch_overlap) {
    refuse("two_batch_overlap", 1, "experts of a pool of their own overlap by micro_batches");
  }
}

Reason check_layout(const Model& model, const ServingLayout& layout, const Cluster& cluster,
                    const Cluster* pool) noexcept {
  const int beside = pool != nullptr ? layout.attention_ranks() : layout.ranks();
  if (beside > cluster.accelerators) return Reason::mesh;
  if (pool != nullptr && layout.expert_ranks > pool->accelerators) return Reason::mesh;
  if (layout.pp > model.layers()) return Reason::pp_layers;
  if (layout.expert_mesh() % layout.ep != 0) return Reason::ep_mesh;
  const int expert_split = layout.expert_mesh() / layout.ep;
  bool routed = false;
  for (const LayerKind& kind : model.kinds) {
    if (kind.attention.heads % layout.tp != 0) return Reason::tp_heads;
    if (kind.recurrence.heads % layout.tp != 0) return Reason::tp_heads;
    const FeedForwardShape& ff = kind.feed_forward;
    if (!ff.routed()) {
      if (ff.width % layout.tp != 0) return Reason::tp_ffn;
      continue;
    }
    routed = true;
    if ((ff.experts + layout.redundant_experts) % layout.ep != 0) return Reason::ep_experts;
    if (ff.width % expert_split != 0) return Reason::etp_ffn;
  }
  const bool asked = layout.ep > 1 || layout.redundant_experts > 0 || layout.has_expert_pool();
  if (asked && !routed) return Reason::ep_experts;
  return Reason::ok;
}

}  // namespace scalemodel
