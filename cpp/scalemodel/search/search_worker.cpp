#include "scalemodel/search/search_worker.hpp"

namespace scalemodel {
namespace {

bool is_answer(const SearchOptions& options, const Estimate& estimate) {
  const bool too_big = options.too_big && estimate.verdict == Reason::out_of_memory;
  return estimate.verdict == Reason::ok || too_big;
}

/// What becomes of a strategy whose estimate is known.
RowAnswer answer_of(const SearchOptions& options, const Estimate& estimate) {
  RowAnswer answer{.verdict = estimate.verdict};
  if (!is_answer(options, estimate)) return answer;
  answer.score = options.objective.score(estimate);
  answer.constrained = std::ranges::any_of(options.constraints, [&](const Constraint& constraint) {
    return !constraint.holds(estimate);
  });
  answer.ranks = !answer.constrained;
  return answer;
}

/// Ranks `strategy()`, should its answer be among the best. Inlined, since most are not: a call
/// would take longer than to see that.
template <class MakeStrategy>
[[gnu::always_inline]] inline void rank(SearchWorker& worker, const SearchOptions& options,
                                        std::uint64_t row, const RowAnswer& answer,
                                        const MakeStrategy& strategy) {
  if (!answer.ranks || answer.score > options.beyond) return;
  if (!worker.best.admits(answer.score, row)) return;
  const Tables& t = worker.tables();
  worker.best.add({answer.score, row, canonical(strategy(), t.model(), t.cluster(), t.task())});
}

/// The same of a row that counts.
template <class MakeStrategy>
void take(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
          const RowAnswer& answer, const MakeStrategy& strategy) {
  SearchCounts& counts = worker.counts;
  ++counts.evaluated;
  ++counts.verdicts[static_cast<std::size_t>(answer.verdict)];
  if (answer.constrained) ++counts.constrained;
  rank(worker, options, row, answer, strategy);
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
    : workspace(question), best(options.top) {
  workspace->evaluate.derive(derived_of(options));
  workspace->bounds.derive(derived_of(options));
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
  rank(worker, options, row, answer_of(options, estimate), [&] { return strategy; });
}

namespace {

/// Goes through the rows of a group that lie in `rows`: `use(row, answer, strategy)`.
template <class Use>
void each_answer(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                 const SearchOptions& options, const Use& use) {
  const Asked asked = asked_of(options);
  SiblingEvaluator& evaluate = worker.workspace->evaluate;
  each_of_group(at, evaluate, group, rows, [&](std::uint64_t row, const auto& strategy) {
    const Reason fits = evaluate.fits();
    if (fits != Reason::ok && asked != Asked::all && evaluate.rates_stated()) {
      use(row, RowAnswer{.verdict = fits}, strategy);
    } else {
      use(row, answer_of(options, evaluate.estimate(asked)), strategy);
    }
  });
}

/// Whether groups of one point that differ in their placement send gradients and parameters over
/// the same groups of ranks, whatever their members shard. Placement decides nothing else of an
/// estimate but what twins have in common.
bool share_replicas(const PointTables& at, const OptionGroup& a, const OptionGroup& b) {
  const Tables& tables = at.tables();
  const OptionMembers& members = at.options().members_of(a);
  const Strategy& degrees = at.point().degrees;
  Strategy left = joined(degrees, a.leader), right = joined(degrees, b.leader);
  for (std::size_t i = 0; i < members.rows.size(); ++i) {
    if (members.changes[i] != Change::shards) continue;
    left = with_member(left, members.rows[i]);
    right = with_member(right, members.rows[i]);
    const Degrees d = resolve_degrees(left, tables.cluster(), tables.task());
    const auto groups_of = [&](const Strategy& s) {
      return data_parallel_groups(tables.cluster(), s, d, tables.model().routed());
    };
    if (groups_of(left) != groups_of(right)) return false;
  }
  return true;
}

/// The answers of a group's rows are those of one whose twin it is.
void repeat_answers(SearchWorker& worker, const PointTables& at, const OptionGroup& twin,
                    const SearchOptions& options) {
  const OptionMembers& members = at.options().members_of(twin);
  const std::uint64_t first = at.point().first_row + twin.begin;
  for (std::size_t i = 0; i < worker.answers.size(); ++i) {
    take(worker, options, first + i, worker.answers[i],
         [&] { return with_member(joined(at.point().degrees, twin.leader), members.rows[i]); });
  }
}

}  // namespace

void search_group(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                  const SearchOptions& options) {
  each_answer(worker, at, group, rows, options,
              [&](std::uint64_t row, const RowAnswer& answer, const auto& strategy) {
                take(worker, options, row, answer, strategy);
              });
}

void search_twins(SearchWorker& worker, PointTables& at, const TwinRuns& twins, std::uint32_t group,
                  RowRange rows, const SearchOptions& options) {
  const OptionGroup* known = nullptr;  // the group of the answers
  each_twin(at.options(), twins, group, [&](const OptionGroup& twin) {
    const bool whole = rows_of(at.point(), twin, rows).size() == twin.end - twin.begin;
    if (!whole) {
      search_group(worker, at, twin, rows, options);
    } else if (known != nullptr && share_replicas(at, *known, twin)) {
      repeat_answers(worker, at, twin, options);
    } else {
      known = &twin;
      worker.answers.clear();
      each_answer(worker, at, twin, rows, options,
                  [&](std::uint64_t row, const RowAnswer& answer, const auto& strategy) {
                    worker.answers.push_back(answer);
                    take(worker, options, row, answer, strategy);
                  });
    }
  });
}

}  // namespace scalemodel
