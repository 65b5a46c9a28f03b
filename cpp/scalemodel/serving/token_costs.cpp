// What a step costs by its tokens alone: layers without attention, and the head.
#include <algorithm>
#include <array>
#include <cmath>

#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {
namespace {

/// A norm fused with the residual addition before it: both in, one out, and the result in the
/// format of what reads it.
constexpr double kNormPasses = 3;
/// Rotary embedding reads and writes queries and keys.
constexpr double kRotaryPasses = 2;
/// Logits in FP32 are written, then read for the scale, the maximum and the draw.
constexpr double kSamplingPasses = 4;
/// A mask reads and writes the logits that it forbids, which are most of them.
constexpr double kMaskPasses = 2;

}  // namespace

Seconds StepTimes::linear(Shared::Kind kind, double m, double n, double k, double batch,
                          bool quantised) const {
  const GemmTimer& timer = kind == Shared::kLinear    ? linear_timer_
                           : kind == Shared::kStorage ? storage_timer_
                                                      : expert_timer_;
  const auto time = [&] {
    return timer.time({m, n, k, batch, kElement, quantised}) / engine_.kernel_efficiency;
  };
  return known(time, kind, m, n, k, batch, quantised);
}

/// Additions between the GEMMs of experts, on the accelerators that hold these.
Seconds StepTimes::expert_elementwise_time(double bytes) const {
  const Accelerator& accelerator = expert_cluster().accelerator;
  return memory_time(Bytes{bytes}, accelerator.elementwise.add_fraction, accelerator) /
         engine_.kernel_efficiency;
}

Seconds StepTimes::elementwise_time(double bytes, double fraction) const {
  return memory_time(Bytes{bytes}, fraction, cluster_.accelerator) / engine_.kernel_efficiency;
}

/// The last of n ranks whose delays are exponential comes 1/2 + 1/3 ... + 1/n mean delays after the
/// average one (Renyi, Acta Math. Hung. 4 (1953)).
Seconds StepTimes::wait(int ranks) const {
  constexpr int kFitted = 8;
  constexpr std::size_t kListed = 1025;  // one sum after the other, once
  static const std::array<double, kListed> listed = [] {
    std::array<double, kListed> sums{};
    for (std::size_t n = 2; n < kListed; ++n) sums[n] = sums[n - 1] + 1.0 / static_cast<double>(n);
    return sums;
  }();
  const auto lag = [](int n) {
    const auto last = std::min(static_cast<std::size_t>(n), kListed - 1);
    double sum = listed[last];
    for (int i = static_cast<int>(last) + 1; i <= n; ++i) sum += 1.0 / i;
    return sum;
  };
  return lag(ranks) / lag(kFitted) * engine_.collective_wait;
}

/// The engine's own kernel inside a domain where it is the faster one, else the library's.
Seconds StepTimes::all_reduce(Bytes bytes, int ranks) const {
  const auto time = [&] {
    const GroupShape group = group_shape(cluster_, ranks, 1);
    const Seconds library = collective_time(Collective::all_reduce, bytes, group, cluster_);
    if (!kernels_.own_all_reduce || group.domains > 1) return wait(ranks) + library;
    const Seconds own =
        custom_all_reduce_time(bytes, group, cluster_.scale_up, kernels_.all_reduce);
    return wait(ranks) + min(library, own);
  };
  return known(time, Shared::kAllReduce, bytes.base(), ranks);
}

/// Bytes of an element as norms and activations leave it for the next GEMM.
double StepTimes::written_bytes() const noexcept {
  return engine_.fused_quantisation ? kernels_.linear_format.activation_bytes : kElement;
}

/// A GEMM of `m` tokens. Engines multiply those of one unit that read the same input at once, with
/// the first of them; `quantised`: a norm or an activation has written the input in the format of
/// narrow GEMMs.
void StepTimes::add_gemm(TokenCost& cost, const Unit& unit, const LayerOperator& op,
                         double m) const {
  if (op.shares_input) return;
  if (op.weightless) {
    cost.linear += linear(Shared::kStorage, op.rows, op.local_columns(layout_.tp),
                          op.local_depth(layout_.tp), m * op.copies, false);
    return;
  }
  if (op.routes) {
    cost.linear += linear(Shared::kStorage, m, op.columns, op.depth, 1, false);
    return;
  }
  if (op.absorbed) {
    // Queries into the latent space and values out of it, head by head.
    const AttentionShape& a = op.attention;
    const double heads = static_cast<double>(a.heads) / layout_.tp;
    cost.linear +=
        linear(Shared::kStorage, m, op.depth, a.head_dim - a.rope_head_dim, heads, false) +
        linear(Shared::kStorage, m, a.v_head_dim, op.depth, heads, false);
    return;
  }
  double columns = op.local_columns(layout_.tp);
  const bool first =
      &op == &*std::ranges::find(unit.operators, OperatorKind::gemm, &LayerOperator::kind);
  for (const LayerOperator& other : unit.operators) {
    if (first && other.shares_input) columns += other.local_columns(layout_.tp);
  }
  const bool quantised = engine_.fused_quantisation && !op.reads_attention;
  // Of parts that tokens choose from, as many as there are tokens at most.
  const double parts = std::clamp(m, 1.0, std::max(1.0, op.owned));
  cost.linear +=
      linear(Shared::kLinear, m / parts, columns, op.local_depth(layout_.tp), parts, quantised);
}

