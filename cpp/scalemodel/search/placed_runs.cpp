#include "scalemodel/search/placed_runs.hpp"

#include <algorithm>
#include <unordered_map>

namespace scalemodel {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;

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
    Strategy moved = options.rows[left.begin];
    moved.placement = options.rows[right.begin].placement;
    if (left.freedom != right.freedom || moved != options.rows[right.begin]) return false;
  }
  return true;
}

}  // namespace

void find_runs(Options& options) {
  const auto leader = [&](std::uint32_t group) -> const Strategy& {
    return options.rows[options.groups[group].begin];
  };
  for (std::uint32_t group = 0; group < options.groups.size(); ++group) {
    const bool starts = group == 0 || !Tables::share_cell(leader(group - 1), leader(group));
    if (starts) options.runs.push_back({group, group, 0, 0});
    options.runs.back().end = group + 1;
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

void PlacedTwins::start(const Tables& tables, const Point& point, const Options& options) {
  met_.clear();
  met_at_.clear();
  Strategy placed = point.degrees;
  const Degrees degrees = resolve_degrees(placed, tables.cluster(), tables.task());
  for (const Placement placement : options.placements) {
    placed.placement = placement;
    const PlacedGroups groups = tables.placed_groups(placed, degrees);
    const auto at = std::ranges::find(met_, groups);
    met_at_.push_back(static_cast<std::uint32_t>(at - met_.begin()));
    if (at == met_.end()) met_.push_back(groups);
  }
  first_.assign(options.kinds * met_.size(), kNone);
  first_like_.clear();
  for (std::uint32_t number = 0; number < options.runs.size(); ++number) {
    const PlacedRun& run = options.runs[number];
    std::uint32_t& first = first_[run.kind * met_.size() + met_at_[run.placement]];
    if (first == kNone) first = number;
    first_like_.push_back(first);
  }
}

}  // namespace scalemodel
