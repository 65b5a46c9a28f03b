// Which layers each pipeline stage holds.
#pragma once

#include <memory>
#include <vector>

#include "scalemodel/model/model.hpp"
#include "scalemodel/schedule/critical_paths.hpp"
#include "scalemodel/schedule/stage_class.hpp"
#include "scalemodel/strategy/schedule.hpp"

namespace scalemodel {

/// Layers go to chunks in order, evenly, a remainder to the middle chunks first; chunk c sits on
/// stage c mod pp or, there and back, on the way back on stage 2 pp - 1 - c. DualPipe holds the
/// layers of stages i and pp - 1 - i. With `ends_as_layers`
/// embedding, final norm and head stand in the row as layers do, and a remainder goes to the first
/// chunks.
struct StageLayout {
  int pp = 1, vpp = 1;
  bool mirrored = false;
  bool pairs = false;   ///< forward and backward passes of its two chunks run under each other
  bool one_way = true;  ///< the head is on another stage than the embedding, in a pipeline
  std::vector<StageClass> classes;
  StageClass first_chunk, last_chunk;          ///< with the embedding and with the LM head
  std::shared_ptr<const CriticalPaths> paths;  ///< none where there is one stage
};

StageLayout make_stage_layout(const Model& model, int pp, int vpp, ChunkPlacement placement,
                              bool ends_as_layers = false);

/// The chunks each stage runs, all of stage 0 first: its virtual stages or, both ways, what it
/// holds in either direction.
std::vector<StageClass> make_chunks(const Model& model, int pp, int vpp, ChunkPlacement placement,
                                    bool ends_as_layers = false);

}  // namespace scalemodel