/// A thread block's share of the time of a kernel; none where an accelerator has other cores.
Seconds StepTimes::spread_over_multiprocessors(Seconds block) const noexcept {
  const int multiprocessors = cluster_.accelerator.multiprocessors;
  return multiprocessors > 0 ? block / multiprocessors : Seconds{};
}

/// Shrink and expand of `m` tokens whose adapters are `groups` different ones: two kernels of
/// grouped GEMMs, each group with weights of its own (SGMV: Punica, arXiv 2310.18547, section 4).
/// Matrices that read one input have a slice of one shrink each. Expand adds to what the layer has
/// written. `blocks`: thread blocks of all groups, where the engine's kernels have such.
Seconds StepTimes::adapter_time(double m, double depth, double columns, double slices,
                                double groups, const AdapterBlocks& blocks) const {
  const double rank = engine_.adapters.rank;
  const Seconds block = spread_over_multiprocessors(engine_.adapter_block);
  const Seconds pass = spread_over_multiprocessors(engine_.adapter_pass);
  const Seconds shrink = linear(Shared::kStorage, m / groups, slices * rank, depth, groups, false);
  const Seconds expand = linear(Shared::kStorage, m / groups, columns, rank, groups, false) +
                         Bytes{m * columns * kElement} / cluster_.accelerator.memory_bandwidth;
  if (blocks.shrink * engine_.adapter_block <= Seconds{}) {
    return max(shrink, engine_.adapter_kernel) + max(expand, engine_.adapter_kernel);
  }
  const Seconds launch = engine_.adapter_launch;
  return max(shrink, launch + blocks.shrink * (block + blocks.shrink_passes * pass)) +
         max(expand, launch + blocks.expand * (block + pass));
}

/// Adapters beside a GEMM, with those of the GEMMs that are multiplied with it. Blocks of all slots
/// pass through the multiprocessors; those of adapters without tokens only take their turn.
void StepTimes::add_adapters(TokenCost& cost, const Unit& unit, const LayerOperator& op,
                             double m) const {
  if (op.shares_input || !adapted(engine_.adapters, op)) return;
  double columns = op.local_columns(layout_.tp), slices = adapter_slices(op);
  double widest = widest_slice(op, layout_.tp);
  const bool first =
      &op == &*std::ranges::find(unit.operators, OperatorKind::gemm, &LayerOperator::kind);
  for (const LayerOperator& other : unit.operators) {
    if (!first || !other.shares_input || !adapted(engine_.adapters, other)) continue;
    columns += other.local_columns(layout_.tp);
    slices += adapter_slices(other);
    widest = std::max(widest, widest_slice(other, layout_.tp));
  }
  const Adapters& adapters = engine_.adapters;
  const double groups = distinct_adapters(adapters, m);
  const double depth = op.local_depth(layout_.tp);
  AdapterBlocks busy = adapter_blocks(m / groups, m, adapters.rank, slices, depth, widest);
  busy.shrink *= groups;
  busy.expand *= groups;
  cost.linear += adapter_time(m, depth, columns, slices, groups, busy);
  const AdapterBlocks slot = adapter_blocks(m, m, adapters.rank, slices, depth, widest);
  const double launched = adapters.allocated() * (slot.shrink + slot.expand);
  const double idle = std::max(0.0, launched - busy.shrink - busy.expand);
  cost.linear += idle * spread_over_multiprocessors(engine_.idle_adapter_block);
}

/// Adapters of experts: the copies of a token that an expert receives are grouped by adapter too.
void StepTimes::add_expert_adapters(TokenCost& cost, const Unit& unit, double tokens) const {
  const double slots = static_cast<double>(unit.experts) + layout_.redundant_experts;
  const double local = slots / layout_.ep;
  const double pairs = std::max(1.0, tokens * unit.experts_per_token / layout_.ep);
  const double split = static_cast<double>(layout_.stage_ranks()) / layout_.ep;
  const double groups = std::min(pairs, local * distinct_adapters(engine_.adapters, pairs / local));
  for (const LayerOperator& op : unit.operators) {
    if (!unit.on_copies(op) || !adapted(engine_.adapters, op)) continue;
    const bool deep = op.cut == Cut::depth;
    cost.experts +=
        adapter_time(pairs, deep ? op.depth / split : op.depth,
                     deep ? op.columns : op.columns / split, adapter_slices(op), groups, {});
  }
}

