#include "scalemodel/serving/step_times.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/base/order_statistics.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/expert_load.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

/// A norm fused with the residual addition before it: both in, one out, and the result in the
/// format of what reads it.
constexpr double kNormPasses = 3;
/// Rotary embedding reads and writes queries and keys.
constexpr double kRotaryPasses = 2;
/// Logits in FP32 are written, then read for the scale, the maximum and the draw.
constexpr double kSamplingPasses = 4;

/// Load of the busiest of `ranks` over the mean. Experts differ in how often they are chosen, with
/// a standard deviation of `spread` means; a rank holds the sum of several of them.
double rank_imbalance(double spread, double experts, int ranks) {
  return std::min<double>(ranks, 1 + spread * expected_maximum(ranks) * std::sqrt(ranks / experts));
}

/// Rows of the busiest rank where every token chooses its experts independently of the others:
/// an expert stays idle with probability (1 - k/E)^tokens.
ExpertLoad random_load(const FeedForwardShape& ff, double tokens, int ranks, double imbalance) {
  const double experts = ff.experts, topk = ff.experts_per_token;
  const double local = experts / ranks;
  const double idle = std::pow(1 - topk / experts, tokens);
  const double pairs = std::min(tokens * std::min(topk, local), imbalance * tokens * topk / ranks);
  const double active = std::min(pairs, local * (1 - idle));
  return {pairs, active, tokens * (1 - std::pow(1 - topk / experts, local))};
}

GemmTimer linear_timer(const Cluster& cluster, const ServingKernels& kernels) {
  if (!kernels.tiled) return {cluster.accelerator, kernels.math};
  Accelerator accelerator = cluster.accelerator;
  accelerator.gemm = kernels.linear_gemm;
  return {accelerator, kernels.linear, kernels.linear_format};
}

template <class Cost>
Cost added(Cost sum, double factor, const Cost& more) {
  sum.linear += factor * more.linear;
  sum.experts += factor * more.experts;
  sum.elementwise += factor * more.elementwise;
  sum.tp += factor * more.tp;
  sum.ep += factor * more.ep;
  return sum;
}

}  // namespace

double StepTimes::point(std::size_t index) noexcept {
  // 1, 2, 3, 4, 6, 8, 12, 16 ...
  if (index == 0) return 1;
  const double power = std::ldexp(1.0, static_cast<int>((index + 1) / 2));
  return index % 2 == 1 ? power : 1.5 * power;
}

StepTimes::StepTimes(const Model& model, const Cluster& cluster, const Engine& engine,
                     const ServingKernels& kernels, const ServingLayout& layout, double imbalance)
    : engine_(engine),
      layout_(layout),
      cluster_(cluster),
      kernels_(kernels),
      hidden_(model.hidden),
      vocab_(model.vocab),
      imbalance_(imbalance),
      linear_timer_(linear_timer(cluster, kernels)),
      storage_timer_(cluster.accelerator, storage_precision(kernels.math)) {
  for (Seconds* host : {&engine_.step_host, &engine_.sequence_host, &engine_.pipeline_host,
                        &engine_.request_host}) {
    *host = kernels.host_slowdown * *host;
  }
  // Ranks of data-parallel attention have a process on the CPU each. Engines that overlap do so on
  // one stage only: in a pipeline every micro-batch waits, and its tokens travel between processes.
  const bool pipeline = layout.pp > 1;
  host_hides_ = engine_.overlaps_host && !pipeline;
  host_fixed_ = (engine_.overlaps_host ? layout.pp : 1) * engine_.step_host;
  host_each_ = (engine_.sequence_host + (pipeline ? engine_.pipeline_host : Seconds{})) / layout.dp;
  std::vector<double> layers(model.kinds.size());
  for (const std::uint8_t kind : model.layer_kind) ++layers[kind];
  // Layers are whole: the fullest stage sets the pace.
  const double stage = std::ceil(static_cast<double>(model.layers()) / layout.pp);
  for (double& count : layers) count *= stage / model.layers();

  for (std::size_t i = 0; i < model.kinds.size(); ++i) {
    if (layers[i] <= 0) continue;
    for (const Unit& unit : model.kinds[i].units) {
      for (const LayerOperator& op : unit.operators) {
        if (op.kind == OperatorKind::attention) add_attention(op, layers[i]);
        if (op.kind == OperatorKind::scan) {
          scans_.push_back({op.recurrence.sharded(layout.tp), layers[i]});
        }
      }
    }
  }
  for (std::size_t at = 0; at < kPoints; ++at) {
    const double count = point(at);
    for (std::size_t i = 0; i < model.kinds.size(); ++i) {
      if (layers[i] > 0) {
        tokens_[at] = added(tokens_[at], layers[i], layer_tokens(model.kinds[i], count));
      }
    }
    draft_[at] = layer_tokens(model.kinds[model.mtp_kind], count);
    head_[at] = head_time(count);
    const auto own = [](const TokenCost& c) { return c.linear + c.elementwise + c.tp; };
    const auto shared = [](const TokenCost& c) { return c.experts + c.ep; };
    own_total_[at] = own(tokens_[at]);
    shared_total_[at] = shared(tokens_[at]);
    tokens_total_[at] = own_total_[at] + shared_total_[at];
    draft_total_[at] = own(draft_[at]) + shared(draft_[at]);
  }
}

