#include "scalemodel/search/placed_runs.hpp"

#include <algorithm>
#include <unordered_map>

namespace scalemodel {
namespace {

/// Equal for strategies that differ in their placement alone.
std::uint64_t mixed_fields(const Strategy& strategy) {
  Strategy s = strategy;
  s.placement = Strategy{}.placement;
  std::uint64_t mixed = 0;
  for_each_field<Strategy>([&](const auto& field) {
    mixed = (mixed ^ static_cast<std::uint64_t>(s.*(field.member))) * 0x100000001b3ULL;
  });
  return mixed;
}

/// Whether two runs differ in nothing but their placement.
bool alike(const Options& options, const PlacedRun& a, const PlacedRun& b) {
  if (a.end - a.begin != b.end - b.begin) return false;
  for (std::uint32_t i = 0; i < a.end - a.begin; ++i) {
    const OptionGroup& left = options.groups[a.begin + i];
    const OptionGroup& right = options.groups[b.begin + i];
    Strategy moved = left.leader;
    moved.placement = right.leader.placement;
    if (left.members != right.members || moved != right.leader) return false;
  }
  return true;
}

}  // namespace

void find_runs(Options& options) {
  const auto leader = [&](std::uint32_t group) -> const Strategy& {
    return options.groups[group].leader;
  };
  for (std::uint32_t group = 0; group < options.groups.size(); ++group) {
    const bool starts = group == 0 || !Tables::share_cell(leader(group - 1), leader(group));
    if (starts) options.runs.emplace_back().begin = group;
    PlacedRun& run = options.runs.back();
    run.end = group + 1;
    run.freedom = run.freedom | options.freedom(options.groups[group]);
    run.recomputes_in_part = run.recomputes_in_part || leader(group).recompute_layers != 0;
  }
  std::unordered_multimap<std::uint64_t, PlacedRun> known;  // the first of each kind
  for (PlacedRun& run : options.runs) {
    const Strategy& first = leader(run.begin);
    const auto at = std::ranges::find(options.placements, first.placement);
    run.placement = static_cast<std::uint32_t>(at - options.placements.begin());
    if (at == options.placements.end()) options.placements.push_back(first.placement);
    const std::uint64_t mixed = mixed_fields(first);
    const auto [begin, end] = known.equal_range(mixed);
    const auto same = std::find_if(
        begin, end, [&](const auto& item) { return alike(options, item.second, run); });
    run.kind = same == end ? options.kinds++ : same->second.kind;
    if (same == end) known.emplace(mixed, run);
  }
}

namespace {

/// Of placements with their numbers, those that mean the same with the same number.
TwinRuns twin_runs(const Options& options, const std::vector<std::uint32_t>& like) {
  TwinRuns twins;
  const std::size_t placements = options.placements.size();
  std::vector<std::uint32_t> last(options.kinds * placements, TwinRuns::kNone);
  for (std::uint32_t number = 0; number < options.runs.size(); ++number) {
    const PlacedRun& run = options.runs[number];
    std::uint32_t& before = last[run.kind * placements + like[run.placement]];
    const bool is_first = before == TwinRuns::kNone;
    twins.first.push_back(is_first ? number : twins.first[before]);
    twins.next.push_back(TwinRuns::kNone);
    if (is_first) {
      twins.groups += run.end - run.begin;
    } else {
      twins.next[before] = number;
    }
    before = number;
  }
  return twins;
}

}  // namespace

const TwinRuns& PlacedTwins::of(const Tables& tables, const Enumeration& space,
                                const Point& point) {
  if (space_ != space.number()) known_.clear();
  space_ = space.number();
  const Options& options = space.options(point);
  met_.clear();
  pattern_.options = &options;
  pattern_.like.clear();
  Strategy placed = point.degrees;
  const Degrees degrees = resolve_degrees(placed, tables.cluster(), tables.task());
  for (const Placement placement : options.placements) {
    placed.placement = placement;
    met_.push_back(tables.placed_groups(placed, degrees));
    const auto at = std::ranges::find(met_, met_.back());
    pattern_.like.push_back(static_cast<std::uint32_t>(at - met_.begin()));
  }
  const auto known = known_.find(pattern_);
  if (known != known_.end()) return known->second;
  return known_.emplace(pattern_, twin_runs(options, pattern_.like)).first->second;
}

}  // namespace scalemodel
