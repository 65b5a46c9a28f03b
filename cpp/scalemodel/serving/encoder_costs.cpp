// What images of prompts cost: the vision tower and its projector, in the step that first needs
// their tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "scalemodel/base/error.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/ops/mixer_work.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"
#include "scalemodel/serving/step_totals.hpp"

namespace scalemodel {
namespace {

std::string text_of(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

}  // namespace

std::string_view why_no_answers(const Model& model) noexcept {
  if (model.generates()) return {};
  if (model.vocab < 2) {
    return "ends in one score in place of words, so that it generates nothing; must have an LM "
           "head to serve answers";
  }
  return "its tokens see those behind them, so that it generates nothing; `estimate` takes it with "
         "a task `BatchInference`; must be a decoder to serve answers";
}

double request_patches(const Model& model, const RequestMix& mix) {
  const auto malformed = [](const char* field, double value, const std::string& legal) {
    throw MalformedQuestion(std::string(field) + "=" + text_of(value) + ": " + legal);
  };
  if (const std::string_view why = why_no_answers(model); !why.empty()) {
    throw MalformedQuestion("model: " + std::string(why));
  }
  const double positions = model.encoder.image_patches;
  if (model.encoder.present()) {
    if (model.reads_images_apart()) {
      if (mix.images == 1 && mix.source == 0) return positions;
      if (mix.images > 1) {
        malformed("images", mix.images, "must be at most 1: its layers attend to one image each");
      }
    } else if (mix.images > 0) {
      malformed("images", mix.images, "must be 0: the model reads sources");
    }
    if (positions > 0 && mix.source != positions) {
      malformed("source_tokens", mix.source,
                "must be " + text_of(positions) + ", as every source of the model has");
    }
    if (mix.source <= 0) {
      malformed("source_tokens", mix.source, "must be those of a source: the model has an encoder");
    }
    return mix.source;
  }
  if (model.reads_source()) throw MalformedQuestion(kNoSource);
  if (mix.source > 0) {
    malformed("source_tokens", mix.source, "must be 0: the model has no encoder");
  }
  if (mix.images <= 0) return 0;
  const VisionTower& tower = model.vision;
  if (!tower.present()) malformed("images", mix.images, "must be 0: the model has no vision tower");
  if (tower.image_patches == 0) {
    const char* legal = "must be the pixels of an image, which the model reads in its own size";
    if (mix.image_height == 0) malformed("image_height", 0, legal);
    if (mix.image_width == 0) malformed("image_width", 0, legal);
  }
  const double tokens = tower.tokens(mix.image_height, mix.image_width);
  if (mix.images * tokens > mix.input) {
    malformed("images", mix.images,
              "of " + text_of(tokens) + " tokens each must fit into input_tokens=" +
                  text_of(mix.input) + ", which counts theirs too");
  }
  return mix.prefilled ? 0 : tower.patches(mix.image_height, mix.image_width);
}

/// Attention of a layer of the tower: every patch attends to all of its image, or of its window.
Seconds StepTimes::tower_attention(AttentionWork work, double images, double patches) const {
  if (kernels_.encodes) {
    const CallSizes call{images, patches, patches};
    return work_kernel_time(encoder_work(call, work.heads, work.head_dim), kernels_.encoder,
                            cluster_.accelerator.l2) /
           engine_.kernel_efficiency;
  }
  AttentionCall call;
  call.work = work;
  call.work.batch = images;
  call.work.queries = call.work.keys = patches;
  call.work.causal = false;
  return prefill_time(call, kernels_.prefill, cluster_.accelerator) / engine_.kernel_efficiency;
}

/// A layer of the tower on images, or windows of them, of equal size, without their
/// communication. Releases of quantised models keep their towers in 16 bits.
Seconds StepTimes::tower_block(const VisionTower& tower, double images, double patches,
                               int ranks) const {
  const double rows = images * patches;
  TokenCost cost;
  Seconds time;
  for (const Unit& unit : tower.block.units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::attention) {
        time += tower_attention(op.attention_work(ranks), images, patches);
      } else if (op.kind == OperatorKind::gemm) {
        time += linear(Shared::kStorage, rows, op.local_columns(ranks), op.local_depth(ranks),
                       op.copies, false);
      } else {
        add_elementwise(cost, op, rows, ranks, kElement);
      }
    }
    if (ranks > 1) time += all_reduce(Bytes{rows * tower.hidden * kElement}, ranks);
  }
  return time + cost.elementwise;
}

