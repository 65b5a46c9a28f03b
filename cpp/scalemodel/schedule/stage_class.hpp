// What a pipeline stage or one of its chunks holds.
#pragma once

#include <array>
#include <cstddef>

#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// Stages of a pipeline that hold the same layers, and the embedding or the LM head alike.
struct StageClass {
  std::array<int, kMaxLayerKinds> layers{};  ///< of each kind
  bool embedding = false, head = false;
  int first_index = 0, last_index = 0;  ///< the earliest and the latest such stage
  int count = 0;
  int stage_layers = 0;  ///< of a chunk: layers of its whole stage; 0 for a stage

  int total_layers() const {
    int total = 0;
    for (const int n : layers) total += n;
    return total;
  }
  StageClass without_ends() const {
    StageClass inner = *this;
    inner.embedding = inner.head = false;
    return inner;
  }
};

}  // namespace scalemodel
