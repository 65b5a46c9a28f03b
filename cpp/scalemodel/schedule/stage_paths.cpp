#include "scalemodel/schedule/stage_paths.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/pass_sequence.hpp"

namespace scalemodel::detail {
namespace {

void add_pass(PipelinePath& path, const StageClass& chunk, PassTime pass) {
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    path.parts[part][pass] += PassSequence::count(chunk, part);
  }
}

}  // namespace

StagePaths::StagePaths(const PipelineShape& shape) {
  // Where passes run in pairs, some of them run alone: which do is not known without a run.
  const ScheduleTraits& traits = traits_of(shape.schedule);
  if (traits.pairs) return;
  const std::size_t per_stage = shape.chunks.size() / at(shape.pp);
  PipelinePath way;
  for (int s = 0; s < shape.pp; ++s) {
    const std::span chunks = std::span(shape.chunks).subspan(at(s) * per_stage, per_stage);
    PipelinePath one;
    for (const StageClass& chunk : chunks) {
      for (const PassTime pass : {kForward, kInputGradient, kWeightGradient}) {
        add_pass(one, chunk, pass);
      }
    }
    // Where layers go there and back, neither the first nor the last stage sends what it turns.
    const double stay = traits.v_shape ? 2 : 1;
    const double sends =
        2.0 * static_cast<double>(per_stage) - (s == 0 ? stay : 0) - (s + 1 == shape.pp ? stay : 0);
    one.hops = shape.transfers_block ? (shape.transfers_serial ? 2 : 1) * sends : 0;
    add(traits.flows_on ? PipelinePath{} : way, one);
    add_pass(way, chunks.front(), kForward);
    way.hops += 1;
    // Deferred gradients of weights end after the way back.
    if (traits.splits_backward) continue;
    // What blocks its sender counts as a hop of that stage.
    add_pass(way, chunks.front(), kInputGradient);
    add_pass(way, chunks.front(), kWeightGradient);
    way.hops += s == 0 && shape.transfers_block ? 0 : 1;
  }
}

std::vector<PipelinePath> StagePaths::of(double micro_batches) const {
  std::vector<PipelinePath> paths = to;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    paths[i].hops += micro_batches * on[i].hops;
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      for (std::size_t time = 0; time < kPassTimes; ++time) {
        paths[i].parts[part][time] += micro_batches * on[i].parts[part][time];
      }
    }
  }
  return paths;
}

/// Of stages alike the last one has the longest way.
void StagePaths::add(const PipelinePath& way, const PipelinePath& one) {
  const auto known = std::ranges::find(on, one);
  if (known == on.end()) {
    on.push_back(one);
    to.push_back(way);
  } else {
    to[at(known - on.begin())] = way;
  }
}

}  // namespace scalemodel::detail
