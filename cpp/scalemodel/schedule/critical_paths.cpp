#include "scalemodel/schedule/critical_paths.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "scalemodel/schedule/path_search.hpp"
#include "scalemodel/schedule/stage_paths.hpp"

namespace scalemodel {

LongestPath::LongestPath(std::span<const std::vector<PipelinePath>> kinds) {
  std::vector<const PipelinePath*> rows;
  for (const std::vector<PipelinePath>& paths : kinds) {
    kinds_.push_back({rows.size(), rows.size() + paths.size(), 0});
    for (const PipelinePath& path : paths) rows.push_back(&path);
  }
  const auto column_of = [&](auto count_of) {
    std::vector<double> column;
    column.reserve(rows.size());
    for (const PipelinePath* path : rows) column.push_back(count_of(*path));
    return column;
  };
  std::vector<std::vector<double>> columns{
      column_of([](const PipelinePath& path) { return path.hops; }),
      column_of([](const PipelinePath& path) { return path.early; })};
  // Passes first, then traffic and what can hide it, which paths without traffic have not.
  using Range = std::pair<std::size_t, std::size_t>;
  for (const auto& [first, last] :
       {Range{kForward, kOverlappable}, Range{kOverlappable, kPassTimes}}) {
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      for (std::size_t time = first; time < last; ++time) {
        std::vector<double> column =
            column_of([&](const PipelinePath& path) { return path.parts[part][time]; });
        if (std::ranges::all_of(column, [](double count) { return count == 0; })) continue;
        const auto same = std::find(columns.begin() + 2, columns.end(), column);
        uses_.push_back({static_cast<std::uint8_t>(part), static_cast<std::uint8_t>(time),
                         static_cast<std::uint8_t>(same - columns.begin())});
        if (same == columns.end()) columns.push_back(std::move(column));
      }
    }
  }
  // Part after part: in this order sums add up.
  std::ranges::stable_sort(uses_, {}, &Use::part);
  columns_ = columns.size();
  for (std::size_t i = 0; i < columns_; ++i) {
    const auto column = static_cast<std::uint8_t>(i);
    const bool traffic = std::ranges::any_of(
        uses_, [&](const Use& use) { return use.column == column && use.time >= kGathering; });
    if (!traffic) {
      other_columns_.push_back(column);
      continue;
    }
    std::ranges::copy_if(uses_, std::back_inserter(traffic_uses_),
                         [&](const Use& use) { return use.column == column; });
    traffic_columns_.push_back({column, static_cast<std::uint8_t>(traffic_uses_.size())});
  }
  // Those of a step's traffic come last: sums are begun without them.
  std::stable_partition(uses_.begin(), uses_.end(), [&](const Use& use) {
    return std::ranges::find(other_columns_, use.column) != other_columns_.end();
  });
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const std::vector<double>& column : columns) exact_.push_back(column[row]);
  }
  for (Kind& kind : kinds_) {
    kind.rough = rough_.size();
    for (std::size_t first = kind.first; first < kind.last; first += detail::kRowsAtOnce) {
      for (std::size_t column = 0; column < columns_; ++column) {
        for (std::size_t row = first; row < first + detail::kRowsAtOnce; ++row) {
          rough_.push_back(row < kind.last ? static_cast<float>(columns[column][row]) : 0);
        }
      }
    }
  }
}

void LongestPath::add_all(const PipelineTimes& times, Columns& sums) const noexcept {
  std::fill_n(sums.begin(), columns_, 0.0);
  sums[0] = times.hop.base();
  sums[1] = times.early.base();
  for (const Use& use : uses_) sums[use.column] += use.of(times);
}

LongestPath::Sums::Sums(const LongestPath& paths, const PipelineTimes& times) noexcept {
  paths.add_all(times, exact_);
}

namespace {

/// Columns as rough sums take them; those without a time add nothing.
class RoughTerms {
 public:
  void add(double time, std::uint8_t column) noexcept {
    if (time != 0) terms_[size_++] = {static_cast<float>(time), column};
  }
  std::span<const detail::RoughTerm> terms() const noexcept { return {terms_.data(), size_}; }

 private:
  std::array<detail::RoughTerm, LongestPath::kMaxColumns> terms_;
  std::size_t size_ = 0;
};

}  // namespace

LongestPath::Begun::Begun(const LongestPath& paths, const PipelineTimes& times) noexcept {
  std::fill_n(exact_.begin(), paths.columns_, 0.0);
  exact_[0] = times.hop.base();
  exact_[1] = times.early.base();
  const std::size_t others = paths.uses_.size() - paths.traffic_uses_.size();
  for (const Use& use : std::span(paths.uses_).first(others)) exact_[use.column] += use.of(times);
  RoughTerms rough;
  for (const std::uint8_t column : paths.other_columns_) rough.add(exact_[column], column);
  const Kind& kind = paths.kinds_[0];
  detail::begin_sums(&paths.rough_[kind.rough], paths.columns_, kind.last - kind.first,
                     rough.terms(), rough_);
}