/// A batch of images on the tensor ranks of one data-parallel rank: sharded over all of them, or
/// distributed, with a gather of what becomes of them (vLLM, mm_encoder_tp_mode=data:
/// run_dp_sharded_vision_model in vllm/model_executor/models/vision.py).
Seconds StepTimes::encoder_time(const VisionTower& tower, double patches, double images) const {
  const int ranks = splits_tower(tower, layout_) ? layout_.tp : 1;
  const double shares = layout_.encoder_data_parallel ? layout_.tp : 1;
  const double own = std::ceil(images / shares), merged = 1.0 * tower.merge * tower.merge;
  Seconds time = (tower.layers - tower.window_layers) * tower_block(tower, own, patches, ranks);
  if (tower.window_layers > 0) {
    const double windows = std::ceil(patches / tower.window);
    time += tower.window_layers * tower_block(tower, own * windows, patches / windows, ranks);
  }
  for (const VisionProduct& product : tower.products) {
    const double rows = own * product.rows * (product.of_patches ? patches : patches / merged);
    const double columns = product.of_patches ? product.columns : product.columns / ranks;
    time += product.copies * linear(Shared::kStorage, rows, columns, product.depth, 1, false);
  }
  if (shares > 1) {
    const Bytes encodings{shares * own * patches / merged * hidden_ * kElement};
    time += collective_time(Collective::all_gather, encodings, group_shape(cluster_, layout_.tp, 1),
                            cluster_);
  }
  return time;
}

/// Keys and values of sources in every layer of the fullest stage, once for all tokens that will
/// attend to them.
Seconds StepTimes::source_keys_time(const Model& model, double tokens, double sources) const {
  const double stage = std::ceil(1.0 * model.layers() / layout_.pp) / model.layers();
  Seconds time;
  for (std::size_t kind = 0; kind < model.kinds.size(); ++kind) {
    const auto layers = static_cast<double>(std::ranges::count(model.layer_kind, kind));
    for (const Unit& unit : model.kinds[kind].units) {
      for (const LayerOperator& op : unit.operators) {
        if (op.kind != OperatorKind::gemm || !op.of_source) continue;
        time += layers * linear(Shared::kLinear, sources * tokens, op.local_columns(layout_.tp),
                                op.local_depth(layout_.tp), op.copies, false);
      }
    }
  }
  return stage * time;
}

/// Images of the fullest data-parallel rank: each is encoded where its prompt is. Less than one
/// is the share of steps that encode it.
Seconds StepTimes::encoder(const StepWork& stage) const noexcept {
  if (stage.images <= 0) return Seconds{};
  const double by_rank =
      stage.images * std::max(1.0 / layout_.dp, 1 / std::max(1.0, stage.prompts));
  return by_rank < 1 ? by_rank * encoder_[0] : at(encoder_, by_rank);
}

Seconds StepTimes::encode(double images) const noexcept {
  StepWork work;
  work.images = work.prompts = images;
  const Seconds device = encoder(work);
  return device + host(work, device);
}

Bytes encoding_bytes(const Model& model, double patches) noexcept {
  const VisionTower& tower = model.tower();
  const double merged = 1.0 * tower.merge * tower.merge;
  return Bytes{patches / merged * model.hidden * kElement};
}

Seconds encoding_time(const Model& model, const Cluster& cluster, double patches) {
  const GroupShape apart{2, 1, 2};
  return p2p_time(encoding_bytes(model, patches), apart, cluster);
}

}  // namespace scalemodel
