#include "scalemodel/serving/capacity.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace scalemodel {
namespace {

constexpr double kTunedSequences = 4096, kTunedLeast = 64;
constexpr double kTunedTokens = 32768, kTunedTokensLeast = 2048;

double linear_weight_bytes(const ServingKernels& kernels) {
  return kernels.tiled ? kernels.linear_format.weight_bytes : operand_bytes(kernels.math);
}

/// Layers of each kind on the fullest stage.
std::vector<double> stage_layers(const Model& model, int stages) {
  std::vector<double> layers(model.kinds.size());
  for (const std::uint8_t kind : model.layer_kind) ++layers[kind];
  const double stage = std::ceil(static_cast<double>(model.layers()) / stages);
  for (double& count : layers) count *= stage / model.layers();
  return layers;
}

/// Sequences of one step, at most.
double step_limit(const Engine& engine, const Draft& draft) {
  const bool own = draft.any() && engine.max_drafting_sequences > 0;
  return own ? engine.max_drafting_sequences : engine.max_running_sequences;
}

/// The residual stream twice, the widest layer's inputs and outputs, and logits of sampled tokens:
/// of every draft too, which are widened to FP32 before any is accepted (vllm-project/vllm#48037,
/// 2026-07: 4.1 GiB of an 8B model with seven drafts). Tokens and sequences are those of a step of
/// a data-parallel rank.
Bytes activation_bytes(const Model& model, const ServingLayout& layout, const Draft& draft,
                       double tokens, double sequences) {
  double widest = 0;
  for (const LayerKind& kind : model.kinds) {
    const AttentionShape& a = kind.attention;
    const FeedForwardShape& ff = kind.feed_forward;
    const double attention = 2.0 * a.heads * (a.head_dim + a.v_head_dim) / layout.tp;
    const double mixer = 2.0 * kind.recurrence.projected() / layout.tp;
    if (ff.routed() && layout.has_expert_pool()) {
      widest = std::max({widest, attention, mixer});
      continue;
    }
    // A rank's experts receive tokens of all data-parallel ranks.
    const double rows = ff.routed() ? static_cast<double>(ff.experts_per_token) * layout.dp : 1;
    const double split = ff.routed() ? layout.stage_ranks() : layout.tp;
    const double wide =
        rows * (ff.matrices() * (static_cast<double>(ff.width) / split) +
                (ff.routed() ? 2.0 * ff.expert_width(model.hidden) / layout.ep : 0.0));
    widest = std::max({widest, attention, mixer, wide});
  }
  const double sampled = std::min(tokens, sequences * (1 + draft.verified));
  return Bytes{tokens * (2.0 * model.hidden + widest) * kElement +
               sampled * model.vocab * (kElement + kLogitBytes)};
}

/// Tokens of images in the encoder cache, and a batch of images with as many in the tower: vLLM
/// gives both the tokens of a step, or of one image if that has more (vllm/v1/core/
/// encoder_cache_manager.py, compute_mm_encoder_budget).
struct EncoderMemory {
  Bytes cache, activations;
};
EncoderMemory encoder_memory(const Model& model, const ServingLayout& layout, double step_tokens,
                             double image_patches) {
  EncoderMemory memory;
  if (image_patches <= 0) return memory;
  const VisionTower& tower = model.tower();
  const double merged = static_cast<double>(tower.merge) * tower.merge;
  const double tokens = std::max(step_tokens, image_patches / merged);
  memory.cache = Bytes{tokens * model.hidden * kElement};
  const double ranks = splits_tower(tower, layout) ? layout.tp : 1;
  // Ranks that encode images of their own have a share of them, one at least.
  const double shares = layout.encoder_data_parallel ? layout.tp : 1;
  const double patches = std::max(image_patches, tokens * merged / shares);
  double widest = 0;
  for (const Unit& unit : tower.block.units) {
    double columns = 0;
    for (const LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::gemm) columns += op.local_columns(ranks);
    }
    widest = std::max(widest, columns);
  }
  memory.activations = Bytes{patches * (2.0 * tower.hidden + widest) * kElement};
  return memory;
}

double tower_bytes(const Model& model, const ServingLayout& layout) {
  const VisionTower& tower = model.tower();
  const double whole = tower.present() ? tower.parameters() : 0;
  return kElement * (splits_tower(tower, layout) ? whole / layout.tp : whole);
}

double rounded_up(double value, double step) { return step * std::ceil(value / step); }

}  // namespace