Seconds StepTimes::linear(const GemmTimer& timer, double m, double n, double k, double batch,
                          bool quantised) const {
  return timer.time({m, n, k, batch, kElement, quantised}) / engine_.kernel_efficiency;
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
  const GroupShape group = group_shape(cluster_, ranks, 1);
  const Seconds library = collective_time(Collective::all_reduce, bytes, group, cluster_);
  if (!kernels_.own_all_reduce || group.domains > 1) return wait(ranks) + library;
  return wait(ranks) +
         min(library, custom_all_reduce_time(bytes, group, cluster_.scale_up, kernels_.all_reduce));
}

/// Bytes of an element as norms and activations leave it for the next GEMM.
double StepTimes::written_bytes() const noexcept {
  return engine_.fused_quantisation ? kernels_.linear_format.activation_bytes : kElement;
}

/// Tokens to their experts and back, where ranks hold different tokens: every rank gathers all of
/// them, narrow where the norm before wrote them so, and reduces what it computed, or kernels of
/// their own send each where it is wanted. Engines choose by the size of a step, taken here as the
/// faster way.
Seconds StepTimes::exchange(const FeedForwardShape& ff, double tokens) const {
  const int ranks = layout_.stage_ranks();
  const GroupShape group = group_shape(cluster_, ranks, 1);
  const double width = ff.latent > 0 ? ff.latent : hidden_, elements = tokens * width;
  Seconds time =
      collective_time(Collective::all_gather, Bytes{elements * written_bytes()}, group, cluster_) +
      collective_time(Collective::reduce_scatter, Bytes{elements * kElement}, group, cluster_);
  const bool reaches = group.domains == 1 || (kernels_.dispatch.network_rate > BytesPerSecond{} &&
                                              kernels_.combine.network_rate > BytesPerSecond{});
  if (kernels_.sends_tokens && reaches && layout_.ep > 1) {
    const DispatchWork work{tokens / ranks,
                            width,
                            static_cast<double>(ff.experts_per_token),
                            static_cast<double>(ff.experts),
                            static_cast<double>(layout_.ep),
                            static_cast<double>(group.domains),
                            0,
                            static_cast<double>(cluster_.accelerator.multiprocessors)};
    time =
        min(time, dispatch_time(work, kernels_.dispatch) + dispatch_time(work, kernels_.combine));
  }
  return 2 * wait(ranks) + time;
}

void StepTimes::add_attention(const LayerOperator& op, double layers) {
  const AttentionShape& a = op.attention;
  AttentionKind kind;
  kind.layers = layers;
  kind.cached_values = a.cached_values(layout_.tp);
  kind.call.math = kernels_.attention;
  kind.call.cache = kernels_.cache;
  kind.call.latent = a.kv_lora_rank;
  kind.call.rotary = a.latent() ? a.rope_head_dim : 0;
  kind.call.work = op.attention_work(layout_.tp);
  kind.call.work.window = a.attended_where(engine_.uses_windows);
  kind.decode = decode_case(kind.call, 1);
  attention_.push_back(kind);
}

/// A GEMM of `m` tokens. Engines multiply those of one unit that read the same input at once, with
/// the first of them; `quantised`: a norm or an activation has written the input in the format of
/// narrow GEMMs.
void StepTimes::add_gemm(TokenCost& cost, const Unit& unit, const LayerOperator& op,
                         double m) const {
  if (op.shares_input) return;
  if (op.weightless) {
    cost.linear += linear(storage_timer_, op.rows, op.local_columns(layout_.tp),
                          op.local_depth(layout_.tp), m * op.copies, false);
    return;
  }
  if (op.routes) {
    cost.linear += linear(storage_timer_, m, op.columns, op.depth, 1, false);
    return;
  }
  if (op.absorbed) {
    // Queries into the latent space and values out of it, head by head.
    const AttentionShape& a = op.attention;
    const double heads = static_cast<double>(a.heads) / layout_.tp;
    cost.linear += linear(storage_timer_, m, op.depth, a.head_dim - a.rope_head_dim, heads, false) +
                   linear(storage_timer_, m, a.v_head_dim, op.depth, heads, false);
    return;
  }
  double columns = op.local_columns(layout_.tp);
  const bool first =
      &op == &*std::ranges::find(unit.operators, OperatorKind::gemm, &LayerOperator::kind);
  for (const LayerOperator& other : unit.operators) {
    if (first && other.shares_input) columns += other.local_columns(layout_.tp);
  }
  const bool quantised = engine_.fused_quantisation && !op.reads_attention;
  cost.linear += linear(linear_timer_, m, columns, op.local_depth(layout_.tp), 1, quantised);
}

