// Which layers each pipeline stage holds.
#pragma once

#include <memory>
#include <vector>

#include "scalemodel/model/model.hpp"
#include "scalemodel/schedule/critical_paths.hpp"
#include "scalemodel/schedule/stage_class.hpp"

namespace scalemodel {

/// Layers go to chunks in order, evenly, a remainder to the middle chunks first; chunk c sits on
/// stage c mod pp. DualPipe holds the layers of stages i and pp - 1 - i. With `ends_as_layers`
/// embedding, final norm and head stand in the row as layers do, and a remainder goes to the first
/// chunks.
struct StageLayout {
  int pp = 1, vpp = 1;
  bool mirrored = false;
  std::vector<StageClass> classes;
  StageClass first_chunk, last_chunk;          ///< with the embedding and with the LM head
  std::shared_ptr<const CriticalPaths> paths;  ///< none where there is one stage
};

StageLayout make_stage_layout(const Model& model, int pp, int vpp, bool mirrored,
                              bool ends_as_layers = false);

/// The chunks each stage runs, all of stage 0 first: its virtual stages or, mirrored, what it holds
/// in either direction.
std::vector<StageClass> make_chunks(const Model& model, int pp, int vpp, bool mirrored,
                                    bool ends_as_layers = false);

}  // namespace scalemodel
