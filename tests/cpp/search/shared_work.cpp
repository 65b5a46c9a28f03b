// What parts of a search share: bounds of placements that mean the same, tables, times of GEMMs.
#include <cmath>
#include <limits>

#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/placed_runs.hpp"
#include "scalemodel/search/point_bounds.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/workspace.hpp"
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
  set<&Strategy::placement>(s, {0, 1, 2, 3, 5, 12, 18, 20});  // orders of the axes
  return s;
}

TEST_CASE("runs of groups whose placements mean the same have the same bounds") {
  int equal = 0, others = 0;
  for (Question& q : all_questions(64)) {
    PlacedTwins placed;
    Tables& tables = q.tables;
    const Enumeration space(placed_space(), tables.model(), tables.cluster(), tables.task());
    const auto bound_of = [&](const Point& point, const Options& options, std::uint32_t group,
                              PipelineBound pipeline) {
      const OptionGroup& bounded = options.groups[group];
      const Strategy leader = joined(point.degrees, bounded.leader);
      const Degrees d = resolve_degrees(leader, tables.cluster(), tables.task());
      const Tabulated at = tables.tabulate(leader, d);
      return lower_bound(tables, leader, d, *at.cell, *at.stages, options.freedom(bounded),
                         pipeline);
    };
    for (std::size_t number = 0; number < space.points().size(); ++number) {
      const Point& point = space.points()[number];
      const Options& options = space.options(point);
      const TwinRuns& twins = placed.of(tables, space, point);
      std::uint32_t end = 0;
      for (std::uint32_t run = 0; run < options.runs.size(); ++run) {
        const PlacedRun& own = options.runs[run];
        CHECK(own.begin == end);
        end = own.end;
        const PlacedRun& first = options.runs[twins.first[run]];
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

TEST_CASE("a run of groups is bounded by no more than any of them") {
  Space wide = placed_space();
  set<&Strategy::recompute>(wide, {Recompute::selective, Recompute::full, Recompute::none});
  set<&Strategy::split_p2p>(wide, {false, true});
  set<&Strategy::offload_weights>(wide, {false, true});
  set<&Strategy::offload_activations>(wide, {false, true});
  SearchOptions options;
  options.objective.terms.push_back({find_column("tokens_per_s"), 1});
  int closer = 0;
  for (Question& q : all_questions(64)) {
    const Enumeration space(wide, q.tables.model(), q.tables.cluster(), q.tables.task());
    SearchWorker worker(q.tables, options);
    INFO(q.name);
    for (const Point& point : space.points()) {
      const Options& all = space.options(point);
      PointBounds bounds(worker, point, all, options);
      for (const PlacedRun& run : all.runs) {
        const double of_run = bounds.rough(run);
        for (std::uint32_t group = run.begin; group < run.end; ++group) {
          const double of_group = bounds.rough(all.groups[group]);
          CHECK(of_run <= of_group);
          closer += of_run < of_group ? 1 : 0;
        }
      }
    }
  }
  CHECK(closer > 200);
}

TEST_CASE("of what scores at most a limit a search finds the same as without it") {
  for (Question& q : all_questions(64)) {
    const Enumeration space(placed_space(), q.tables.model(), q.tables.cluster(), q.tables.task());
    SearchOptions options;
    options.objective.terms.push_back({find_column("tokens_per_s"), 1});
    options.top = 40;
    const auto run = [&] { return search(q.tables, space, {0, space.size()}, options, {}); };
    const std::vector<Candidate> every = run().candidates;
    INFO(q.name);
    for (const std::size_t place : {every.size() / 4, every.size() / 2, every.size() - 1}) {
      options.beyond = every[place].score;
      const std::vector<Candidate> found = run().candidates;
      REQUIRE(found.size() > place);
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].row == every[i].row);
        CHECK(found[i].score == every[i].score);
      }
    }
  }
}

TEST_CASE("rows whose placements mean the same are answered as if each were evaluated") {
  for (Question& q : all_questions(64)) {
    Space wide = placed_space();
    set<&Strategy::sharding>(wide,
                             {Sharding::ddp, Sharding::zero1, Sharding::zero3, Sharding::hsdp});
    set<&Strategy::offload_optimizer>(wide, {false, true});
    const Enumeration space(wide, q.tables.model(), q.tables.cluster(), q.tables.task());
    SearchOptions options;
    options.objective.terms.push_back({find_column("tokens_per_s"), 1});
    options.top = 200;
    INFO(q.name);
    // Cut anywhere, a range holds some twins in part and some without the first of them.
    for (const std::uint64_t cut : {space.size() / 3, space.size() / 2 + 1}) {
      for (const RowRange rows : {RowRange{0, cut}, RowRange{cut, space.size()}}) {
        options.prune = false;
        const SearchResult every = search(q.tables, space, rows, options, {});
        options.prune = true;
        const SearchResult found = search(q.tables, space, rows, options, {});
        CHECK(found.counts.evaluated + found.counts.pruned == rows.size());
        REQUIRE(found.candidates.size() == every.candidates.size());
        for (std::size_t i = 0; i < found.candidates.size(); ++i) {
          CHECK(found.candidates[i].row == every.candidates[i].row);
          CHECK(found.candidates[i].score == every.candidates[i].score);
          CHECK(found.candidates[i].estimate == every.candidates[i].estimate);
        }
      }
    }
  }
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
      const Tables filled = BorrowedWorkspace(apart)->tables;
      CHECK(filled.cells() > 0);
      CHECK(BorrowedWorkspace(q.tables)->tables.cells() == 0);
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
