// Cells and stages of a point's option groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// Finds what the option groups of one point share. Neighbours share most of it.
class PointTables {
 public:
  PointTables(Tables& tables, const Point& point, const Options& options)
      : tables_(tables), point_(point), options_(options) {}

  /// The first member of `group`, to which all else belongs until the next is asked for.
  const Strategy& find(const OptionGroup& group) {
    const Strategy last = leader_;
    leader_ = joined(point_.degrees, group.leader);
    const bool known = tabulated_.cell != nullptr;
    if (!known || last.sharding != leader_.sharding || last.shard_degree != leader_.shard_degree) {
      degrees_ = resolve_degrees(leader_, tables_.cluster(), tables_.task());
    }
    fresh_ = !known || !Tables::share_cell(last, leader_);
    if (!fresh_) return leader_;
    if (tables_.cells() >= kMaxCells) tables_.clear();
    tabulated_ = tables_.tabulate(leader_, degrees_);
    return leader_;
  }
  /// Strategies of the group follow in `evaluate`.
  void start(SiblingEvaluator& evaluate) {
    if (started_ == &evaluate) {
      evaluate.start_group(cell(), stages());
    } else {
      evaluate.start(tables_, cell(), stages());
    }
    started_ = &evaluate;
  }
  /// The first member of the group that was asked for last.
  const Strategy& leader() const { return leader_; }
  const Tables& tables() const { return tables_; }
  const Point& point() const { return point_; }
  const Options& options() const { return options_; }
  /// Whether its cell is another one than that of the group before.
  bool fresh() const { return fresh_; }
  const Degrees& degrees() const { return degrees_; }
  const Cell& cell() const { return *tabulated_.cell; }
  const StageLayout& stages() const { return *tabulated_.stages; }

 private:
  /// Cells a worker keeps before it starts afresh: bounds its memory to some tens of megabytes.
  static constexpr std::size_t kMaxCells = 20'000;

  Tables& tables_;
  const Point& point_;
  const Options& options_;
  Strategy leader_;
  Degrees degrees_;
  Tabulated tabulated_;
  bool fresh_ = false;
  const SiblingEvaluator* started_ = nullptr;
};

}  // namespace scalemodel
