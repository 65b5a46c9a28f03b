#include "scalemodel/search/group_space.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/search/top_k.hpp"

namespace scalemodel {
namespace {

/// Rows a worker claims together.
constexpr std::uint64_t kRows = 512;

/// Numeric fields of GroupEstimate: all but the verdict.
constexpr std::size_t kGroupFields = field_count<GroupEstimate> - 1;

template <std::size_t... I>
std::array<GroupColumn, kGroupFields> make_group_columns(std::index_sequence<I...> /*fields*/) {
  std::array<GroupColumn, kGroupFields> all{
      GroupColumn{field_at<I + 1>(RecordOf<GroupEstimate>::fields).name,
                  &field_number<GroupEstimate, I + 1>}...};
  constexpr std::array<std::string_view, 6> kPositive{
      "step_time_s", "samples_per_s", "tokens_per_s", "memory_bytes", "energy_j", "cost_usd"};
  for (GroupColumn& column : all) {
    column.maximised = is_maximised<GroupEstimate>(column.name);
    column.positive = std::ranges::find(kPositive, column.name) != kPositive.end();
  }
  return all;
}

const std::array<GroupColumn, kGroupFields> kAllGroupColumns =
    make_group_columns(std::make_index_sequence<kGroupFields>());

/// Digits of a row in a mixed base, last digit first.
class Digits {
 public:
  explicit Digits(std::uint64_t row) : left_(row) {}
  std::size_t next(std::size_t base) {
    const auto digit = static_cast<std::size_t>(left_ % base);
    left_ /= base;
    return digit;
  }

 private:
  std::uint64_t left_;
};

/// Whether only the step time of a row decides: what cannot be among the best need not be
/// scheduled.
bool is_bounded(const GroupSearchOptions& options) {
  const auto& terms = options.objective.terms;
  return options.constraints.empty() && terms.size() == 1 &&
         terms.front().column->name == "step_time_s";
}

}  // namespace

std::uint64_t GroupSpace::size() const {
  std::uint64_t rows = micro_batches.size() * queues.size() * prefetch.size() *
                       backward_gather.size() * buckets.size() * recompute.size();
  for (const auto& choices : meshes) rows *= choices.size();
  return rows;
}

GroupStrategy GroupSpace::at(std::uint64_t row) const {
  GroupStrategy strategy;
  Digits digits(row);
  std::array<std::uint16_t, kMaxSlots> chosen{};
  for (std::size_t v = meshes.size(); v-- > 0;)
    chosen[v] = meshes[v][digits.next(meshes[v].size())];
  for (std::size_t s = 0; s < variable_of_slot.size(); ++s) {
    strategy.mesh[s] = chosen[variable_of_slot[s]];
  }
  strategy.recompute = recompute[digits.next(recompute.size())] != 0;
  strategy.buckets = buckets[digits.next(buckets.size())];
  strategy.backward_gather = backward_gather[digits.next(backward_gather.size())];
  strategy.prefetch = prefetch[digits.next(prefetch.size())];
  strategy.queues = queues[digits.next(queues.size())];
  strategy.micro_batches = micro_batches[digits.next(micro_batches.size())];
  return strategy;
}

GroupCursor::GroupCursor(const GroupSpace& space, std::uint64_t row)
    : space_(space), row_(row), strategy_(space.at(row)), digit_(row % space.meshes.back().size()) {
  for (std::size_t s = 0; s < space.variable_of_slot.size(); ++s) {
    if (space.variable_of_slot[s] + 1 == space.meshes.size()) {
      slots_[slot_count_++] = static_cast<std::uint8_t>(s);
    }
  }
}

void GroupCursor::next() {
  ++row_;
  const auto& last = space_.meshes.back();
  if (++digit_ == last.size()) {
    digit_ = 0;
    strategy_ = space_.at(row_);
    return;
  }
  for (std::size_t i = 0; i < slot_count_; ++i) strategy_.mesh[slots_[i]] = last[digit_];
}

std::span<const GroupColumn> group_columns() { return kAllGroupColumns; }

const GroupColumn* find_group_column(std::string_view name) {
  for (const GroupColumn& column : kAllGroupColumns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

GroupSearchResult search_groups(const GroupTables& tables, const GroupSpace& space,
                                const GroupSearchOptions& options, const Poll& poll) {
  struct Worker {
    TopK<GroupStrategy> best;
    SearchCounts counts;
    GroupEvaluator evaluate;
  };
  const std::uint64_t rows = space.size();
  ThreadPool pool(options.threads, poll, rows);
  std::vector<Worker> workers(static_cast<std::size_t>(pool.threads()),
                              {TopK<GroupStrategy>(options.top), {}, GroupEvaluator(tables)});
  const bool bounded = is_bounded(options);
  const auto judge = [&](Worker& worker, std::uint64_t row, const GroupStrategy& strategy) {
    const Reason verdict = worker.evaluate.look_at(strategy);
    ++worker.counts.evaluated;
    ++worker.counts.verdicts[static_cast<std::size_t>(verdict)];
    const bool too_big = options.too_big && verdict == Reason::out_of_memory;
    if (verdict != Reason::ok && !too_big) return;
    const auto too_long = [&](Seconds least) { return least.base() > worker.best.threshold(); };
    if (bounded && (too_long(worker.evaluate.least_step_time()) ||
                    too_long(worker.evaluate.least_after_forward()))) {
      return;
    }
    const GroupEstimate estimate = worker.evaluate.estimate();
    for (const auto& constraint : options.constraints) {
      if (!constraint.holds(estimate)) {
        ++worker.counts.constrained;
        return;
      }
    }
    const double score = options.objective.score(estimate);
    if (worker.best.admits(score, row)) worker.best.add({score, row, strategy});
  };
  GroupSearchResult result;
  result.finished =
      pool.run((rows + kRows - 1) / kRows, 1, [&](std::size_t worker, std::size_t block) {
        const std::uint64_t first = block * kRows, last = std::min(rows, first + kRows);
        GroupCursor at(space, first);
        for (std::uint64_t row = first; row < last; ++row, at.next()) {
          judge(workers[worker], row, *at);
        }
        pool.add_done(last - first);
      });
  TopK<GroupStrategy> best(options.top);
  for (const Worker& worker : workers) {
    result.counts.evaluated += worker.counts.evaluated;
    result.counts.constrained += worker.counts.constrained;
    for (std::size_t i = 0; i < kReasons; ++i) {
      result.counts.verdicts[i] += worker.counts.verdicts[i];
    }
    for (const auto& entry : worker.best.entries()) best.add(entry);
  }
  for (const auto& entry : best.entries()) {
    result.candidates.push_back(
        {entry.score, entry.row, entry.canonical, evaluate_groups(tables, entry.canonical)});
  }
  return result;
}

bool sweep_groups(const GroupTables& tables, const GroupSpace& space, int threads,
                  std::span<GroupEstimate> estimates, const Poll& poll) {
  const std::uint64_t rows = space.size();
  ThreadPool pool(threads, poll, rows);
  return pool.run((rows + kRows - 1) / kRows, 1, [&](std::size_t, std::size_t block) {
    const std::uint64_t first = block * kRows, last = std::min(rows, first + kRows);
    GroupCursor at(space, first);
    GroupEvaluator evaluate(tables);
    for (std::uint64_t row = first; row < last; ++row, at.next()) {
      estimates[row] = evaluate(*at);
    }
    pool.add_done(last - first);
  });
}

}  // namespace scalemodel
