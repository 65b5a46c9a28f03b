#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

Reason check_layout(const Model& model, const ServingLayout& layout,
                    const Cluster& cluster) noexcept {
  const int ranks = layout.ranks(), stage = layout.stage_ranks();
  if (ranks > cluster.accelerators) return Reason::mesh;
  if (layout.pp > model.layers()) return Reason::pp_layers;
  if (stage % layout.ep != 0) return Reason::ep_mesh;
  const int expert_split = stage / layout.ep;
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
  if ((layout.ep > 1 || layout.redundant_experts > 0) && !routed) return Reason::ep_experts;
  return Reason::ok;
}

}  // namespace scalemodel
