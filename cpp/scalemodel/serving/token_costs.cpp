// What a step costs by its tokens alone: layers without attention, and the head.
#include <algorithm>
#include <cmath>

#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/expert_balance.hpp"
#include "scalemodel/ops/expert_load.hpp"
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
/// Rows of an expert that are combined at once, where that starts before all are computed: the
/// tile of its down projection (SGLang, batch_overlap/single_batch_overlap.py: block_m).
constexpr double kSignalRows = 64;

/// Rows of the busiest rank where every token chooses its experts independently of the others:
/// an expert stays idle with probability (1 - k/E)^tokens. `slots`: experts and their copies.
ExpertLoad random_load(const FeedForwardShape& ff, double tokens, double slots, int ranks,
                       double imbalance) {
  const double experts = slots, topk = ff.experts_per_token;
  const double local = experts / ranks;
  const double idle = std::pow(1 - topk / experts, tokens);
  const double pairs = std::min(tokens * std::min(topk, local), imbalance * tokens * topk / ranks);
  const double active = std::min(pairs, local * (1 - idle));
  return {pairs, active, tokens * (1 - std::pow(1 - topk / experts, local))};
}

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
  const auto lag = [](int n) {
    double sum = 0;
    for (int i = 2; i <= n; ++i) sum += 1.0 / i;
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

/// Load of the fullest of `places` (ranks, or nodes of them) over the mean, of `tokens` of the
/// instance. What is asked for is of ranks; nodes deviate less, as their ranks average out.
double StepTimes::imbalance_of(const FeedForwardShape& ff, double tokens, double places) const {
  const double redundant = layout_.redundant_experts, ranks = layout_.ep;
  if (imbalance_ > 0) return 1 + (imbalance_ - 1) * std::sqrt(std::min(1.0, places / ranks));
  ExpertBalance balance{engine_.expert_spread, static_cast<double>(ff.experts), places, 0};
  if (redundant > 0) {
    balance.spread = engine_.balanced_spread;
    balance.slots += redundant;
    balance.pairs = tokens * ff.experts_per_token / places;
  }
  return rank_imbalance(balance);
}

/// Tokens to their experts and back, where ranks hold different tokens: every rank gathers all of
/// them, narrow where the norm before wrote them so, and reduces what it computed.
StepTimes::Exchange StepTimes::gathered(const FeedForwardShape& ff, double tokens) const {
  const GroupShape group = group_shape(cluster_, layout_.stage_ranks(), 1);
  const double elements = tokens * ff.expert_width(hidden_);
  Exchange exchange;
  exchange.dispatch =
      collective_time(Collective::all_gather, Bytes{elements * written_bytes()}, group, cluster_);
  exchange.combine =
      collective_time(Collective::reduce_scatter, Bytes{elements * kElement}, group, cluster_);
  return exchange;
}

/// What a rank sends with kernels of their own: each token where it is wanted. The fullest rank
/// receives the most, or the fullest node where a token goes there `once`.
DispatchWork StepTimes::dispatch_work(const FeedForwardShape& ff, double tokens, double blocks,
                                      bool once) const {
  const int ranks = layout_.stage_ranks();
  const auto nodes = static_cast<double>(group_shape(cluster_, ranks, 1).domains);
  const double fullest = imbalance_of(ff, tokens, once && nodes > 1 ? nodes : layout_.ep);
  return {fullest * tokens / ranks,
          static_cast<double>(ff.expert_width(hidden_)),
          static_cast<double>(ff.experts_per_token),
          static_cast<double>(ff.experts),
          static_cast<double>(layout_.ep),
          nodes,
          blocks,
          static_cast<double>(cluster_.accelerator.multiprocessors)};
}

StepTimes::Exchange StepTimes::sent(const FeedForwardShape& ff, double tokens, double blocks,
                                    const DispatchKernel& out, const DispatchKernel& back) const {
  const double multiprocessors = cluster_.accelerator.multiprocessors;
  const DispatchWork work = dispatch_work(ff, tokens, blocks, out.copies_once);
  Exchange exchange;
  exchange.dispatch = dispatch_time(work, out);
  exchange.combine = dispatch_time(work, back);
  exchange.occupied = multiprocessors > 0 ? blocks / multiprocessors : 0;
  return exchange;
}

/// Shared experts of `m` tokens, as the layer computes them.
Seconds StepTimes::shared_beside(const LayerKind& kind, double m) const {
  TokenCost cost;
  const Unit* shared = shared_experts(kind);
  if (shared == nullptr) return Seconds{};
  for (const LayerOperator& op : shared->operators) {
    if (op.kind == OperatorKind::gemm) add_gemm(cost, *shared, op, m);
    if (op.kind == OperatorKind::activation) {
      add_elementwise(cost, op, m, layout_.tp, written_bytes());
    }
  }
  return cost.linear + cost.elementwise;
}

/// What single-batch overlap hides of an exchange. Shared experts S run beside the dispatch D or
/// with what runs beside the combine C. That starts with the first tile of the experts' down
/// projection P and has few multiprocessors, which send for longer, C', and leave P a share f of
/// the others; of n tiles the last is combined when all are computed:
///
///     D + S -> max(D, S),    P + C -> max(P/f, C') + min(P/f, C')/n
///
/// Sources: SGLang, batch_overlap/single_batch_overlap.py, and sgl-project/sglang#9660 (2025-08).
Seconds StepTimes::hidden_exchange(const LayerKind& kind, double m, double tokens,
                                   const Exchange& way) const {
  const FeedForwardShape& ff = kind.feed_forward;
  const Accelerator& accelerator = cluster_.accelerator;
  const ExpertLayer layer = expert_layer(ff, tokens, true);
  const Seconds shared = shared_beside(kind, m);
  Seconds hidden, compute;
  if (kernels_.down_overlaps) {
    compute =
        expert_down_time(layer, kernels_.received_experts, accelerator) / engine_.kernel_efficiency;
  }
  if (kernels_.shared_overlaps_dispatch) {
    hidden += min(way.dispatch, shared);
  } else {
    compute += shared;
  }
  if (compute <= Seconds{}) return hidden;
  DispatchWork few = dispatch_work(ff, tokens, 0, kernels_.dispatch.copies_once);
  few.sending_blocks = kernels_.combine_blocks;
  const Seconds combine = dispatch_time(few, kernels_.combine);
  const Seconds beside = compute / (1 - kernels_.combine_blocks / accelerator.multiprocessors);
  const double tiles = std::max(1.0, std::max(layer.load.active, layer.load.pairs / kSignalRows));
  return hidden + compute + way.combine - max(combine, beside) - min(combine, beside) / tiles;
}

/// Experts and the exchange before and behind them. Engines choose by the size of a step how tokens
/// travel, taken here as the fastest way, experts included: kernels that send tokens have experts
/// of their own, which need not sort all tokens of the instance.
StepTimes::Routed StepTimes::routed(const LayerKind& kind, double m, double tokens) const {
  const FeedForwardShape& ff = kind.feed_forward;
  const GroupShape group = group_shape(cluster_, layout_.stage_ranks(), 1);
  const auto reaches = [&](const DispatchKernel& kernel) {
    return group.domains == 1 || kernel.network_rate > BytesPerSecond{};
  };
  Exchange best = gathered(ff, tokens);
  Seconds experts = expert_time(ff, m, tokens, false);
  const auto offer = [&](const Exchange& way) {
    const Seconds own = expert_time(ff, m, tokens, true);
    const Seconds exposed = way.dispatch + way.combine - way.hidden;
    if (exposed + own >= best.dispatch + best.combine - best.hidden + experts) return;
    best = way;
    experts = own;
  };
  const bool sends =
      kernels_.sends_tokens && layout_.ep > 1 && layout_.ep >= kernels_.dispatch_ranks;
  if (sends && reaches(kernels_.dispatch) && reaches(kernels_.combine)) {
    Exchange few = sent(ff, tokens, 0, kernels_.dispatch, kernels_.combine);
    if (layout_.single_batch_overlap) few.hidden = hidden_exchange(kind, m, tokens, few);
    offer(few);
  }
  if (sends && kernels_.sends_many && reaches(kernels_.many_dispatch)) {
    offer(
        sent(ff, tokens, kernels_.dispatch_blocks, kernels_.many_dispatch, kernels_.many_combine));
  }
  return {experts, best};
}

void StepTimes::add_routed(TokenCost& cost, const LayerKind& kind, double m, double tokens) const {
  const FeedForwardShape& ff = kind.feed_forward;
  // Those of a rank count where its own tokens are sorted, which experts as GEMMs need alone, and
  // where shared experts run beside the exchange.
  const bool single = layout_.single_batch_overlap;
  const double own = kernels_.experts_as_linear || single ? m : 0;
  const auto make = [&] { return routed(kind, m, tokens); };
  const Routed found =
      shared_ != nullptr
          ? shared_->routed.of(key_of<6>(&ff, tokens, own, layout_.ep, layout_.stage_ranks(),
                                         2 * layout_.redundant_experts + (single ? 1 : 0)),
                               make)
          : make();
  const Exchange& best = found.way;
  const Seconds waits = 2 * wait(layout_.stage_ranks());
  cost.experts += found.experts;
  cost.ep += best.dispatch + best.combine - best.hidden + waits;
  cost.combine += best.combine;
  cost.waits += waits;
  cost.occupied += best.occupied * (best.dispatch + best.combine);
}

/// Shared experts of `m` tokens on one accelerator of an expert pool.
Seconds StepTimes::shared_time(const Unit& unit, double m) const {
  Seconds time;
  double columns = 0;
  const LayerOperator* first = nullptr;
  for (const LayerOperator& op : unit.operators) {
    if (op.kind == OperatorKind::activation) {
      time += expert_elementwise_time(m * op.columns *
                                      ((op.gated ? 2 : 1) * kElement + written_bytes()));
    }
    if (op.kind != OperatorKind::gemm) continue;
    if (first == nullptr) first = &op;
    if (&op == first || op.shares_input) {
      columns += op.columns;  // multiplied at once
    } else {
      time += linear(Shared::kExpert, m, op.columns, op.depth, 1, engine_.fused_quantisation);
    }
  }
  if (first == nullptr) return time;
  return time + linear(Shared::kExpert, m, columns, first->depth, 1, engine_.fused_quantisation);
}

/// Experts of a pool of their own and the way there and back. A token goes once to a rank that
/// holds several of its experts, from the tensor rank of attention that has its share of it, and
/// tensor ranks of an expert receive a share each, which they put together and add up again; so do
/// those of attention with what comes back. Sources: MegaScale-Infer, arXiv 2504.02263, sections 3
/// and 4; StepMesh (narrow tokens out, 16 bits back).
void StepTimes::add_pool(TokenCost& cost, const LayerKind& kind, double m, double tokens) const {
  const FeedForwardShape& ff = kind.feed_forward;
  const Unit* shared = shared_experts(kind);
  const double width = ff.expert_width(hidden_), ranks = layout_.ep;
  const double split = static_cast<double>(layout_.expert_ranks) / ranks;
  const double slots = static_cast<double>(ff.experts) + layout_.redundant_experts;
  const ExpertLoad load =
      random_load(ff, tokens, slots, layout_.ep, imbalance_of(ff, tokens, ranks));
  // The rank that computes the shared experts of a token is one more place.
  const double also = shared != nullptr ? 1 : 0, own = tokens / layout_.expert_ranks;
  const double places = distinct_places(ranks, ff.experts_per_token) + also;
  const double sent = m * places / layout_.tp * width;
  const double received = (load.touched / split + also * own) * width;
  const double narrow = kernels_.sends_tokens ? kernels_.dispatch.value_bytes : written_bytes();
  const Cluster* pool = pool_ ? &pool_->cluster : nullptr;
  const auto exchange = [&](double bytes) {
    return pool_exchange_time(Bytes{sent * bytes}, Bytes{received * bytes}, layout_, cluster_,
                              pool);
  };
  const Seconds dispatch = exchange(narrow), combine = exchange(kElement);
  Seconds experts = expert_time(ff, m, tokens, true);
  if (shared != nullptr) experts += shared_time(*shared, std::max(1.0, own));
  if (split > 1) {
    const GroupShape group = group_shape(expert_cluster(), static_cast<int>(split), 1);
    const double whole = load.touched * width;
    experts +=
        collective_time(Collective::all_gather, Bytes{whole * narrow}, group, expert_cluster()) +
        collective_time(Collective::reduce_scatter, Bytes{whole * kElement}, group,
                        expert_cluster());
  }
  const Seconds waits = wait(layout_.stage_ranks()) + wait(layout_.expert_ranks);
  cost.experts += experts;
  cost.ep += dispatch + combine + waits;
  cost.combine += combine;
  cost.waits += waits;
  if (layout_.tp > 1) {
    cost.tp += collective_time(Collective::all_gather, Bytes{m * width * kElement},
                               group_shape(cluster_, layout_.tp, 1), cluster_);
  }
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
  cost.linear += linear(Shared::kLinear, m, columns, op.local_depth(layout_.tp), 1, quantised);
}

/// Shrink and expand of `m` tokens whose adapters are `groups` different ones: two kernels of
/// grouped GEMMs, each group with weights of its own (SGMV: Punica, arXiv 2310.18547, section 4).
/// Matrices that read one input have a slice of one shrink each. Expand adds to what the layer has
/// written.
Seconds StepTimes::adapter_time(double m, double depth, double columns, double slices,
                                double groups) const {
  const double rank = engine_.adapters.rank;
  const Seconds shrink = linear(Shared::kStorage, m / groups, slices * rank, depth, groups, false);
  const Seconds expand = linear(Shared::kStorage, m / groups, columns, rank, groups, false) +
                         Bytes{m * columns * kElement} / cluster_.accelerator.memory_bandwidth;
  return max(shrink, engine_.adapter_kernel) + max(expand, engine_.adapter_kernel);
}

/// Adapters beside a GEMM, with those of the GEMMs that are multiplied with it.
void StepTimes::add_adapters(TokenCost& cost, const Unit& unit, const LayerOperator& op,
                             double m) const {
  if (op.shares_input || !adapted(engine_.adapters, op)) return;
  double columns = op.local_columns(layout_.tp), slices = adapter_slices(op);
  const bool first =
      &op == &*std::ranges::find(unit.operators, OperatorKind::gemm, &LayerOperator::kind);
  for (const LayerOperator& other : unit.operators) {
    if (!first || !other.shares_input || !adapted(engine_.adapters, other)) continue;
    columns += other.local_columns(layout_.tp);
    slices += adapter_slices(other);
  }
  cost.linear += adapter_time(m, op.local_depth(layout_.tp), columns, slices,
                              distinct_adapters(engine_.adapters, m));
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
                     deep ? op.columns : op.columns / split, adapter_slices(op), groups);
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

/// Experts of a layer and their load: `tokens` of the whole instance; `received`: the ranks are
/// sent those of their own experts alone.
ExpertLayer StepTimes::expert_layer(const FeedForwardShape& ff, double tokens,
                                    bool received) const {
  ExpertLayer layer;
  const double slots = static_cast<double>(ff.experts) + layout_.redundant_experts;
  layer.load = random_load(ff, tokens, slots, layout_.ep, imbalance_of(ff, tokens, layout_.ep));
  layer.topk = ff.experts_per_token;
  // Kernels that send tokens hand on the pairs of the rank's own experts alone.
  layer.tokens = received ? layer.load.pairs / layer.topk : tokens;
  layer.experts = ff.experts;
  layer.expert_ranks = layout_.ep;
  layer.hidden = ff.expert_width(hidden_);
  layer.intermediate = ff.width;
  layer.tensor_ranks = static_cast<double>(layout_.expert_mesh()) / layout_.ep;
  layer.matrices = ff.matrices();
  return layer;
}

/// Their time: `m` tokens of a rank.
Seconds StepTimes::expert_time(const FeedForwardShape& ff, double m, double tokens,
                               bool received) const {
  const double h = ff.expert_width(hidden_);
  const ExpertLayer layer = expert_layer(ff, tokens, received);
  const ServingKernels& kernels = expert_kernels();
  const bool own = received && kernels.sends_tokens;
  if (own || !kernels.experts_as_linear) {
    const GroupedGemmKernel& kernel = received ? kernels.received_experts : kernels.experts;
    return expert_layer_time(layer, kernel, expert_cluster().accelerator) /
           engine_.kernel_efficiency;
  }
  const bool ready = engine_.fused_quantisation;
  const double inner = layer.intermediate / layer.tensor_ranks, pairs = layer.load.pairs;
  const double rows = pairs / layer.load.active, up = (ff.gated ? 2 : 1) * inner;
  const double active = layer.load.active, sorted = received ? layer.tokens : m;
  // Rows into the order of their experts, activations, and rows back into their sum.
  return linear(Shared::kExpert, rows, up, h, active, ready) +
         linear(Shared::kExpert, rows, h, inner, active, ready) +
         expert_elementwise_time((sorted + pairs) * h * kElement) +
         expert_elementwise_time(pairs * (up * kElement + inner * written_bytes())) +
         expert_elementwise_time((pairs + sorted) * h * kElement);
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
