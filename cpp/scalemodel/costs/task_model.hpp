// A model and a task as they meet: which towers are loaded, what layers attend to, packs.
#pragma once

#include "scalemodel/model/model.hpp"
#include "scalemodel/strategy/packing.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// The model as the task uses it: a tower without images is not loaded. Throws MalformedQuestion
/// for images, or a source, that it cannot read.
Model for_task(Model model, const Task& task);

/// A task whose sequences have a source each, which the encoder reads as a tower does an image.
Task seen_by(const Model& model, Task task);

/// Documents that fit into a sequence. Throws MalformedQuestion for others.
Packing packing_for(Packing packing, const Task& task);

}  // namespace scalemodel
