// The tables of StepTimes, filled once: what depends on the tokens of a step alone.
#include <cmath>

#include "scalemodel/serving/layout_times.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {
namespace {

GemmTimer linear_timer(const Cluster& cluster, const ServingKernels& kernels) {
  if (!kernels.tiled) return {cluster.accelerator, kernels.math};
  Accelerator accelerator = cluster.accelerator;
  accelerator.gemm = kernels.linear_gemm;
  return {accelerator, kernels.linear, kernels.linear_format};
}

/// Layers of each kind on the fullest stage: they are whole, and it sets the pace.
std::vector<double> layers_of_stage(const Model& model, int stages) {
  std::vector<double> layers(model.kinds.size());
  for (const std::uint8_t kind : model.layer_kind) ++layers[kind];
  const double stage = std::ceil(static_cast<double>(model.layers()) / stages);
  for (double& count : layers) count *= stage / model.layers();
  return layers;
}

}  // namespace

StepTimes::StepTimes(const StepQuestion& question, const ServingLayout& layout, Shared* shared)
    : engine_(question.engine),
      layout_(layout),
      cluster_(question.cluster),
      kernels_(question.kernels),
      hidden_(question.model.hidden),
      vocab_(question.model.vocab),
      imbalance_(question.imbalance),
      source_(question.model.encoder.present() ? question.image_patches : 0),
      stream_(static_cast<double>(question.model.streams) * question.model.hidden),
      pool_(question.pool),
      linear_timer_(linear_timer(question.cluster, question.kernels)),
      storage_timer_(question.cluster.accelerator, storage_precision(question.kernels.math)),
      expert_timer_(linear_timer(expert_cluster(), expert_kernels())),
      shared_(shared) {
  const Model& model = question.model;
  const double image_patches = question.image_patches;
  for (Seconds* host :
       {&engine_.step_host, &engine_.sequence_host, &engine_.pipeline_host, &engine_.request_host,
        &engine_.prompt_host, &engine_.draft_layer_host, &engine_.guided.mask,
        &engine_.guided.advance, &engine_.guided.update, &engine_.guided.compile}) {
    *host = kernels_.host_slowdown * *host;
  }
  if (engine_.guided.any()) {
    Seconds& waits = engine_.compiles_apart ? engine_.request_host : engine_.prompt_host;
    waits += engine_.guided.fraction * engine_.guided.compile;
  }
  // Ranks of data-parallel attention have a process on the CPU each. Engines that overlap do so on
  // one stage only: in a pipeline every micro-batch waits, and its tokens travel between processes.
  const bool pipeline = layout.pp > 1;
  host_hides_ = engine_.overlaps_host && !pipeline;
  host_hides_drafting_ = host_hides_ && (question.draft.model ? engine_.overlaps_draft_models
                                                              : engine_.overlaps_drafts);
  host_fixed_ = (engine_.overlaps_host ? layout.pp : 1) * engine_.step_host +
                std::log2(static_cast<double>(layout.tp)) * engine_.broadcast_host;
  host_each_ = (engine_.sequence_host + (pipeline ? engine_.pipeline_host : Seconds{})) / layout.dp;
  prompt_host_ = adapter_load_time(model, engine_.adapters, layout,
                                   cluster_.accelerator.host_bandwidth, engine_.adapter_copy) +
                 engine_.prompt_host / layout.dp;
  const std::vector<double> layers = layers_of_stage(model, layout.pp);
  const double stage = std::ceil(static_cast<double>(model.layers()) / layout.pp);
  for (std::size_t i = 0; i < model.kinds.size(); ++i) {
    if (layers[i] <= 0) continue;
    if (model.kinds[i].feed_forward.routed()) routed_share_ += layers[i] / stage;
    for (const Unit& unit : model.kinds[i].units) {
      for (const LayerOperator& op : unit.operators) {
        if (op.kind == OperatorKind::attention) add_attention(op, layers[i]);
        if (op.kind == OperatorKind::scan) add_scan(op.recurrence, layers[i]);
      }
    }
  }
  for (std::size_t at = 0; at < kPoints; ++at) {
    const double count = point(at);
    for (std::size_t i = 0; i < model.kinds.size(); ++i) {
      const bool drafts = i == model.mtp_kind;
      if (layers[i] <= 0 && !drafts) continue;
      const TokenCost layer = layer_tokens(model.kinds[i], count);
      if (drafts) draft_[at] = layer;
      if (layers[i] <= 0) continue;
      tokens_[at] = tokens_[at].plus(layers[i], layer);
      if (model.kinds[i].feed_forward.routed()) continue;
      dense_total_[at] += layers[i] * (layer.linear + layer.elementwise + layer.tp);
    }
    head_[at] = head_time(count);
    if (image_patches > 0) encoder_[at] = encoder_time(model.tower(), image_patches, count);
    if (source_ > 0) encoder_[at] += source_keys_time(model, image_patches, count);
    sum_up(at);
  }
  if (question.draft.model) {
    const DraftModel& own = *question.draft.model;
    Engine unadapted = question.engine;
    unadapted.adapters = {};
    unadapted.guided = {};
    draft_model_ = std::make_shared<const StepTimes>(own.model, cluster_, unadapted, own.kernels,
                                                     draft_layout(own, layout), imbalance_);
    draft_launch_ = own.model.layers() * engine_.draft_layer_host;
  }
  shared_ = nullptr;
}