/// Kernels between the GEMMs of `m` tokens. Norms and activations write what the next GEMM reads,
/// in its own format where the engine fuses that.
void StepTimes::add_elementwise(TokenCost& cost, const LayerOperator& op, double m) const {
  const auto& fractions = cluster_.accelerator.elementwise;
  const double columns = op.local_columns(layout_.tp), written = written_bytes();
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
    case OperatorKind::convolution:
      cost.elementwise += elementwise_time(2 * m * columns * kElement, fractions.add_fraction);
      break;
    case OperatorKind::gemm:
    case OperatorKind::attention:  // of the phases, not of the tokens
    case OperatorKind::scan:
    case OperatorKind::residual:  // fused with the norm behind it
    case OperatorKind::loss:
      break;
  }
}

/// Experts of a layer: `m` tokens of a rank, `tokens` of the whole instance.
void StepTimes::add_experts(TokenCost& cost, const FeedForwardShape& ff, double m,
                            double tokens) const {
  const double h = ff.latent > 0 ? ff.latent : hidden_;
  ExpertLayer layer;
  const double imbalance =
      imbalance_ > 0 ? imbalance_ : rank_imbalance(engine_.expert_spread, ff.experts, layout_.ep);
  layer.load = random_load(ff, tokens, layout_.ep, imbalance);
  layer.tokens = tokens;
  layer.topk = ff.experts_per_token;
  layer.experts = ff.experts;
  layer.expert_ranks = layout_.ep;
  layer.hidden = h;
  layer.intermediate = ff.width;
  layer.tensor_ranks = static_cast<double>(layout_.stage_ranks()) / layout_.ep;
  layer.matrices = ff.matrices();
  if (!kernels_.experts_as_linear) {
    cost.experts += expert_layer_time(layer, kernels_.experts, cluster_.accelerator) /
                    engine_.kernel_efficiency;
    return;
  }
  const double add = cluster_.accelerator.elementwise.add_fraction;
  const bool ready = engine_.fused_quantisation;
  const double inner = layer.intermediate / layer.tensor_ranks, pairs = layer.load.pairs;
  const double rows = pairs / layer.load.active, up = (ff.gated ? 2 : 1) * inner;
  const double active = layer.load.active;
  cost.experts += linear(linear_timer_, rows, up, h, active, ready) +
                  linear(linear_timer_, rows, h, inner, active, ready);
  // Rows into the order of their experts, activations, and rows back into their sum.
  cost.experts += elementwise_time((m + pairs) * h * kElement, add) +
                  elementwise_time(pairs * (up * kElement + inner * written_bytes()), add) +
                  elementwise_time((pairs + m) * h * kElement, add);
}

/// One layer on its busiest rank. `tokens` are those of the whole instance.
StepTimes::TokenCost StepTimes::layer_tokens(const LayerKind& kind, double tokens) const {
  TokenCost cost;
  const double m = std::max(1.0, tokens / layout_.dp);
  const Bytes stream{m * hidden_ * kElement};
  const bool moves_tokens = layout_.dp > 1 || layout_.cp > 1;
  for (std::size_t i = 0; i < kind.units.size(); ++i) {
    const Unit& unit = kind.units[i];
    for (const LayerOperator& op : unit.operators) {
      if (unit.on_copies(op)) continue;  // one kernel of all experts, below
      if (op.kind == OperatorKind::gemm) {
        add_gemm(cost, unit, op, m);
      } else {
        add_elementwise(cost, op, m);
      }
    }
    if (unit.routed()) add_experts(cost, kind.feed_forward, m, tokens);
    if (unit.routed() && moves_tokens) {
      cost.ep += exchange(kind.feed_forward, tokens);
      continue;
    }
    // Shared experts are added to the routed ones first, and reduced with them.
    const bool added_first = i + 1 < kind.units.size() && !kind.units[i + 1].reads_stream;
    if (layout_.tp > 1 && !added_first) cost.tp += all_reduce(stream, layout_.tp);
  }
  return cost;
}

