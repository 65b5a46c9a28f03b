// Which layers each pipeline stage holds.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "scalemodel/model/model.hpp"
#include "scalemodel/strategy/interleaving.hpp"

namespace scalemodel {

inline constexpr std::size_t kMaxLayerKinds = 4;

/// Stages of a pipeline that hold the same layers and the same ends.
struct StageClass {
  std::array<int, kMaxLayerKinds> layers{};  ///< of each kind
  bool embedding = false, head = false;
  int first_index = 0;  ///< the earliest such stage: the one with most micro-batches in flight
  int count = 0;
  int stage_layers = 0;  ///< of a chunk: layers of its whole stage; 0 for a stage

  int total_layers() const {
    int total = 0;
    for (const int n : layers) total += n;
    return total;
  }
};

/// Layers go to chunks in order, evenly, a remainder to the middle chunks first; chunk c sits on
/// stage c mod pp. DualPipe holds the layers of stages i and pp - 1 - i. With `ends_as_layers`
/// embedding, final norm and head stand in the row as layers do, and a remainder goes to the first
/// chunks.
struct StageLayout {
  int pp = 1, vpp = 1;
  bool mirrored = false;
  std::vector<StageClass> classes;
  InterleavedPace pace;
};

StageLayout make_stage_layout(const Model& model, int pp, int vpp, bool mirrored,
                              bool ends_as_layers = false);

/// The chunks each stage runs, all of stage 0 first: its virtual stages or, mirrored, what it holds
/// in either direction.
std::vector<StageClass> make_chunks(const Model& model, int pp, int vpp, bool mirrored,
                                    bool ends_as_layers = false);

}  // namespace scalemodel
