// What parts of a search share: bounds of placements that mean the same, tables, times of GEMMs.
#include <cmath>
#include <limits>

#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/placed_runs.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/spare_tables.hpp"
#include "search/set_values.hpp"
#include "support.hpp"

namespace scalemodel::testing {
namespace {

Space placed_space() {
  Space s;
  set<&Strategy::tp>(s, {1, 2, 8, 16});
  set<&Strategy::cp>(s, {1, 4});
  set<&Strategy::pp>(s, {1, 4});
  set<&Strategy::ep>(s, {1, 2});
  set<&Strategy::vpp>(s, {1, 2});
  set<&Strategy::sequence_parallel>(s, {false, true});
  set<&Strategy::overlap_tp, OrDefault<TensorOverlap>>(s, {{}, TensorOverlap::off});
  set<&Strategy::sharding>(s, {Sharding::ddp, Sharding::zero2, Sharding::zero3});
  set<&Strategy::recompute>(s, {Recompute::none, Recompute::full});
  s.tiers = true;
  return s;
}

TEST_CASE("runs of groups whose placements mean the same have the same bounds") {
  PlacedTwins twins;
  int equal = 0, others = 0;
  for (Question& q : all_questions(64)) {
    Tables& tables = q.tables;
    const Enumeration space(placed_space(), tables.model(), tables.cluster(), tables.task());
    const auto bound_of = [&](const Point& point, const Options& options, std::uint32_t group,
                              PipelineBound pipeline) {
      const OptionGroup& bounded = options.groups[group];
      const Strategy leader = joined(point.degrees, options.rows[bounded.begin]);
      const Degrees d = resolve_degrees(leader, tables.cluster(), tables.task());
      const Tabulated at = tables.tabulate(leader, d);
      return lower_bound(tables, leader, d, *at.cell, *at.stages, bounded.freedom, pipeline);
    };
    for (std::size_t number = 0; number < space.points().size(); number += 7) {
      const Point& point = space.points()[number];
      const Options& options = space.options(point);
      twins.start(tables, point, options);
      std::uint32_t end = 0;
      for (std::uint32_t run = 0; run < options.runs.size(); ++run) {
        const PlacedRun& own = options.runs[run];
        CHECK(own.begin == end);
        end = own.end;
        const PlacedRun& first = options.runs[twins.first_like(run)];
        ++(&first == &own ? others : equal);
        if (&first == &own) continue;
        CHECK(first.kind == own.kind);
        for (std::uint32_t i = 0; i < own.end - own.begin; ++i) {
          INFO(q.name);
          for (const PipelineBound pipeline :
               {PipelineBound::critical_paths, PipelineBound::one_stage}) {
            CHECK(bound_of(point, options, own.begin + i, pipeline) ==
                  bound_of(point, options, first.begin + i, pipeline));
          }
        }
      }
      CHECK(end == options.groups.size());
    }
  }
  CHECK(equal > 200);
  CHECK(others > 200);
}

SearchOptions fastest(bool prune) {
  SearchOptions options;
  options.objective.terms.push_back({find_column("tokens_per_s"), 1});
  options.prune = prune;
  return options;
}

TEST_CASE("a search finds the cells of the last one of its question, and the same answer") {
  for (Question& q : all_questions(16)) {
    const Enumeration space(placed_space(), q.tables.model(), q.tables.cluster(), q.tables.task());
    for (const bool prune : {false, true}) {
      const SearchOptions options = fastest(prune);
      const auto run = [&](const Tables& tables) {
        return search(tables, space, {0, space.size()}, options, {});
      };
      // Other tables of the same question know nothing of what the first have filled.
      const Tables apart(q.tables.model(), q.tables.cluster(), q.tables.task(), q.tables.stack());
      const SearchResult cold = run(apart);
      const Tables filled = *BorrowedTables(apart);
      CHECK(filled.cells() > 0);
      CHECK((*BorrowedTables(q.tables)).cells() == 0);
      const SearchResult warm = run(apart);
      REQUIRE(cold.candidates.size() == warm.candidates.size());
      CHECK(cold.counts.evaluated == warm.counts.evaluated);
      CHECK(cold.counts.verdicts == warm.counts.verdicts);
      for (std::size_t i = 0; i < cold.candidates.size(); ++i) {
        CHECK(cold.candidates[i].row == warm.candidates[i].row);
        CHECK(cold.candidates[i].score == warm.candidates[i].score);
        CHECK(cold.candidates[i].estimate == warm.candidates[i].estimate);
      }
    }
  }
}

TEST_CASE("what nobody asks for is left out, and nothing else changes") {
  Random random(27);
  SiblingEvaluator whole, part;
  part.derive({false, false});
  int left_out = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 50; ++i) {
      const Strategy s = random_strategy(random);
      q.tables.tabulate(s);
      const Estimate alone = evaluate(q.tables, s);
      if (is_illegal(alone.verdict)) continue;
      const Degrees d = resolve_degrees(s, q.tables.cluster(), q.tables.task());
      for (SiblingEvaluator* evaluator : {&whole, &part}) {
        evaluator->start(q.tables, *q.tables.find_cell(s, d), *q.tables.find_stages(s, d));
        evaluator->set(s);
      }
      const Estimate all = whole.estimate(Asked::all);
      Estimate times = part.estimate(Asked::all);
      CHECK(all == alone);
      if (times.energy == Joules{}) ++left_out;
      times.tokens_per_s = all.tokens_per_s;
      times.mfu_fraction = all.mfu_fraction;
      times.hfu_fraction = all.hfu_fraction;
      times.power = all.power;
      times.energy = all.energy;
      times.cost = all.cost;
      CHECK(times == all);
    }
  }
  CHECK(left_out > 200);
}

TEST_CASE("without a number of watts there is no answer, whether or not anybody asks for joules") {
  Cluster cluster = reference_cluster(8);
  cluster.accelerator.power.limit = Watts{std::numeric_limits<double>::quiet_NaN()};
  Tables tables(make_decoder(gpt3_shape()), cluster, training(8, 2048), Stack{});
  Strategy s;
  s.tp = 8;
  tables.tabulate(s);
  const Degrees d = resolve_degrees(s, cluster, tables.task());
  REQUIRE(evaluate(tables, s).verdict == Reason::precision);
  SiblingEvaluator evaluator;
  evaluator.derive({false, false});
  evaluator.start(tables, *tables.find_cell(s, d), *tables.find_stages(s, d));
  evaluator.set(s);
  CHECK(evaluator.estimate(Asked::all).verdict == Reason::precision);
}

TEST_CASE("a timer that keeps times says what one says that works them out") {
  const GemmTimer plain(reference_accelerator(), Precision::bf16);
  GemmTimer keeping = plain;
  GemmTimes kept;
  keeping.keep_in(&kept);
  Random random(28);
  // More shapes than are kept, each asked for again soon and late.
  std::vector<GemmShape> shapes;
  for (int i = 0; i < 3000; ++i) {
    const double m = random.pick({16, 100, 128, 1000, 4096}) * (1 + i % 7);
    const double n = random.pick({64, 128, 4096, 5120}) * (1 + i % 11);
    shapes.push_back({m, n, 128.0 * (1 + i % 13), 1.0 + i % 2, 2, random.flip(), random.flip()});
  }
  for (int round = 0; round < 2; ++round) {
    for (const GemmShape& shape : shapes) {
      CHECK(keeping.time(shape) == plain.time(shape));
      CHECK(keeping.time(shape) == plain.time(shape));
    }
  }
  CHECK(keeping.time({0, 16, 16}) == Seconds{});
}

}  // namespace
}  // namespace scalemodel::testing