CacheBlocks::CacheBlocks(const Model& model, const Engine& engine, const ServingKernels& kernels,
                         const ServingLayout& layout, const Draft& draft, double source_tokens)
    : block_tokens_(engine.block_tokens), ranks_(layout.cp) {
  const double source = std::ceil(source_tokens / (ranks_ * block_tokens_)) * block_tokens_;
  constexpr double kWindowBytes = 2;  // of a convolution's window, in 16 bits
  double token = 0, state = 0;
  const auto add = [&](const Model& of, const ServingKernels& with, const ServingLayout& on,
                       const std::vector<double>& layers, const std::vector<double>& whole) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (const Unit& unit : of.kinds[i].units) {
        for (const LayerOperator& op : unit.operators) {
          if (op.kind == OperatorKind::scan) {
            const double ranks = static_cast<double>(on.tp) * on.cp;
            const RecurrentShape local = op.recurrence.sharded(ranks);  // heads of all tokens
            state += layers[i] *
                     (local.state_values() * kStateBytes + local.window_values() * kWindowBytes);
          }
          if (op.kind != OperatorKind::attention || layers[i] <= 0) continue;
          const AttentionShape& a = op.attention;
          const double bytes = layers[i] * a.cached_values(on.tp) * operand_bytes(with.cache);
          if (op.of_source) {
            state += source * bytes;
            continue;
          }
          layer_shares_.push_back(
              {bytes, static_cast<double>(a.window_where(engine.window_cache))});
          token += bytes;
          token_ += Bytes{whole[i] * a.cached_values(1) * operand_bytes(with.cache)};
        }
      }
    }
  };
  add(model, kernels, layout, stage_layers(model, layout.pp), stage_layers(model, 1));
  if (draft.model) {
    const DraftModel& own = *draft.model;
    const std::vector<double> all = stage_layers(own.model, 1);
    // Ranks that share a prompt hold all of it for the draft, blocks of the rest their part.
    std::vector<double> local = all;
    for (double& count : local) count *= ranks_;
    add(own.model, own.kernels, draft_layout(own, layout), local, all);
  } else if (draft.layer) {
    std::vector<double> one(model.kinds.size());
    one[model.mtp_kind] = 1;
    add(model, kernels, layout, one, one);
  }
  if (token > 0) {
    for (LayerShare& group : layer_shares_) group.share /= token;
    block_ = Bytes{token * block_tokens_};
    state_ = state / block_.base();
  } else {
    // Nothing grows with the tokens: a sequence holds one block, its state, or a byte without any.
    layer_shares_.clear();
    block_ = Bytes{std::max(state, 1.0)};
    state_ = 1;
  }
}

double CacheBlocks::of(double tokens) const noexcept {
  double blocks = state_;
  for (const LayerShare& layers : layer_shares_) {
    const double kept = layers.window > 0 ? std::min(tokens, layers.window) : tokens;
    blocks += layers.share * std::ceil(kept / (ranks_ * block_tokens_));
  }
  return blocks;
}

double CacheBlocks::mean(double tokens) const noexcept {
  double blocks = state_;
  for (const LayerShare& layers : layer_shares_) {
    const double kept = layers.window > 0 ? std::min(tokens, layers.window) : tokens;
    blocks += layers.share * (kept / (ranks_ * block_tokens_) + 0.5);
  }
  return blocks;
}

namespace {

/// Copies of a token that its experts receive, and what they compute of them, on an accelerator of
/// a pool of their own: in both directions for every micro-batch, computed for one of them.
Bytes expert_activation_bytes(const Model& model, const ServingLayout& layout, double tokens) {
  double widest = 0;
  for (const LayerKind& kind : model.kinds) {
    const FeedForwardShape& ff = kind.feed_forward;
    if (!ff.routed()) continue;
    const double split = static_cast<double>(layout.expert_ranks) / layout.ep;
    const double width = ff.expert_width(model.hidden);
    const double rows = static_cast<double>(ff.experts_per_token) / layout.ep;
    const double inner = ff.matrices() * (static_cast<double>(ff.width) / split);
    const double routed = rows * (2.0 * width + (inner + width) / layout.micro_batches);
    const double shared =
        (2.0 * width + ff.matrices() * static_cast<double>(ff.shared_width)) / layout.expert_ranks;
    widest = std::max(widest, routed + (ff.shared_width > 0 ? shared : 0.0));
  }
  return Bytes{tokens * widest * kElement};
}

/// Bytes of an operator's parameters on one rank. Norms and routers are in 16 bits.
double operator_bytes(const Unit& unit, const LayerOperator& op, const ServingKernels& kernels,
                      const ServingLayout& layout) {
  if (unit.on_copies(op)) {
    const double copies = unit.experts + layout.redundant_experts;
    return kernels.experts.weight_bytes * copies * op.parameters() / layout.stage_ranks();
  }
  const bool narrow = op.kind == OperatorKind::gemm && !op.routes;
  return (narrow ? linear_weight_bytes(kernels) : kElement) * op.local_parameters(layout.tp);
}

}  // namespace