PathTimes LongestPath::longest(std::size_t which, const Sums& sums) const noexcept {
  const Kind& kind = kinds_[which];
  std::array<float, kMaxColumns> rough;
  for (std::size_t i = 0; i < columns_; ++i) rough[i] = static_cast<float>(sums.exact_[i]);
  detail::RowNumbers rows;
  PathTimes longest;
  for (const std::size_t row : detail::may_be_longest(&rough_[kind.rough], kind.last - kind.first,
                                                      std::span(rough).first(columns_), rows)) {
    const PathTimes lasts = exactly(kind.first + row, sums.exact_);
    longest.passes = max(longest.passes, lasts.passes);
    longest.with_hops = max(longest.with_hops, lasts.with_hops);
  }
  return longest;
}

PathTimes LongestPath::longest(std::size_t which, std::size_t repeated, double times,
                               const Sums& sums) const noexcept {
  const Kind &once = kinds_[which], &often = kinds_[repeated];
  PathTimes longest;
  for (std::size_t row = 0; row < once.last - once.first; ++row) {
    const PathTimes first = exactly(once.first + row, sums.exact_);
    const PathTimes again = exactly(often.first + row, sums.exact_);
    longest.passes = max(longest.passes, first.passes + times * again.passes);
    longest.with_hops = max(longest.with_hops, first.with_hops + times * again.with_hops);
  }
  return longest;
}

Seconds LongestPath::longest_with_hops(Begun& begun, const PipelineTimes& times) const noexcept {
  RoughTerms rough;
  const Use* use = traffic_uses_.data();
  for (const TrafficColumn& traffic : traffic_columns_) {
    const Use* end = traffic_uses_.data() + traffic.end;
    double sum = use->of(times);  // most columns count one time
    while (++use != end) sum += use->of(times);
    begun.exact_[traffic.column] = sum;
    rough.add(sum, traffic.column);
  }
  const Kind& kind = kinds_[0];
  detail::RowNumbers rows;
  Seconds longest;
  for (const std::size_t row :
       detail::may_be_longest(&rough_[kind.rough], columns_, kind.last - kind.first, rough.terms(),
                              begun.rough_, rows)) {
    longest = max(longest, exactly(kind.first + row, begun.exact_).with_hops);
  }
  return longest;
}

PathTimes LongestPath::exactly(std::size_t row, const Columns& sums) const noexcept {
  const double* counts = &exact_[row * columns_];
  double lasts = 0;
#pragma GCC unroll 4
  for (std::size_t column = 1; column < columns_; ++column) lasts += sums[column] * counts[column];
  return {Seconds{lasts}, Seconds{lasts + sums[0] * counts[0]}};
}

StepTrafficKind traffic_of(const PipelineTimes& times) noexcept {
  bool hides = false, blocks = false;
  for (const PartTimes& t : times.parts) {
    hides |= t[kGathering] + t[kReduction] > Seconds{};
    blocks |= t[kGatheringBefore] + t[kReductionAfter] > Seconds{};
  }
  if (blocks) return StepTrafficKind::blocking;
  return hides ? StepTrafficKind::hiding : StepTrafficKind::none;
}

namespace {

/// How often a path has every part with all of its passes.
std::array<double, kPipelineParts> whole_parts(const PipelinePath& path) {
  std::array<double, kPipelineParts> whole;
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    const auto& count = path.parts[part];
    whole[part] = std::min({count[kForward], count[kInputGradient], count[kWeightGradient]});
  }
  return whole;
}

/// Whether a way is never longer than another one.
bool is_within(const StageWay& inner, const StageWay& outer) {
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    if (inner.once[part] > outer.once[part] || inner.each[part] > outer.each[part]) return false;
  }
  return true;
}

std::vector<StageWay> longest_ways(const detail::StagePaths& stages) {
  std::vector<StageWay> ways;
  for (std::size_t i = 0; i < stages.to.size(); ++i) {
    const StageWay way{whole_parts(stages.to[i]), whole_parts(stages.on[i])};
    const auto longer = [&](const StageWay& known) { return is_within(way, known); };
    if (std::ranges::any_of(ways, longer)) continue;
    std::erase_if(ways, [&](const StageWay& shorter) { return is_within(shorter, way); });
    ways.push_back(way);
  }
  return ways;
}

}  // namespace

CriticalPaths::CriticalPaths(PipelineShape shape, int micro_batches)
    : shape_(std::move(shape)), pp_(shape_.pp), micro_batches_(micro_batches) {
  const detail::StagePaths stages(shape_);
  stage_paths_ = LongestPath(std::array{stages.to, stages.on});
  stage_ways_ = longest_ways(stages);
}