/// Logits of one position per sequence and the draw from them.
Seconds StepTimes::head_time(double sequences) const {
  const double m = std::max(1.0, sequences / layout_.dp);
  const double vocab = vocab_ / layout_.tp;
  Seconds time = linear(storage_timer_, m, vocab, hidden_, 1, false) +
                 elementwise_time(kSamplingPasses * kLogitBytes * m * vocab_,
                                  cluster_.accelerator.elementwise.softmax_fraction);
  if (layout_.tp > 1) {
    time += collective_time(Collective::all_gather, Bytes{m * vocab_ * kElement},
                            group_shape(cluster_, layout_.tp, 1), cluster_);
  }
  return time;
}

Seconds StepTimes::prefill(const StepWork& work) const noexcept {
  Seconds time;
  const double all = std::max(1.0, work.prompts), prompts = std::max(1.0, all / layout_.dp);
  for (const AttentionKind& kind : attention_) {
    AttentionCall call = kind.call;
    call.work.batch = prompts;
    call.work.queries = std::max(1.0, work.prompt_tokens / (all * layout_.cp));
    call.work.keys = std::max(call.work.queries, work.prompt_keys);
    time += kind.layers * prefill_time(call, kernels_.prefill, cluster_.accelerator);
  }
  if (!scans_.empty()) time += prefill_scans(work);
  return time / engine_.kernel_efficiency;
}

/// Chunks of a prompt carry the state from one to the next: each is a scan of its own.
Seconds StepTimes::prefill_scans(const StepWork& work) const noexcept {
  const double all = std::max(1.0, work.prompts), prompts = std::max(1.0, all / layout_.dp);
  const double tokens = std::max(1.0, work.prompt_tokens / all);
  Seconds time;
  for (const ScanKind& kind : scans_) {
    time += kind.layers *
            scan_time({kind.shape, prompts, tokens}, cluster_.accelerator, kElement).forward;
  }
  return time;
}

/// Every running sequence reads and writes its state, once for all of its new tokens.
Seconds StepTimes::decode_scans(const StepWork& work) const noexcept {
  const double batch = std::max(1.0, work.sequences / layout_.dp);
  Seconds time;
  for (const ScanKind& kind : scans_) {
    time += kind.layers *
            scan_decode_time({kind.shape, batch, work.query_tokens}, cluster_.accelerator);
  }
  return time;
}

/// Several new tokens of a sequence share one pass over its keys, as grouped heads do.
DecodeCase StepTimes::decode_case(AttentionCall call, double queries) const noexcept {
  call.work.queries = 1;
  call.work.heads *= queries;
  call.work.window /= layout_.cp;
  return {call, kernels_.decode, cluster_.accelerator};
}

Seconds StepTimes::decode(const StepWork& work) const noexcept {
  const double batch = std::max(1.0, work.sequences / layout_.dp);
  const double keys = std::max(1.0, work.context / layout_.cp);
  Seconds time;
  for (const AttentionKind& kind : attention_) {
    const Seconds layer = work.query_tokens == 1
                              ? kind.decode.time(batch, keys)
                              : decode_case(kind.call, work.query_tokens).time(batch, keys);
    time += kind.layers * layer;
  }
  if (!scans_.empty()) time += decode_scans(work);
  return time / engine_.kernel_efficiency;
}

/// Ranks that shard prompts gather all keys and values once per layer; those that share a
/// cache exchange partial outputs of the running sequences.
Seconds StepTimes::context_exchange(const StepWork& work) const noexcept {
  Seconds time;
  if (layout_.cp == 1) return time;
  const GroupShape group = group_shape(cluster_, layout_.cp, layout_.tp);
  for (const AttentionKind& kind : attention_) {
    const AttentionWork& w = kind.call.work;
    const double cached = kind.cached_values * operand_bytes(kind.call.cache);
    if (work.prompt_tokens > 0) {
      time += kind.layers * collective_time(Collective::all_gather,
                                            Bytes{work.prompt_tokens / layout_.dp * cached}, group,
                                            cluster_);
    }
    if (work.sequences > 0) {
      const double outputs =
          work.sequences * work.query_tokens / layout_.dp * w.heads * w.v_head_dim;
      time += kind.layers *
              collective_time(Collective::all_to_all, Bytes{outputs * kElement}, group, cluster_);
    }
  }
  return time;
}