PoolParameters pool_parameters(const Model& model, double redundant, bool draft_layer) {
  std::vector<double> layers = stage_layers(model, 1);
  if (draft_layer) layers[model.mtp_kind] += 1;
  PoolParameters all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerKind& kind = model.kinds[i];
    for (const Unit& unit : kind.units) {
      for (const LayerOperator& op : unit.operators) {
        if (!computed_by_pool(kind, unit, op)) continue;
        if (!unit.routed()) {
          all.shared += layers[i] * op.parameters();
          continue;
        }
        all.routed += layers[i] * (unit.experts + redundant) * op.parameters();
        all.chosen += layers[i] * unit.experts_per_token * op.parameters();
      }
    }
  }
  return all;
}

Bytes expert_weight_bytes(const Model& model, const ServingKernels& kernels,
                          const ServingLayout& layout, bool draft_layer) {
  const PoolParameters all = pool_parameters(model, layout.redundant_experts, draft_layer);
  return Bytes{kernels.experts.weight_bytes * all.routed / layout.expert_mesh() +
               linear_weight_bytes(kernels) * all.shared};
}

Bytes weight_bytes(const Model& model, const ServingKernels& kernels, const ServingLayout& layout) {
  const std::vector<double> layers = stage_layers(model, layout.pp);
  const double tp = layout.tp;
  double bytes = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const Unit& unit : model.kinds[i].units) {
      for (const LayerOperator& op : unit.operators) {
        if (layout.has_expert_pool() && computed_by_pool(model.kinds[i], unit, op)) continue;
        bytes += layers[i] * operator_bytes(unit, op, kernels, layout);
      }
    }
  }
  const double table = model.embedding_parameters / tp;
  const double head = (model.tied_embeddings ? model.embedding_parameters : 0) / tp +
                      model.head_parameters / tp + model.final_norm_parameters;
  // One stage holds embedding and LM head, and tied ones once.
  const double ends = layout.pp > 1
                          ? std::max(table, head)
                          : table + model.head_parameters / tp + model.final_norm_parameters;
  return Bytes{bytes + kElement * ends + tower_bytes(model, layout)};
}

Bytes encoder_instance_bytes(const Model& model, const Engine& engine, const ServingLayout& layout,
                             double image_patches, double images) {
  const VisionTower& tower = model.tower();
  const double merged = 1.0 * tower.merge * tower.merge;
  const double by_rank = std::ceil(images / layout.dp);
  const EncoderMemory batch =
      encoder_memory(model, layout, by_rank * image_patches / merged, image_patches);
  return Bytes{tower_bytes(model, layout)} + batch.cache + batch.activations + engine.reserve;
}

Bytes draft_weight_bytes(const Model& model, const ServingKernels& kernels,
                         const ServingLayout& layout, const Draft& draft) {
  if (draft.model) {
    const DraftModel& own = *draft.model;
    return weight_bytes(own.model, own.kernels, draft_layout(own, layout));
  }
  if (!draft.layer) return Bytes{};
  constexpr double kInputs = 2;  // a hidden state and the embedding of the token behind it
  const double hidden = model.hidden;
  double bytes = kElement * kInputs * hidden * hidden;
  const LayerKind& kind = model.kinds[model.mtp_kind];
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (layout.has_expert_pool() && computed_by_pool(kind, unit, op)) continue;
      bytes += operator_bytes(unit, op, kernels, layout);
    }
  }
  return Bytes{bytes};
}

namespace {

/// Sequences that run while others wait for a start: one, and the next ones with the probability
/// that a prompt fits beside sequences at any point of their answers.
double admitted(const CacheBlocks& blocks, const RequestLengths& lengths, double all, double most) {
  constexpr double kDeviations = 4, kMuchRoom = 256, kEven = 1e-9;
  const double held = blocks.mean(lengths.input + 0.5 * lengths.output);
  const double growth = blocks.mean(lengths.input + lengths.output) - blocks.mean(lengths.input);
  // Of one age, uniform; a window that is full grows no more.
  const double spread = std::max(growth / std::sqrt(12.0), kEven * held);
  const double room = all - blocks.of(lengths.input + 1);
  if (room > kMuchRoom * held) return std::min(most, room / held + 0.5);
  const double around = kDeviations * spread * std::sqrt(1 + room / held) / held;
  double beside = std::max(1.0, std::floor(room / held - around)), count = beside;
  for (; count < most; ++beside) {
    const double deviations = (room - beside * held) / (spread * std::sqrt(beside));
    if (deviations < -kDeviations) break;
    count += 0.5 * std::erfc(-deviations / std::numbers::sqrt2);
  }
  return std::min(most, count);
}

}  // namespace

