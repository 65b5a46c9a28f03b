#include "scalemodel/serving/step_times.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/serving/step_totals.hpp"

namespace scalemodel {

/// Tokens that a query attends to, where those of the sequence itself are `keys`.
double StepTimes::keys_of(const AttentionKind& kind, double keys) const noexcept {
  return kind.of_source ? source_ : keys;
}

Seconds StepTimes::prefill(const StepWork& work) const noexcept {
  Seconds time;
  const double prompts = std::max(1.0, work.prompts / layout_.dp);
  const double queries = prompt_tokens_by_rank(work) / (prompts * layout_.cp);
  for (const AttentionKind& kind : attention_) {
    AttentionCall call = kind.call;
    call.work.batch = prompts;
    call.work.queries = std::max(1.0, queries);
    call.work.keys = keys_of(kind, std::max(call.work.queries, work.prompt_keys));
    time += kind.layers * prefill_time(call, kernels_.prefill, cluster_.accelerator);
  }
  if (!scans_.empty()) time += prefill_scans(work);
  return time / engine_.kernel_efficiency;
}

/// Chunks of a prompt carry the state from one to the next: each is a scan of its own. A rank scans
/// all tokens of a prompt, of its share of the heads.
Seconds StepTimes::prefill_scans(const StepWork& work) const noexcept {
  const double prompts = std::max(1.0, work.prompts / layout_.dp);
  const double tokens = std::max(1.0, prompt_tokens_by_rank(work) / prompts);
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

/// Ranks that shard prompts gather all keys and values once per layer; those that share a
/// cache exchange partial outputs of the running sequences. Before and behind the scan of a prompt
/// its tokens are exchanged for heads, as in training (Megatron-LM, context parallelism of Mamba
/// layers); running sequences put the heads of their ranks together.
Seconds StepTimes::context_exchange(const StepWork& work) const noexcept {
  if (layout_.cp == 1) return Seconds{};
  if (alike_ == nullptr) return context_time(work);
  return alike_->context.of(key_of<3>(work.prompt_tokens, work.sequences, work.query_tokens),
                            [&] { return context_time(work); });
}

Seconds StepTimes::context_time(const StepWork& work) const noexcept {
  Seconds time;
  const GroupShape group = group_shape(cluster_, layout_.cp, layout_.tp);
  for (const AttentionKind& kind : attention_) {
    const AttentionWork& w = kind.call.work;
    const double cached = kind.cached_values * operand_bytes(kind.call.cache);
    if (work.prompt_tokens > 0 && !kind.of_source) {
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
  for (const ScanKind& kind : scans_) {
    if (work.prompt_tokens > 0) {
      const double own = work.prompt_tokens / layout_.dp / layout_.cp;
      time +=
          kind.layers * collective_time(Collective::all_to_all,
                                        Bytes{own * kind.exchanged * kElement}, group, cluster_);
    }
    if (work.sequences > 0) {
      const double tokens = work.sequences * work.query_tokens / layout_.dp;
      time +=
          kind.layers * collective_time(Collective::all_gather,
                                        Bytes{tokens * kind.outputs * kElement}, group, cluster_);
    }
  }
  return time;
}

/// A step of a pipeline: every batch in flight passes every stage, one behind the other. So do the
/// micro-batches that go to an expert pool and back.
StepWork StepTimes::of_stage(StepWork work) const noexcept {
  if (layout_.batches() == 1) return work;
  const double stages = layout_.batches();
  work.sequences /= stages;
  work.prompts /= stages;
  work.prompt_tokens /= stages;
  work.images /= stages;
  return work;
}

/// New tokens of prompts on the fullest data-parallel rank: they are spread over the ranks, but one
/// prompt is computed by one of them.
double StepTimes::prompt_tokens_by_rank(const StepWork& work) const noexcept {
  const double alike = work.prompt_tokens / std::max(1.0, work.prompts);
  const double longest = work.longest > 0 ? work.longest : alike;
  return std::max(work.prompt_tokens / layout_.dp, longest);
}

/// Tokens of the fullest data-parallel rank, times their number.
double StepTimes::tokens_by_rank(const StepWork& stage) const noexcept {
  return stage.sequences * stage.query_tokens +
         layout_.dp * prompt_tokens_by_rank(stage) / layout_.cp;
}

/// Two halves of a step, layer by layer in turns:
///
///     t = max(A, D) + max(E, D) + max(E, C) + max(A, C) + 2 waits
///
/// with A all compute of a half but its experts E, and D and C its way to the experts and back,
/// each beside the other half's compute. Where kernels of the exchange need multiprocessors,
/// compute is launched on the others for the whole step (SGLang,
/// batch_overlap/operations_strategy.py: deep_gemm_num_sms). Waits for the last rank are in the way
/// of both halves: a rank that is late in one is late for the other. Source: DeepSeek-V3, arXiv
/// 2412.19437, section 3.4; SGLang, "Deploying DeepSeek with PD disaggregation and large-scale
/// expert parallelism on 96 H100 GPUs" (2025).
Seconds StepTimes::overlapped(double by_rank, double count, Seconds attention) const noexcept {
  const Position p = position(count / 2);
  const Overlap &low = overlap_[p.index], &high = overlap_[p.index + 1];
  const auto between = [&](auto a, auto b) { return a + p.share * (b - a); };
  const Seconds own = at(own_total_, by_rank / 2) + 0.5 * attention;
  const Seconds experts = between(low.experts, high.experts);
  const Seconds out = between(low.dispatch, high.dispatch);
  const Seconds back = between(low.combine, high.combine);
  const double left = 1 - between(low.occupied, high.occupied);
  const auto beside = [&](Seconds compute, Seconds sent) { return max(sent, compute / left); };
  return beside(own, out) + beside(experts, out) + beside(experts, back) + beside(own, back) +
         2 * between(low.waits, high.waits);
}

/// Of one micro-batch that has `by_rank` tokens on the fullest attention rank, times their number,
/// `count` in all, and this much attention.
PoolTimes StepTimes::pool_times(double by_rank, double count, Seconds attention) const noexcept {
  const Position p = position(count);
  const Overlap &low = overlap_[p.index], &high = overlap_[p.index + 1];
  const auto between = [&](Seconds a, Seconds b) { return a + p.share * (b - a); };
  const Seconds own = at(own_total_, by_rank) - at(dense_total_, by_rank);
  return {own + routed_share_ * attention, between(low.experts, high.experts),
          between(low.dispatch, high.dispatch), between(low.combine, high.combine),
          between(low.waits, high.waits)};
}

/// Layers without experts of one micro-batch: the expert pool stands still beside them.
Seconds StepTimes::before_pools(double by_rank, Seconds attention) const noexcept {
  return at(dense_total_, by_rank) + (1 - routed_share_) * attention;
}

/// All layers of all micro-batches, by the attention of one of them.
Seconds StepTimes::through_pools(double by_rank, double count, Seconds attention) const noexcept {
  return layout_.micro_batches * before_pools(by_rank, attention) +
         alternating_time(pool_times(by_rank, count, attention), layout_.micro_batches);
}

PoolLoad StepTimes::pools(const StepWork& whole) const noexcept {
  PoolLoad load;
  const StepWork work = of_stage(whole);
  const double count = tokens(work), parts = layout_.micro_batches;
  if (!layout_.has_expert_pool() || count <= 0) return load;
  const Seconds attention = prefill_attention(whole) + decode_attention(whole);
  const double by_rank = tokens_by_rank(work);
  const PoolTimes each = pool_times(by_rank, count, attention / parts);
  const Seconds through = through_pools(by_rank, count, attention / parts);
  // All that is no layer, head and drafts among it, is the attention pool's too.
  const Seconds beside = device(whole, attention) - through;
  load.attention = beside + parts * (before_pools(by_rank, attention / parts) + each.attention);
  load.experts = parts * each.experts;
  load.dispatch = parts * each.dispatch;
  load.combine = parts * each.combine;
  load.step = total(whole, attention);
  return load;
}

Seconds StepTimes::between_stages(double tokens) const noexcept {
  if (layout_.pp == 1) return Seconds{};
  const GroupShape group = group_shape(cluster_, layout_.pp, layout_.stage_ranks());
  return layout_.pp * p2p_time(Bytes{tokens / layout_.dp * stream_ * kElement}, group, cluster_);
}

/// What the accelerator waits for inside a step whose passes are prepared one by one: verification
/// while drafts are made, and the pass of the draft over what was accepted, which the CPU has to
/// know first. Source: python/sglang/srt/speculative/eagle_worker.py, forward_batch_generation
/// (draft, verify, forward_draft_extend_after_decode).
Seconds StepTimes::host_between(const StepWork& whole) const noexcept {
  if (!engine_.phased_drafts || draft_model_ || whole.draft_tokens <= 0) return Seconds{};
  return max(Seconds{}, engine_.step_host - draft_time(of_stage(whole))) + engine_.step_host;
}

/// Masks of a step and rank, one of every token that a guided request may sample, drafts to verify
/// included. Ranks of data-parallel attention have a process each.
double StepTimes::masks(const StepWork& whole) const noexcept {
  const double sampled = whole.sequences * whole.query_tokens + whole.prompts;
  return engine_.guided.fraction * sampled / layout_.dp;
}

/// CPU overhead of a step with masks, which have to be there when it samples. They need the tokens
/// of the step before, which grammars take in first: an engine fills and copies masks while the
/// accelerator computes, or before it starts. Where the next step is on its way by then, it takes
/// tokens in beside it, too; unless its sampling is not asked for before the tokens of all
/// sequences are taken in (`update`): that shows as far as the CPU's work for sequences leaves the
/// accelerator no lead. One sequence follows the other, also where an engine has a pool of threads:
/// calls from Python take as long (vllm-project/vllm#51331, 2026-08). Sources: XGrammar, arXiv
/// 2411.15100, section 3.5; vllm, v1/engine/core.py, step and step_with_batch_queue.
Seconds StepTimes::host_with_masks(const StepWork& whole, Seconds device,
                                   bool hides) const noexcept {
  const double number = masks(whole);
  const Seconds advance = number * min(engine_.guided.advance, engine_.guided.mask), none;
  const Seconds filling = number * engine_.guided.mask - advance +
                          host_transfer_time(number * mask_bytes(vocab_), cluster_.accelerator);
  const bool overlaps =
      whole.draft_tokens > 0 ? engine_.overlaps_draft_masks : engine_.overlaps_masks;
  const Seconds fixed = hides ? max(none, host_fixed_ - device) : host_fixed_;
  if (!overlaps) return fixed + advance + filling;
  if (!hides) return fixed + advance + max(none, filling - device);
  if (engine_.guided.update <= none) {
    return max(none, host_fixed_ + advance + filling - device);
  }
  const double sampled = number / engine_.guided.fraction;
  const Seconds taken = sampled * engine_.guided.update + advance;
  const Seconds room = max(none, device - sampled * layout_.dp * host_each_);
  return fixed + max(none, taken - room) + max(none, filling - device);
}

/// A pass of the draft model, as fast as the CPU launches it where no graph does.
Seconds StepTimes::draft_pass(const StepWork& pass) const noexcept {
  return max(draft_model_->device(pass), draft_launch_);
}

/// Passes of the draft behind each other. The CPU prepares them while the served model computes.
/// The first of a draft model also sees what the last step accepted, and the prompts of the step,
/// for whose tokens it keeps keys and values of its own. It runs with the last stage of a pipeline.
Seconds StepTimes::draft_time(const StepWork& stage) const noexcept {
  Seconds time;
  if (stage.draft_tokens <= 0) return time;
  if (!draft_model_) {
    if (stage.sequences <= 0) return time;
    const auto layer = [&](double tokens) { return at(draft_total_, tokens) + at(head_, tokens); };
    if (stage.draft_width == 1) return stage.draft_tokens * layer(stage.sequences);
    return layer(stage.sequences) +
           (stage.draft_tokens - 1) * layer(stage.sequences * stage.draft_width);
  }
  StepWork first = stage;
  first.draft_tokens = first.images = 0;
  first.query_tokens = stage.draft_first;
  time += draft_pass(first);
  if (stage.draft_tokens > 1 && stage.sequences > 0) {
    StepWork later;
    later.sequences = stage.sequences;
    later.context = stage.context;
    later.query_tokens = stage.draft_width;
    time += (stage.draft_tokens - 1) * draft_pass(later);
  }
  return time;
}

StepTime StepTimes::of(const StepWork& whole) const noexcept {
  StepTime time;
  const StepWork work = of_stage(whole);
  const double stages = layout_.batches(), count = tokens(work);
  if (count <= 0) return time;
  const auto cost_at = [](const auto& grid, const Position& p) {
    return TokenCost{}.plus(1 - p.share, grid[p.index]).plus(p.share, grid[p.index + 1]);
  };
  const double by_rank = tokens_by_rank(work);
  const double parts = layout_.two_batch_overlap ? 2 : 1;
  TokenCost cost = TokenCost{}.plus(parts, cost_at(tokens_, position(by_rank / parts)));
  if (by_rank > count) {
    const TokenCost all = TokenCost{}.plus(parts, cost_at(tokens_, position(count / parts)));
    cost.experts = all.experts;
    cost.ep = all.ep;
  }
  if (layout_.two_batch_overlap) {
    const Seconds attention = (1 / stages) * (prefill_attention(whole) + decode_attention(whole));
    cost.ep = overlapped(by_rank, count, attention) - attention - cost.linear - cost.elementwise -
              cost.tp - cost.experts;
  }
  if (layout_.has_expert_pool()) {
    const Seconds attention = (prefill_attention(whole) + decode_attention(whole)) / stages;
    const ExposedExperts left =
        exposed_experts(pool_times(by_rank, count, attention), layout_.micro_batches);
    cost.experts = left.experts / stages;
    cost.ep = left.exchange / stages;
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
  if (work.draft_tokens > 0) time.draft = stages * draft_time(work);
  // The first stage alone has the tower, and the others wait for it.
  time.encoder = stages * encoder(work);
  time.pp = between_stages(by_rank);
  const Seconds causes = time.linear + time.experts + time.elementwise + time.prefill_attention +
                         time.decode_attention + time.head + time.draft + time.tp + time.ep +
                         time.cp + time.encoder + time.pp;
  time.host = host(whole, causes);
  time.total = total(whole, time.prefill_attention + time.decode_attention);
  return time;
}

Seconds StepTimes::total(const StepWork& whole, Seconds attention) const noexcept {
  return total_of(whole, attention);
}

Seconds StepTimes::decode_attention(const StepWork& whole) const noexcept {
  return decode_attention_of(whole);
}

Seconds StepTimes::prefill_attention(const StepWork& whole) const noexcept {
  if (whole.prompt_tokens <= 0) return Seconds{};
  const auto time = [&] {
    return layout_.batches() == 1 ? prefill(whole) : layout_.batches() * prefill(of_stage(whole));
  };
  if (alike_ == nullptr) return time();
  return alike_->prefill.of(
      key_of<4>(whole.prompts, whole.prompt_tokens, whole.longest, whole.prompt_keys), time);
}

}  // namespace scalemodel
