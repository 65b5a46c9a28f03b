#include "scalemodel/schedule/critical_paths.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "scalemodel/schedule/path_search.hpp"
#include "scalemodel/schedule/rough_sums.hpp"
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
        used_[part].push_back(
            {static_cast<std::uint8_t>(time), static_cast<std::uint8_t>(same - columns.begin())});
        if (same == columns.end()) columns.push_back(std::move(column));
      }
    }
  }
  columns_ = columns.size();
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

LongestPath::Sums::Sums(const LongestPath& paths, const PipelineTimes& times) noexcept {
  std::fill_n(exact_.begin(), paths.columns_, 0.0);
  exact_[0] = times.hop.base();
  exact_[1] = times.early.base();
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    const PartTimes& t = times.parts[part];
    for (const Use& use : paths.used_[part]) exact_[use.column] += t[use.time].base();
  }
}

PathTimes LongestPath::longest(std::size_t which, const Sums& sums) const noexcept {
  const Kind& kind = kinds_[which];
  std::array<float, kPassTimes * kPipelineParts + 2> rough;
  for (std::size_t i = 0; i < columns_; ++i) rough[i] = static_cast<float>(sums.exact_[i]);
  detail::RowNumbers rows;
  PathTimes longest;
  for (const std::size_t row : detail::may_be_longest(&rough_[kind.rough], kind.last - kind.first,
                                                      std::span(rough).first(columns_), rows)) {
    const PathTimes lasts = exactly(kind.first + row, sums);
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
    const PathTimes first = exactly(once.first + row, sums);
    const PathTimes again = exactly(often.first + row, sums);
    longest.passes = max(longest.passes, first.passes + times * again.passes);
    longest.with_hops = max(longest.with_hops, first.with_hops + times * again.with_hops);
  }
  return longest;
}

PathTimes LongestPath::exactly(std::size_t row, const Sums& sums) const noexcept {
  const double* counts = &exact_[row * columns_];
  double lasts = 0;
  for (std::size_t column = 1; column < columns_; ++column) {
    lasts += sums.exact_[column] * counts[column];
  }
  return {Seconds{lasts}, Seconds{lasts + sums.exact_[0] * counts[0]}};
}

namespace {

StepTrafficKind traffic_of(const PipelineTimes& times) noexcept {
  bool hides = false, blocks = false;
  for (const PartTimes& t : times.parts) {
    hides = hides || t[kGathering] + t[kReduction] > Seconds{};
    blocks = blocks || t[kGatheringBefore] + t[kReductionAfter] > Seconds{};
  }
  if (blocks) return StepTrafficKind::blocking;
  return hides ? StepTrafficKind::hiding : StepTrafficKind::none;
}

}  // namespace

CriticalPaths::CriticalPaths(PipelineShape shape, int micro_batches)
    : shape_(std::move(shape)), pp_(shape_.pp), micro_batches_(micro_batches) {
  const detail::StagePaths stages(shape_);
  stage_paths_ = LongestPath(std::array{stages.to, stages.on});
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

PipelineDuration CriticalPaths::duration(const QuietTimes& quiet,
                                         const PipelineTimes& times) const {
  const Seconds with_hops = quiet.first.with_hops + quiet.further.with_hops;
  const Seconds passes = min(with_hops, quiet.first.passes + quiet.further.passes);
  Seconds all = with_hops;
  if (const StepTrafficKind traffic = traffic_of(times); traffic != StepTrafficKind::none) {
    const LongestPath& paths = find(traffic);
    const LongestPath::Sums sums(paths, times);
    all = max(all, paths.longest(0, sums).with_hops + quiet.further.with_hops);
  }
  return {passes, with_hops - passes, all - with_hops};
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
                       shape.transfers_serial ? 1 : 0};
  for (const StageClass& chunk : shape.chunks) {
    key.insert(key.end(), chunk.layers.begin(), chunk.layers.end());
    key.push_back((chunk.embedding ? 2 : 0) + (chunk.head ? 1 : 0));
  }
  const std::lock_guard lock(guard);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() >= kMaxKept) known.clear();
  const auto paths = std::make_shared<const CriticalPaths>(shape, micro_batches);
  known.emplace(std::move(key), paths);
  return paths;
}

}  // namespace scalemodel