/// A step of a pipeline: every batch in flight passes every stage, one behind the other.
StepWork StepTimes::of_stage(StepWork work) const noexcept {
  if (layout_.pp == 1) return work;
  const double stages = layout_.pp;
  work.sequences /= stages;
  work.prompts /= stages;
  work.prompt_tokens /= stages;
  return work;
}

double StepTimes::tokens(const StepWork& stage) const noexcept {
  return stage.sequences * stage.query_tokens + stage.prompt_tokens / layout_.cp;
}

/// Tokens of the fullest data-parallel rank, times their number: sequences are spread over them,
/// and so are prompts where there are as many, but one prompt is computed by one rank.
double StepTimes::tokens_by_rank(const StepWork& stage) const noexcept {
  const double all = std::max(1.0, stage.prompts);
  const double waiting = std::max(1.0, layout_.dp / all);
  return stage.sequences * stage.query_tokens + waiting * stage.prompt_tokens / layout_.cp;
}

Seconds StepTimes::between_stages(double tokens) const noexcept {
  if (layout_.pp == 1) return Seconds{};
  const GroupShape group = group_shape(cluster_, layout_.pp, layout_.stage_ranks());
  return layout_.pp * p2p_time(Bytes{tokens / layout_.dp * hidden_ * kElement}, group, cluster_);
}

/// What is done for every sequence needs the tokens of this step and the next one waits for it.
Seconds StepTimes::host(const StepWork& whole, Seconds device) const noexcept {
  const Seconds fixed = host_hides_ ? max(Seconds{}, host_fixed_ - device) : host_fixed_;
  return fixed + (whole.sequences + whole.prompts) * host_each_;
}

StepTime StepTimes::of(const StepWork& whole) const noexcept {
  StepTime time;
  const StepWork work = of_stage(whole);
  const double stages = layout_.pp, count = tokens(work);
  if (count <= 0) return time;
  const auto cost_at = [](const auto& grid, const Position& p) {
    return added(added({}, 1 - p.share, grid[p.index]), p.share, grid[p.index + 1]);
  };
  const double by_rank = tokens_by_rank(work);
  TokenCost cost = cost_at(tokens_, position(by_rank));
  if (by_rank > count) {
    const TokenCost all = cost_at(tokens_, position(count));
    cost.experts = all.experts;
    cost.ep = all.ep;
  }
  time.linear = stages * cost.linear;
  time.experts = stages * cost.experts;
  time.elementwise = stages * cost.elementwise;
  time.tp = stages * cost.tp;
  time.ep = stages * cost.ep;
  time.prefill_attention = prefill_attention(whole);
  time.decode_attention = decode_attention(whole);
  time.cp = stages * context_exchange(work);
  // The last stage alone has the head, and the others wait for it.
  time.head = stages * at(head_, work.sequences * work.query_tokens + work.prompts);
  if (work.draft_tokens > 0 && work.sequences > 0) {
    time.draft = stages * (work.draft_tokens *
                           (at(draft_total_, work.sequences) + at(head_, work.sequences)));
  }
  time.pp = between_stages(by_rank);
  const Seconds device = time.linear + time.experts + time.elementwise + time.prefill_attention +
                         time.decode_attention + time.head + time.draft + time.tp + time.ep +
                         time.cp + time.pp;
  time.host = host(whole, device);
  time.total = total(whole, time.prefill_attention + time.decode_attention);
  return time;
}

Seconds StepTimes::prefill_attention(const StepWork& whole) const noexcept {
  return whole.prompt_tokens > 0 ? layout_.pp * prefill(of_stage(whole)) : Seconds{};
}

Seconds StepTimes::decode_attention(const StepWork& whole) const noexcept {
  return whole.sequences > 0 ? layout_.pp * decode(of_stage(whole)) : Seconds{};
}

Seconds StepTimes::total(const StepWork& whole, Seconds attention) const noexcept {
  const StepWork work = of_stage(whole);
  const double count = tokens(work);
  if (count <= 0) return Seconds{};
  const double by_rank = layout_.dp > 1 ? tokens_by_rank(work) : count;
  Seconds stage = at(head_, work.sequences * work.query_tokens + work.prompts);
  stage += by_rank > count ? at(own_total_, by_rank) + at(shared_total_, count)
                           : at(tokens_total_, count);
  if (work.draft_tokens > 0 && work.sequences > 0) {
    stage += work.draft_tokens * (at(draft_total_, work.sequences) + at(head_, work.sequences));
  }
  if (layout_.cp > 1) stage += context_exchange(work);
  Seconds device = layout_.pp * stage + attention;
  if (layout_.pp > 1) device += between_stages(by_rank);
  return device + host(whole, device);
}

}  // namespace scalemodel
