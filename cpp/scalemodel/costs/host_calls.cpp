#include "scalemodel/costs/host_calls.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

/// Operations of rotary embedding on one tensor of one document each way: slices of positions and
/// channels, cosine and sine, two products, halves exchanged, and what joins them. Counted in
/// Megatron-Core's _apply_rotary_pos_emb_thd before it lost its loop
/// (megatron/core/models/common/embeddings/rope_utils.py).
constexpr double kRopeForward = 21, kRopeBackward = 14;
/// Latent attention first brings pairs of channels apart: two slices, joined; back, what joined is
/// cut in two and both slices write into zeros, which are added up. Where context ranks share a
/// document they take positions from its two ends, which are joined.
constexpr double kPairsForward = 3, kPairsBackward = 5, kEndsForward = 2;
constexpr double kRotated = 2;  ///< queries and keys
/// Operations that find where a document's chunk lies, before and behind the attention of context
/// ranks that exchange heads; each knows its bounds only once the accelerator has told. Counted in
/// Transformer Engine, reorder_seq_chunks_*_thd (pytorch/attention/dot_product_attention/
/// context_parallel.py).
constexpr double kChunkBefore = 11, kChunkBehind = 7;

bool rotates(const LayerKind& kind) {
  return std::ranges::any_of(kind.units, [](const Unit& unit) {
    return std::ranges::any_of(
        unit.operators, [](const LayerOperator& op) { return op.kind == OperatorKind::rotary; });
  });
}

/// Loops over the documents of packs that the CPU runs through in every layer.
void add_document_loops(LayerBuilder& builder, const LayerKind& kind, const LayerLayout& layout,
                        const Stack& stack) {
  if (layout.packs.attended <= 0 || !kind.attention.present()) return;
  const double documents = layout.micro_batch * layout.packs.documents;
  if (stack.rope_by_document && rotates(kind)) {
    const bool latent = kind.attention.latent();
    const double forward =
        kRopeForward + (latent ? kPairsForward : 0) + (layout.cp > 1 ? kEndsForward : 0);
    const double backward = kRopeBackward + (latent ? kPairsBackward : 0);
    builder.operations(documents * kRotated * forward, documents * kRotated * backward);
  }
  const bool exchanges = layout.cp > 1 && layout.context == ContextParallel::all_to_all;
  if (stack.exchange_by_document && exchanges) {
    // Queries, keys and values go there and the output comes back; of gradients the reverse.
    const double chunks = documents * 2 * layout.cp;
    builder.operations(chunks * (3 * kChunkBefore + kChunkBehind),
                       chunks * (kChunkBefore + 3 * kChunkBehind));
  }
}

/// Launches of one ring block each way, counted, not timed: each is an attention of its own, and
/// its result is merged with those before.
constexpr double kBlockLaunches = 8;

/// Calls of collectives each way.
struct Calls {
  double forward = 0, backward = 0;
};

/// Those among tensor ranks, as `add_tensor_parallel` times them; overlapped ones are part of
/// GEMMs.
Calls tensor_calls(const LayerLayout& layout, const Conditions& conditions, double blocks) {
  if (layout.tp == 1 || layout.overlap_tp != TensorOverlap::off) return {};
  if (!layout.sequence_parallel) return {blocks, blocks};
  const double gathers = layout.regather && !conditions.frozen_base ? 2 : 1;
  return {2 * blocks, (gathers + 1) * blocks};
}

/// All-to-alls around a scan: gate, input, both projections and step sizes go one by one and the
/// output comes back (Megatron-LM, core/ssm/mamba_context_parallel.py); of a delta rule what goes
/// there is joined (core/ssm/gated_delta_net.py).
constexpr double kScanExchanges = 6, kDeltaExchanges = 2;
/// Queries, keys, values and output change hands by themselves; keys and values are gathered.
constexpr double kHeadExchanges = 4, kGathered = 2;

Calls context_calls(const LayerKind& kind, const LayerLayout& layout, const Stack& stack) {
  if (layout.cp == 1) return {};
  Calls calls;
  if (kind.recurrence.present()) {
    const bool delta =
        kind.recurrence.kind == Recurrence::gated_delta || kind.recurrence.kind == Recurrence::jet;
    calls.forward = calls.backward = delta ? kDeltaExchanges : kScanExchanges;
  }
  if (!kind.attention.present()) return calls;
  const double hops = layout.cp - 1;
  switch (layout.context) {
    case ContextParallel::ring:
      // Keys and values are gathered at once, their gradients go all the way round.
      if (stack.repeated_kv) return {calls.forward + 1, calls.backward + 1 + layout.cp};
      return {calls.forward + hops, calls.backward + 2 * hops};
    case ContextParallel::all_to_all:
      return {calls.forward + kHeadExchanges, calls.backward + kHeadExchanges};
    case ContextParallel::all_gather:
      return {calls.forward + kGathered, calls.backward + 2 * kGathered};
  }
  return calls;
}

}  // namespace

void add_host_calls(LayerBuilder& builder, const LayerKind& kind, const LayerLayout& layout,
                    const Conditions& conditions, double blocks) {
  const LayerBuilder::Queue before = builder.queue();
  add_document_loops(builder, kind, layout, conditions.stack);
  const Calls tensor = tensor_calls(layout, conditions, blocks);
  const Calls context = context_calls(kind, layout, conditions.stack);
  builder.collectives(tensor.forward + context.forward, tensor.backward + context.backward);
  if (kind.attention.present() && layout.context == ContextParallel::ring) {
    const double launches = kBlockLaunches * (layout.cp - 1);
    builder.launches(launches, launches);
  }
  const Stack& stack = conditions.stack;
  const bool graphed = kind.attention.present() ? stack.graphed_attention : stack.graphed_scans;
  if (stack.cuda_graphs && graphed) builder.graph_since(before);
}

}  // namespace scalemodel
