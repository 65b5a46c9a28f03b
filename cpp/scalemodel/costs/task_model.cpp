#include "scalemodel/costs/task_model.hpp"

#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

[[noreturn]] void malformed_task(const char* field, int value, const std::string& legal) {
  throw MalformedQuestion(std::string(field) + "=" + std::to_string(value) + ": " + legal);
}

/// The encoder of a model as the tower that reads the source of a sequence, and the layers as they
/// attend to it. Throws MalformedQuestion for a source that it cannot read.
Model with_source(Model model, const Task& task) {
  const int positions = model.encoder.image_patches;
  // Tables that are made anew of the model and the task of others count the source as an image.
  const bool apart = model.reads_images_apart();
  const int read = apart || model.vision.present() ? 1 : 0;
  if (task.images > read) {
    malformed_task("images", task.images,
                   apart ? "must be at most 1: its layers attend to one image of every sequence"
                         : "must be 0: the model reads sources");
  }
  if (positions > 0 && task.source_tokens > 0 && task.source_tokens != positions) {
    malformed_task("source_tokens", task.source_tokens,
                   "must be " + std::to_string(positions) + ", as every source of the model has");
  }
  const int usual = positions > 0 ? positions : task.sequence;
  const int source = task.source_tokens > 0 ? task.source_tokens : usual;
  model.encoder.image_patches = source;
  model.vision = model.encoder;
  for (LayerKind& kind : model.kinds) {
    for (Unit& unit : kind.units) {
      bool reads = false;
      for (LayerOperator& op : unit.operators) {
        if (!op.of_source) continue;
        reads = true;
        op.rows = 1.0 * source / task.sequence;
        if (op.kind == OperatorKind::attention) op.other_keys = source;
      }
      if (!reads) continue;
      unit.saved_cut = unit.saved_whole = unit.saved_repeated = unit.saved_token = 0;
      count_saved(unit);
    }
  }
  return model;
}

}  // namespace

Model for_task(Model model, const Task& task) {
  if (model.encoder.present()) return with_source(std::move(model), task);
  if (model.reads_source()) throw MalformedQuestion(kNoSource);
  if (task.source_tokens > 0) {
    malformed_task("source_tokens", task.source_tokens, "must be 0: the model has no encoder");
  }
  if (task.images == 0) {
    model.vision = VisionTower{};
    return model;
  }
  const VisionTower& tower = model.vision;
  if (!tower.present())
    malformed_task("images", task.images, "must be 0: the model has no vision tower");
  if (tower.image_patches == 0) {
    const char* legal = "must be the pixels of an image, which the model reads in its own size";
    if (task.image_height == 0) malformed_task("image_height", 0, legal);
    if (task.image_width == 0) malformed_task("image_width", 0, legal);
  }
  const double tokens = tower.tokens(task.image_height, task.image_width);
  if (task.images * tokens > task.sequence) {
    malformed_task("images", task.images,
                   "must be at most " + std::to_string(static_cast<int>(task.sequence / tokens)) +
                       " of " + std::to_string(static_cast<int>(tokens)) +
                       " tokens each in a sequence of " + std::to_string(task.sequence));
  }
  return model;
}

Task seen_by(const Model& model, Task task) {
  if (model.encoder.present()) task.images = 1;
  return task;
}

Packing packing_for(Packing packing, const Task& task) {
  for (const int length : packing.lengths) {
    if (length >= 1 && length <= task.sequence) continue;
    throw MalformedQuestion(
        "lengths: a document of " + std::to_string(length) +
        " tokens; each must have from 1 to sequence=" + std::to_string(task.sequence));
  }
  if (packing.packed() && task.source_tokens > 0) {
    throw MalformedQuestion("lengths: source_tokens=" + std::to_string(task.source_tokens) +
                            " are of a whole sequence; give either");
  }
  if (packing.packed() && task.images > 0) {
    throw MalformedQuestion("lengths: images=" + std::to_string(task.images) +
                            " are of a whole sequence; give either");
  }
  return packing;
}

}  // namespace scalemodel