/// Sums of the causes at a point of the grid.
void StepTimes::sum_up(std::size_t at) {
  const auto own = [](const TokenCost& c) { return c.linear + c.elementwise + c.tp; };
  const auto shared = [](const TokenCost& c) { return c.experts + c.ep; };
  own_total_[at] = own(tokens_[at]);
  shared_total_[at] = shared(tokens_[at]);
  tokens_total_[at] = own_total_[at] + shared_total_[at];
  draft_total_[at] = own(draft_[at]) + shared(draft_[at]);
  const TokenCost& c = tokens_[at];
  const Seconds sent = c.ep - c.waits;
  overlap_[at] = {c.experts, sent - c.combine, c.combine, c.waits,
                  sent > Seconds{} ? c.occupied / sent : 0.0};
}

void StepTimes::set_expert_ranks(const Model& model, std::uint16_t ep, Shared& shared) {
  layout_.ep = ep;
  shared_ = &shared;
  const std::vector<double> layers = layers_of_stage(model, layout_.pp);
  for (std::size_t at = 0; at < kPoints; ++at) {
    const double count = point(at);
    for (TokenCost* cost : {&tokens_[at], &draft_[at]}) {
      cost->experts = cost->ep = cost->combine = cost->waits = cost->occupied = Seconds{};
    }
    for (std::size_t i = 0; i < model.kinds.size(); ++i) {
      const bool drafts = i == model.mtp_kind;
      if (layers[i] <= 0 && !drafts) continue;
      TokenCost layer;
      for (const Unit& unit : model.kinds[i].units) {
        if (unit.routed()) {
          add_experts(layer, model.kinds[i], unit, tokens_of_rank(count), count);
        }
      }
      if (layers[i] > 0) tokens_[at] = tokens_[at].plus(layers[i], layer);
      if (drafts) draft_[at] = draft_[at].plus(1, layer);
    }
    sum_up(at);
  }
  shared_ = nullptr;
}

void StepTimes::add_attention(const LayerOperator& op, double layers) {
  const AttentionShape& a = op.attention;
  AttentionKind kind;
  kind.layers = layers;
  kind.of_source = op.of_source;
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

void StepTimes::add_scan(const RecurrentShape& whole, double layers) {
  const RecurrentShape local = whole.sharded(layout_.tp);
  const double ranks = static_cast<double>(layout_.tp) * layout_.cp;
  scans_.push_back(
      {whole.sharded(ranks), layers, local.projected() + local.inner(), local.inner()});
}

StepTimes::TokenCost StepTimes::TokenCost::plus(double factor,
                                                const TokenCost& more) const noexcept {
  TokenCost sum = *this;
  sum.linear += factor * more.linear;
  sum.experts += factor * more.experts;
  sum.elementwise += factor * more.elementwise;
  sum.tp += factor * more.tp;
  sum.ep += factor * more.ep;
  sum.combine += factor * more.combine;
  sum.waits += factor * more.waits;
  sum.occupied += factor * more.occupied;
  return sum;
}

const StepTimes& LayoutTimes::of(const ServingLayout& layout) {
  ServingLayout alike = layout;
  if (last_) alike.ep = last_->layout_.ep;
  if (last_ && alike == last_->layout_ && !layout.has_expert_pool() && !question_.draft.model) {
    if (layout != alike) last_->set_expert_ranks(question_.model, layout.ep, shared_);
  } else {
    alike_.clear();
    last_ = StepTimes(question_, layout, &shared_);
  }
  last_->alike_ = &alike_;
  return *last_;
}

}  // namespace scalemodel
