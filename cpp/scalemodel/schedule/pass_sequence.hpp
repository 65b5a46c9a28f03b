// All passes of a pipeline in one order, with what each waits for and what it hands on.
#pragma once

#include <cstddef>
#include <vector>

#include "scalemodel/schedule/orders.hpp"
#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel {

/// One slot of a stage. Outputs and gradients that travel are numbered.
struct Turn {
  static constexpr int kNone = -1;

  int stage = 0;
  Pass pass = Pass::forward;
  int ahead = kNone, behind = kNone;  ///< classes of the chunks its two parts work on
  int awaited_output = kNone, awaited_gradient = kNone;
  int output = kNone, gradient = kNone;                 ///< what it hands on
  bool output_to_next = true, gradient_to_next = true;  ///< or to the stage before
  /// Its output is the model's, or wanted on the same stage, or its gradient is: nothing is sent.
  bool output_stays = false, gradient_stays = false;
  bool receives = false;       ///< something comes from another stage
  int gather = kNone;          ///< of a chunk's first pass: which of the stage's chunks that is
  bool last_gradient = false;  ///< the chunk's gradients of weights are complete
};

/// An order in which each pass comes after those it waits for: the same at any times.
struct PassSequence {
  PassSequence(PipelineShape pipeline, int micro_batches);

  PipelineShape shape;
  std::vector<StageClass> classes;     ///< of chunks: one of those that hold the same
  std::vector<std::vector<int>> held;  ///< of every stage: its chunks' classes
  /// Those of them that run, first used first.
  std::vector<std::vector<int>> gather_order;
  std::vector<Turn> turns;
  std::size_t travelling = 0;  ///< outputs and gradients

  /// How often a chunk of this class has a part.
  static double count(const StageClass& chunk, std::size_t part) {
    if (part == kEmbeddingPart) return chunk.embedding ? 1 : 0;
    if (part == kHeadPart) return chunk.head ? 1 : 0;
    return chunk.layers[part];
  }
};

}  // namespace scalemodel
