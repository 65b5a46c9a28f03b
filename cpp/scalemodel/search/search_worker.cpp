#include "scalemodel/search/search_worker.hpp"

namespace scalemodel {
namespace {

bool is_answer(const SearchOptions& options, const Estimate& estimate) {
  const bool too_big = options.too_big && estimate.verdict == Reason::out_of_memory;
  return estimate.verdict == Reason::ok || too_big;
}

/// Judges a strategy that ran: `strategy()`, should it be an answer.
template <class MakeStrategy>
void rank(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
          const Estimate& estimate, const MakeStrategy& strategy) {
  const double score = options.objective.score(estimate);
  for (const Constraint& constraint : options.constraints) {
    if (!constraint.holds(estimate)) {
      ++worker.counts.constrained;
      return;
    }
  }
  if (score > options.beyond || !worker.best.admits(score, row)) return;
  const Tables& t = worker.tables();
  worker.best.add({score, row, canonical(strategy(), t.model(), t.cluster(), t.task())});
}

/// What objective and constraints ask for beside times and memory.
Derived derived_of(const SearchOptions& options) {
  Derived derived{false, false};
  const auto add = [&](const Column* column) {
    if (column != nullptr) derived = derived | column->derived;
  };
  for (const Objective::Term& term : options.objective.terms) add(term.column);
  for (const Constraint& constraint : options.constraints) {
    add(constraint.left);
    add(constraint.right);
  }
  return derived;
}

}  // namespace

SearchWorker::SearchWorker(const Tables& question, const SearchOptions& options)
    : borrowed(question), best(options.top) {
  evaluate.derive(derived_of(options));
  bounds.derive(derived_of(options));
}

/// What becomes of strategies that do not fit no search asks but one that ranks them, and what
/// takes the memory only one that ranks by it.
Asked asked_of(const SearchOptions& options) {
  if (options.too_big) return Asked::all;
  const auto of_kinds = [](const Column* column) { return column != nullptr && column->of_kinds; };
  const bool kinds =
      std::ranges::any_of(options.objective.terms, of_kinds, &Objective::Term::column) ||
      std::ranges::any_of(options.constraints, [&](const Constraint& constraint) {
        return of_kinds(constraint.left) || of_kinds(constraint.right);
      });
  return kinds ? Asked::times_that_fit : Asked::totals_that_fit;
}

void judge(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
           const Estimate& estimate, const Strategy& strategy) {
  if (!is_answer(options, estimate)) return;
  rank(worker, options, row, estimate, [&] { return strategy; });
}

void search_group(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                  const SearchOptions& options) {
  const Asked asked = asked_of(options);
  SiblingEvaluator& evaluate = worker.evaluate;
  SearchCounts& counts = worker.counts;
  each_of_group(at, evaluate, group, rows, [&](std::uint64_t row) {
    ++counts.evaluated;
    const Reason fits = evaluate.fits();
    if (fits != Reason::ok && asked != Asked::all && evaluate.rates_stated()) {
      ++counts.verdicts[static_cast<std::size_t>(fits)];
      return;
    }
    const Estimate& estimate = evaluate.estimate(asked);
    ++counts.verdicts[static_cast<std::size_t>(estimate.verdict)];
    const auto strategy = [&] { return at.strategy(row); };
    if (is_answer(options, estimate)) rank(worker, options, row, estimate, strategy);
  });
}

}  // namespace scalemodel