LongestPath CriticalPaths::without_traffic() const {
  const int micro_batches = static_cast<int>(micro_batches_);
  const bool repeats = micro_batches >= (kGroups - 1) * shape_.pp;
  detail::QuietPaths found = detail::find_quiet_paths(shape_, micro_batches, repeats);
  detail::StagePaths stages(shape_);
  std::array<std::vector<PipelinePath>, kKinds> kinds;
  kinds[kStep] = known_ = std::move(found.step);
  kinds[kFurther] = std::move(found.further);
  kinds[kToStage] = std::move(stages.to);
  kinds[kOnStage] = std::move(stages.on);
  return LongestPath(kinds);
}

void CriticalPaths::search(StepTrafficKind traffic) const {
  if (traffic != StepTrafficKind::none) find(StepTrafficKind::none);
  const std::lock_guard lock(searching_);
  Found& found = found_[static_cast<std::size_t>(traffic)];
  if (found.done.load(std::memory_order_relaxed)) return;
  if (traffic == StepTrafficKind::none) {
    found.paths = without_traffic();
  } else {
    const int micro_batches = static_cast<int>(micro_batches_);
    found.paths =
        LongestPath(std::array{detail::find_paths(shape_, micro_batches, traffic, known_)});
  }
  found.done.store(true, std::memory_order_release);
}

QuietTimes CriticalPaths::quiet(const PipelineTimes& times, double micro_batches,
                                Seconds slowest) const {
  const LongestPath& paths = find(StepTrafficKind::none);
  const LongestPath::Sums sums(paths, times);
  const double groups = (micro_batches - micro_batches_) / pp_;
  QuietTimes lasts{paths.longest(kStep, sums), {}};
  PathTimes another, stage;
  if (groups > 0) {
    another = paths.longest(kFurther, sums);
    stage = paths.longest(kToStage, kOnStage, micro_batches, sums);
  }
  const auto further = [&](Seconds PathTimes::* time) {
    const Seconds first = lasts.first.*time, least = micro_batches * slowest - first;
    if (!(groups > 0)) return max(Seconds{}, least);
    const Seconds repeated = groups * max(another.*time - first, pp_ * slowest);
    return max(max(repeated, stage.*time - first), least);
  };
  lasts.further = {further(&PathTimes::passes), further(&PathTimes::with_hops)};
  return lasts;
}

namespace {

/// Of a pipeline with the traffic of a step, which alone lets it last `with_traffic`.
PipelineDuration duration_of(const QuietTimes& quiet, Seconds with_traffic) {
  const Seconds with_hops = quiet.first.with_hops + quiet.further.with_hops;
  const Seconds passes = min(with_hops, quiet.first.passes + quiet.further.passes);
  const Seconds all = max(with_hops, with_traffic);
  return {passes, with_hops - passes, all - with_hops};
}

}  // namespace

PipelineDuration CriticalPaths::duration(const QuietTimes& quiet,
                                         const PipelineTimes& times) const {
  const StepTrafficKind traffic = traffic_of(times);
  if (traffic == StepTrafficKind::none) return duration_of(quiet, Seconds{});
  const LongestPath& paths = find(traffic);
  const LongestPath::Sums sums(paths, times);
  return duration_of(quiet, paths.longest(0, sums).with_hops + quiet.further.with_hops);
}

PipelineDuration CriticalPaths::duration(const QuietTimes& quiet, const PipelineTimes& times,
                                         StepTrafficKind traffic, LongestPath::Begun& begun) const {
  return duration_of(quiet,
                     find(traffic).longest_with_hops(begun, times) + quiet.further.with_hops);
}

PipelineDuration CriticalPaths::at_least(const PipelineTimes& times, double micro_batches,
                                         Seconds slowest) const noexcept {
  constexpr std::size_t kTo = 0, kOn = 1;
  const LongestPath::Sums sums(stage_paths_, times);
  const PathTimes stage = stage_paths_.longest(kTo, kOn, micro_batches, sums);
  const Seconds passes = max(stage.passes, micro_batches * slowest);
  return {passes, max(stage.with_hops, passes) - passes, Seconds{}};
}

std::shared_ptr<const CriticalPaths> critical_paths(const PipelineShape& shape, int micro_batches) {
  static constexpr std::size_t kMaxKept = 4096;
  static std::mutex guard;
  static std::map<std::vector<int>, std::shared_ptr<const CriticalPaths>> known;
  std::vector<int> key{static_cast<int>(shape.schedule),
                       shape.pp,
                       shape.vpp,
                       micro_batches,
                       shape.transfers_block ? 1 : 0,
                       shape.transfers_serial ? 1 : 0,
                       shape.tower ? 1 : 0};
  for (const StageClass& chunk : shape.chunks) {
    key.insert(key.end(), chunk.layers.begin(), chunk.layers.end());
    key.push_back((chunk.embedding ? 2 : 0) + (chunk.head ? 1 : 0));
  }
  const std::lock_guard lock(guard);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() >= kMaxKept) known.clear();
  auto paths = std::make_shared<const CriticalPaths>(shape, micro_batches);
  known.emplace(std::move(key), paths);
  return paths;
}

}  // namespace scalemodel