/// Kernels between the GEMMs of `m` tokens. Norms and activations write what the next GEMM reads,
/// `written` bytes of an element.
void StepTimes::add_elementwise(TokenCost& cost, const LayerOperator& op, double m, double ranks,
                                double written) const {
  const auto& fractions = cluster_.accelerator.elementwise;
  const double columns = op.local_columns(ranks);
  switch (op.kind) {
    case OperatorKind::norm:
      cost.elementwise +=
          op.copies * elementwise_time(m * columns * (kNormPasses * kElement + written),
                                       fractions.norm_fraction);
      break;
    case OperatorKind::latent_norm:
      cost.elementwise += elementwise_time(2 * m * columns * kElement, fractions.norm_fraction);
      break;
    case OperatorKind::rotary:
      cost.elementwise +=
          elementwise_time(kRotaryPasses * m * columns * kElement, fractions.add_fraction);
      break;
    case OperatorKind::activation:
      cost.elementwise += elementwise_time(m * columns * ((op.gated ? 2 : 1) * kElement + written),
                                           fractions.add_fraction);
      break;
    case OperatorKind::elementwise:
      cost.elementwise +=
          elementwise_time(op.depth * m * columns * kElement, fractions.add_fraction);
      break;
    case OperatorKind::stream_mixing:  // one kernel: the streams and a block's output in, the
                                       // streams and the next block's input out
      cost.elementwise +=
          elementwise_time((2 + 2 / op.copies) * m * columns * kElement, fractions.add_fraction);
      break;
    case OperatorKind::convolution:
      cost.elementwise += elementwise_time(2 * m * columns * kElement, fractions.add_fraction);
      break;
    case OperatorKind::gemm:
    case OperatorKind::attention:  // of the phases, not of the tokens
    case OperatorKind::scan:
    case OperatorKind::residual:   // fused with the norm behind it
    case OperatorKind::head_norm:  // fused with the rotary positions
    case OperatorKind::loss:
      break;
  }
}

/// What of a layer depends on the ranks of its experts: these, and the way there and back.
void StepTimes::add_experts(TokenCost& cost, const LayerKind& kind, const Unit& unit, double m,
                            double tokens) const {
  if (engine_.adapters.any()) add_expert_adapters(cost, unit, tokens);
  if (layout_.has_expert_pool()) {
    add_pool(cost, kind, m, tokens);
  } else if (moves_tokens()) {
    add_routed(cost, kind, m, tokens);
  } else {
    cost.experts += expert_time(kind.feed_forward, m, tokens, false);
  }
}

/// One layer on its busiest rank. `tokens` are those of the whole instance.
StepTimes::TokenCost StepTimes::layer_tokens(const LayerKind& kind, double tokens) const {
  TokenCost cost;
  const double m = tokens_of_rank(tokens);
  const Bytes stream{m * hidden_ * kElement};
  for (std::size_t i = 0; i < kind.units.size(); ++i) {
    const Unit& unit = kind.units[i];
    for (const LayerOperator& op : unit.operators) {
      if (unit.on_copies(op)) continue;  // one kernel of all experts, below
      if (op.of_source) continue;        // once per request, with what encodes its source
      if (layout_.has_expert_pool() && computed_by_pool(kind, unit, op)) continue;
      if (op.kind == OperatorKind::gemm) {
        add_gemm(cost, unit, op, m);
        add_adapters(cost, unit, op, m);
      } else {
        add_elementwise(cost, op, m, layout_.tp, written_bytes());
      }
    }
    if (unit.routed()) {
      add_experts(cost, kind, unit, m, tokens);
      if (layout_.has_expert_pool() || moves_tokens()) continue;
    }
    // Shared experts are added to the routed ones first, and reduced with them.
    const bool added_first = i + 1 < kind.units.size() && !kind.units[i + 1].reads_stream;
    if (layout_.tp > 1 && !added_first) cost.tp += all_reduce(stream, layout_.tp);
  }
  return cost;
}

/// Logits of one position per sequence and the draw from them.
Seconds StepTimes::head_time(double sequences) const {
  const double m = tokens_of_rank(sequences);
  return known([&] { return head_of_rank(m); }, Shared::kHead, m, layout_.tp);
}

Seconds StepTimes::head_of_rank(double m) const {
  // vLLM and SGLang pad the vocabulary before they divide it over ranks: DEFAULT_VOCAB_PADDING_SIZE
  // in layers/vocab_parallel_embedding.py of both.
  constexpr double kPadding = 64;
  const double vocab = kPadding * std::ceil(vocab_ / kPadding) / layout_.tp;
  Seconds time = linear(Shared::kStorage, m, vocab, hidden_, 1, false) +
                 elementwise_time(kSamplingPasses * kLogitBytes * m * vocab_,
                                  cluster_.accelerator.elementwise.softmax_fraction);
  if (engine_.guided.any()) {
    const Bytes logits{kMaskPasses * kLogitBytes * vocab_};
    const Bytes masked = engine_.guided.fraction * m * (logits + mask_bytes(vocab_));
    time += elementwise_time(masked.base(), cluster_.accelerator.elementwise.add_fraction);
  }
  if (layout_.tp > 1) {
    time += collective_time(Collective::all_gather, Bytes{m * vocab_ * kElement},
                            group_shape(cluster_, layout_.tp, 1), cluster_);
  }
  return time;
}

}  // namespace scalemodel
