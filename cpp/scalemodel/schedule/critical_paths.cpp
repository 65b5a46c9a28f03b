#include "scalemodel/schedule/critical_paths.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <array>
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
    for (std::size_t first = kind.first; first < kind.last; first += kRows) {
      for (std::size_t column = 0; column < columns_; ++column) {
        for (std::size_t row = first; row < first + kRows; ++row) {
          rough_.push_back(row < kind.last ? static_cast<float>(columns[column][row]) : 0);
        }
      }
    }
  }
}

LongestPath::Sums::Sums(const LongestPath& paths, const PipelineTimes& times) noexcept
    : columns_(paths.columns_) {
  std::fill_n(exact_.begin(), columns_, 0.0);
  exact_[0] = times.hop.base();
  exact_[1] = times.early.base();
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    const PartTimes& t = times.parts[part];
    for (const Use& use : paths.used_[part]) exact_[use.column] += t[use.time].base();
  }
}

PathTimes LongestPath::longest(std::size_t which, const Sums& sums) const noexcept {
  const Kind& kind = kinds_[which];
  const std::size_t rows = std::min(kind.last - kind.first, kMaxRows);
  using Rows = Eigen::Array<float, kRows, 1>;
  std::array<float, kMaxRows + kRows> passes, with_hops;
  std::array<float, kPassTimes * kPipelineParts + 2> rough;
  for (std::size_t i = 0; i < columns_; ++i) rough[i] = static_cast<float>(sums.exact_[i]);
  const float* counts = &rough_[kind.rough];
  Rows most = Rows::Zero(), most_with_hops = Rows::Zero();
  for (std::size_t first = 0; first < rows; first += kRows) {
    const Rows hops = rough[0] * Rows::Map(counts);
    counts += kRows;
    Rows lasts = Rows::Zero();
    for (std::size_t column = 1; column < columns_; ++column, counts += kRows) {
      lasts += rough[column] * Rows::Map(counts);
    }
    Rows::Map(&passes[first]) = lasts;
    most = most.max(lasts);
    lasts += hops;
    Rows::Map(&with_hops[first]) = lasts;
    most_with_hops = most_with_hops.max(lasts);
  }
  const float least = (1 - kRounding) * most.maxCoeff();
  const float least_with_hops = (1 - kRounding) * most_with_hops.maxCoeff();
  PathTimes longest;
  for (std::size_t row = 0; row < rows; ++row) {
    if (passes[row] < least && with_hops[row] < least_with_hops) continue;
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

bool has_traffic_of(const RecentDurations::Entry& a, const RecentDurations::Entry& b) noexcept {
  return a.traffic == b.traffic && a.all == b.all;
}

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

const RecentDurations::Entry* RecentDurations::find(const Entry& entry) const noexcept {
  const Entry* alike = nullptr;
  for (const Entry& known : entries_) {
    if (known.micro_batches != entry.micro_batches || known.slowest != entry.slowest ||
        !(known.passes == entry.passes)) {
      continue;
    }
    alike = &known;
    if (has_traffic_of(known, entry)) break;
  }
  return alike;
}

void RecentDurations::add(const Entry& entry) noexcept {
  entries_[oldest_] = entry;
  oldest_ = (oldest_ + 1) % entries_.size();
}

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

QuietTimes CriticalPaths::quiet(const LongestPath& paths, const LongestPath::Sums& sums,
                                double micro_batches, Seconds slowest) const noexcept {
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

PipelineDuration CriticalPaths::duration(const PipelineTimes& times, double micro_batches,
                                         Seconds slowest, RecentDurations* recent) const {
  const LongestPath& alone = find(StepTrafficKind::none);
  RecentDurations::Entry step{
      LongestPath::Sums(alone, times), {}, traffic_of(times), micro_batches, slowest, {}, {}};
  const bool sends = step.traffic != StepTrafficKind::none;
  const LongestPath& paths = sends ? find(step.traffic) : alone;
  if (sends) step.all = LongestPath::Sums(paths, times);
  const RecentDurations::Entry* alike = recent != nullptr ? recent->find(step) : nullptr;
  if (alike != nullptr && has_traffic_of(*alike, step)) return alike->duration;
  step.quiet = alike != nullptr ? alike->quiet : quiet(alone, step.passes, micro_batches, slowest);
  const QuietTimes& lasts = step.quiet;
  const Seconds with_hops = lasts.first.with_hops + lasts.further.with_hops;
  const Seconds passes = min(with_hops, lasts.first.passes + lasts.further.passes);
  Seconds all = with_hops;
  if (sends) all = max(all, paths.longest(0, step.all).with_hops + lasts.further.with_hops);
  step.duration = {passes, with_hops - passes, all - with_hops};
  if (recent != nullptr) recent->add(step);
  return step.duration;
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