CacheCapacity cache_capacity(const Model& model, const Cluster& cluster, const Engine& engine,
                             const ServingKernels& kernels, const ServingLayout& layout,
                             const RequestLengths& lengths, const Draft& draft,
                             const ExpertPool* pool) {
  const double source = model.encoder.present() ? lengths.image_patches : 0;
  const CacheBlocks blocks(model, engine, kernels, layout, draft, source);
  CacheCapacity capacity;
  capacity.block = blocks.block();
  capacity.weights = weight_bytes(model, kernels, layout) +
                     engine.adapters.allocated() * adapter_bytes(model, engine.adapters, layout) +
                     draft_weight_bytes(model, kernels, layout, draft);
  capacity.reserve = engine.reserve;
  const double limited = engine.limits_per_rank ? layout.dp : 1;
  capacity.max_batched_tokens = limited * engine.max_batched_tokens;
  capacity.step_sequences = limited * step_limit(engine, draft);
  const double own_sequences = capacity.step_sequences / layout.dp;
  const Bytes memory = cluster.accelerator.memory_capacity;
  const double per_sequence = blocks.of(lengths.input + lengths.output);
  const Cluster& experts_on = pool != nullptr ? pool->cluster : cluster;
  const auto experts_fit = [&](CacheCapacity& held, double tokens) {
    held.expert_weights =
        expert_weight_bytes(model, pool != nullptr ? pool->kernels : kernels, layout, draft.layer);
    held.expert_activations = expert_activation_bytes(model, layout, tokens);
    return held.expert_weights + held.expert_activations + held.reserve <=
           engine.memory_fraction * experts_on.accelerator.memory_capacity;
  };
  const auto fill = [&](double tokens) {
    // Halves of a step are computed one after the other, and so are micro-batches.
    const double parts = layout.two_batch_overlap ? 2 : layout.micro_batches;
    const double at_once = tokens / layout.dp / parts;
    capacity.activations = activation_bytes(model, layout, draft, at_once, own_sequences);
    if (lengths.image_patches > 0) {
      const EncoderMemory images =
          encoder_memory(model, layout, tokens / layout.dp, lengths.image_patches);
      capacity.activations = images.cache + max(capacity.activations, images.activations);
    }
    const Bytes taken = capacity.weights + capacity.activations + capacity.reserve;
    const Bytes room = engine.fraction_of_free ? engine.memory_fraction * (memory - taken)
                                               : engine.memory_fraction * memory - taken;
    capacity.blocks = std::max(0.0, std::floor(room / capacity.block));
    if (layout.has_expert_pool() && !experts_fit(capacity, tokens)) capacity.blocks = 0;
    capacity.cached_sequences = layout.dp * std::floor(capacity.blocks / per_sequence + 1e-9);
  };
  fill(engine.tunes_limits ? 0 : capacity.max_batched_tokens);
  if (engine.tunes_limits) {
    // The tool knows memory and lengths before activations, and is optimistic on purpose.
    const double cached = capacity.cached_sequences;
    const double raw = std::min(cached, kTunedSequences) / layout.pp;
    const double grain = raw < 256 ? 32 : raw < 1024 ? 128 : 256;
    const double instances = limited * layout.pp;
    capacity.step_sequences = instances * std::max(kTunedLeast, rounded_up(raw, grain));
    const double tokens = std::min(raw * (1 + lengths.input / lengths.output), kTunedTokens);
    const double steps = tokens < 4096 ? 256 : tokens < 8192 ? 512 : 1024;
    capacity.max_batched_tokens =
        instances * std::max(kTunedTokensLeast, rounded_up(tokens, steps));
    fill(capacity.max_batched_tokens);
  }
  capacity.cache = capacity.blocks * capacity.block;
  capacity.max_running_sequences = std::min(capacity.step_sequences, capacity.cached_sequences);
  capacity.max_admitted = capacity.max_running_sequences;
  if (engine.admission == Admission::prompt && capacity.max_running_sequences > 0) {
    const double all = layout.dp * capacity.blocks;
    const double most = admitted(blocks, lengths, all, capacity.step_sequences);
    capacity.max_admitted = std::max(capacity.max_running_sequences, most);
  }
  return capacity;
}

}  // namespace scalemodel
