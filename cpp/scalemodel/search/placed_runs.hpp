// Option groups that a point's placements make equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// Finds the runs of an option list: neighbouring groups that share a cell.
void find_runs(Options& options);

/// Which runs of a list of options are like which, in their order.
struct TwinRuns {
  static constexpr std::uint32_t kNone = 0xffffffff;

  std::vector<std::uint32_t> first;  ///< by run, the first like it, whose groups have its bounds
  std::vector<std::uint32_t> next;   ///< by run, the next like it or kNone
  std::size_t groups = 0;            ///< of all runs that no other one is like before
};

/// The group with this number, which no group is like before, and those like it: `use(group)`.
template <class Use>
void each_twin(const Options& options, const TwinRuns& twins, std::uint32_t group, Use&& use) {
  const auto run = std::upper_bound(options.runs.begin(), options.runs.end(), group,
                                    [](std::uint32_t g, const PlacedRun& r) { return g < r.end; });
  const std::uint32_t place = group - run->begin;
  for (auto number = static_cast<std::uint32_t>(run - options.runs.begin());
       number != TwinRuns::kNone; number = twins.next[number]) {
    use(options.groups[options.runs[number].begin + place]);
  }
}

/// Which runs of a point's groups differ in nothing that a bound could tell: their placements put
/// the same ranks next to each other. One placement in three to ten is another one at all.
class PlacedTwins {
 public:
  /// Of a point of an enumeration; the reference stays valid until another enumeration is asked
  /// about.
  const TwinRuns& of(const Tables& tables, const Enumeration& space, const Point& point);

 private:
  /// Equal for points whose placements are alike: by placement, the number of the first like it.
  struct Pattern {
    const Options* options = nullptr;
    std::vector<std::uint32_t> like;

    auto operator<=>(const Pattern&) const = default;
  };

  std::uint64_t space_ = 0;  ///< the enumeration of what is known
  std::map<Pattern, TwinRuns> known_;
  Pattern pattern_;                ///< of the last point
  std::vector<PlacedGroups> met_;  ///< by its placements
};

}  // namespace scalemodel
