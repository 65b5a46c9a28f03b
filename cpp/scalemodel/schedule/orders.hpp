// The passes each pipeline stage runs, in order, under every schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// A backward pass makes both gradients; schedules without bubbles split it. A pair runs the
/// forward pass of one micro-batch and the backward pass of another under each other.
enum class Pass : std::uint8_t { forward, backward, input_gradient, weight_gradient, pair };

template <>
struct EnumNames<Pass> {
  static constexpr std::string_view what = "pass";
  static constexpr std::array<std::string_view, 5> names{"forward", "backward", "input_gradient",
                                                         "weight_gradient", "pair"};
};

constexpr bool runs_forward(Pass pass) { return pass == Pass::forward || pass == Pass::pair; }

/// The gradient of the pass's input leaves for the stage before.
constexpr bool makes_input_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::input_gradient || pass == Pass::pair;
}

/// The gradients of the chunk's weights are complete for the micro-batch.
constexpr bool makes_weight_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::weight_gradient || pass == Pass::pair;
}

/// A micro-batch in a chunk of a stage: one of its virtual stages or, in DualPipe, one of its two
/// directions. Of layers that go there and back, chunk 0 is on the way there.
struct ChunkBatch {
  int chunk = 0;
  int micro_batch = 0;

  bool operator==(const ChunkBatch&) const = default;
};

struct PassSlot {
  Pass pass = Pass::forward;
  ChunkBatch at;        ///< of a pair: its forward pass
  ChunkBatch backward;  ///< of a pair: its backward pass

  /// What the backward part of the slot works on.
  ChunkBatch backward_at() const { return pass == Pass::pair ? backward : at; }
};

using StageOrder = std::vector<PassSlot>;

/// Passes of pipeline stage `stage`. Every micro-batch passes every chunk once each way.
///
/// GPipe (arXiv 1811.06965), 1F1B (arXiv 2104.04473), interleaved 1F1B with micro-batches in groups
/// of pp and Megatron's warm-up of 2 (pp - stage - 1) + (vpp - 1) pp passes, zero-bubble H1
/// (arXiv 2401.10241: stage i puts i weight gradients off, so that no stage keeps more than pp
/// micro-batches), zero-bubble H2 (the same paper: twice as many forward passes ahead and weight
/// gradients put off, 2 pp - 1 micro-batches; its automatic form is called ZB-2p), ZB-V (the same
/// paper, section 6, in the order of PyTorch's ScheduleZBVZeroBubble), DualPipe (arXiv 2412.19437:
/// half of the micro-batches enter at each end), DualPipeV (its other half of the stages folded
/// back: deepseek-ai/DualPipe, PyTorch's ScheduleDualPipeV).
/// Preconditions: the strategy is legal, micro_batches >= 1.
StageOrder stage_order(Schedule schedule, int pp, int vpp, int stage, int micro_batches);

/// Where the output of a chunk goes, or where its input comes from.
struct ChunkNeighbour {
  int stage = 0, chunk = 0;
  bool next = true;  ///< reached over the channel to the next stage
  bool exists = false;
  bool stays = false;  ///< on the same stage: nothing is sent
};

/// The chunk after `chunk` of stage `stage` in the direction of the forward pass, of `chunks` that
/// every stage has.
ChunkNeighbour chunk_after(Schedule schedule, int pp, int chunks, int stage, int chunk);
ChunkNeighbour chunk_before(Schedule schedule, int pp, int stage, int chunk);

}  // namespace scalemodel
