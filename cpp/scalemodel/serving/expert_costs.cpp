// What the experts of a step cost: their load, the exchange of tokens, pools of their own.
#include <algorithm>
#include <cmath>

#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/expert_balance.hpp"
#include "scalemodel/ops/expert_load.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {
namespace {

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

/// Kernels were timed on ports of 400 Gbit/s; on slower ones they are bound by these.
Seconds StepTimes::exchange_time(const DispatchWork& work, const DispatchKernel& kernel) const {
  DispatchKernel here = kernel;
  here.network_rate = min(kernel.network_rate, cluster_.fabric.bandwidth);
  return dispatch_time(work, here);
}

StepTimes::Exchange StepTimes::sent(const FeedForwardShape& ff, double tokens, double blocks,
                                    const DispatchKernel& out, const DispatchKernel& back) const {
  const double multiprocessors = cluster_.accelerator.multiprocessors;
  const DispatchWork work = dispatch_work(ff, tokens, blocks, out.copies_once);
  Exchange exchange;
  exchange.dispatch = exchange_time(work, out);
  exchange.combine = exchange_time(work, back);
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
  const Seconds combine = exchange_time(few, kernels_.combine);
  const Seconds beside = compute / (1 - kernels_.combine_blocks / accelerator.multiprocessors);
  const double tiles = std::max({1.0, layer.load.active, layer.load.pairs / kSignalRows});
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
  const bool many = kernels_.sends_many && tokens > kernels_.few_tokens * layout_.stage_ranks();
  if (sends && many && reaches(kernels_.many_dispatch)) {
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
          ? shared_->routed.of(
                key_of<6>(shared_->first_alike(ff), tokens, own, layout_.ep, layout_.stage_ranks(),
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
/// those of attention with what comes back; of three micro-batches one is computed while another is
/// put together (arXiv 2507.19427, section 7.1). Sources: MegaScale-Infer, arXiv 2504.02263,
/// sections 3 and 4; StepMesh (narrow tokens out, 16 bits back).
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
    const Seconds gathered =
        collective_time(Collective::all_gather, Bytes{whole * narrow}, group, expert_cluster()) +
        collective_time(Collective::reduce_scatter, Bytes{whole * kElement}, group,
                        expert_cluster());
    experts = layout_.micro_batches >= 3 ? max(experts, gathered) : experts + gathered;
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

}  // namespace scalemodel
