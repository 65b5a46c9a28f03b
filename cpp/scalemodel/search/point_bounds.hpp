// Bounds of the groups of a point, and the place of a group in a search by bounds.
#pragma once

#include <cmath>
#include <cstdint>
#include <tuple>

#include "scalemodel/search/search_worker.hpp"

namespace scalemodel {

/// A group of rows with its bound, which is that of its twins too, in the queue of a
/// branch-and-bound search.
struct BoundedGroup {
  double bound = 0;
  std::uint32_t point = 0, group = 0;

  bool operator<(const BoundedGroup& other) const {
    return std::tie(bound, point, group) < std::tie(other.bound, other.point, other.group);
  }
  std::uint64_t place() const { return std::uint64_t{point} << 32 | group; }
};

/// Of strategies so bounded no less; kInfinity where none of them can be an answer at all.
inline double score_of(const SearchOptions& options, const Estimate& bound) {
  if (!options.too_big && bound.verdict == Reason::out_of_memory) return kInfinity;
  for (const Constraint& constraint : options.constraints) {
    if (constraint.bounded() && !constraint.holds(bound)) return kInfinity;
  }
  return options.objective.score(bound);
}

/// Bounds of the scores of a point's groups; kInfinity where no member can be an answer at all.
class PointBounds {
 public:
  PointBounds(SearchWorker& worker, const Point& point, const Options& all,
              const SearchOptions& options)
      : tables_(worker.tables(), point, all),
        bounds_(worker.workspace->bounds),
        options_(options) {}

  /// No more than `rough` of any group of a run, as if none of them recomputed anything. Of runs
  /// that recompute in part nothing is said.
  double rough(const PlacedRun& run) {
    if (run.recomputes_in_part) return -kInfinity;
    Strategy leader = set_cell(tables_.options().groups[run.begin]);
    leader.recompute = Recompute::none;
    bounds_.set_group(leader, run.freedom);
    return rough();
  }
  /// From the busiest stage and the parameters it holds.
  double rough(const OptionGroup& group) {
    set(group);
    return rough();
  }
  double close(const OptionGroup& group, PipelineBound pipeline) {
    set(group);
    return score(bounds_.close(pipeline, asked_of(options_)));
  }
  PointTables& tables() { return tables_; }

 private:
  /// The first member of the group, whose cell is set.
  const Strategy& set_cell(const OptionGroup& group) {
    const Strategy& leader = tables_.find(group);
    if (!started_) bounds_.start(tables_.tables(), leader, tables_.degrees());
    started_ = true;
    if (tables_.fresh()) bounds_.set_cell(leader, tables_.cell(), tables_.stages());
    return leader;
  }
  void set(const OptionGroup& group) {
    bounds_.set_group(set_cell(group), tables_.options().freedom(group));
  }
  double rough() {
    const Estimate& bound = bounds_.rough();
    // Who cannot tell how long a step takes must look closer.
    return std::isfinite(bound.step_time.base()) ? score(bound) : -kInfinity;
  }
  double score(const Estimate& bound) const { return score_of(options_, bound); }

  PointTables tables_;
  GroupBounds& bounds_;
  const SearchOptions& options_;
  bool started_ = false;
};

}  // namespace scalemodel
