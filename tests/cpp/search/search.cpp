#include "scalemodel/search/search.hpp"

#include <atomic>
#include <mutex>

#include "search/set_values.hpp"
#include "support.hpp"

namespace scalemodel::testing {
namespace {

Space training_space() {
  Space s;
  set<&Strategy::tp>(s, {1, 2, 4, 8});
  set<&Strategy::cp>(s, {1, 2});
  set<&Strategy::pp>(s, {1, 2, 4});
  set<&Strategy::ep>(s, {1, 2});
  set<&Strategy::vpp>(s, {1, 2});
  set<&Strategy::micro_batch>(s, {1, 2});
  set<&Strategy::schedule>(s, {Schedule::one_f_one_b, Schedule::zero_bubble, Schedule::dualpipe});
  set<&Strategy::sharding>(s, {Sharding::ddp, Sharding::zero1, Sharding::zero2, Sharding::zero3});
  set<&Strategy::recompute>(s, {Recompute::none, Recompute::selective, Recompute::full});
  set<&Strategy::offload_optimizer>(s, {false, true});
  set<&Strategy::overlap_grad_reduce, OrDefault<OnOff>>(s, {{}, OnOff::off});
  return s;
}

SearchOptions options_of(std::initializer_list<std::pair<std::string_view, double>> terms) {
  SearchOptions options;
  for (const auto& [name, weight] : terms) {
    options.objective.terms.push_back({find_column(name), weight});
  }
  return options;
}

bool same(const SearchResult& a, const SearchResult& b) {
  if (a.candidates.size() != b.candidates.size()) return false;
  for (std::size_t i = 0; i < a.candidates.size(); ++i) {
    const Candidate &x = a.candidates[i], &y = b.candidates[i];
    if (x.score != y.score || x.row != y.row || !(x.strategy == y.strategy)) return false;
    if (!(x.estimate == y.estimate)) return false;
  }
  return true;
}

bool same(const SearchCounts& a, const SearchCounts& b) {
  return a.verdicts == b.verdicts && a.evaluated == b.evaluated && a.pruned == b.pruned &&
         a.constrained == b.constrained;
}

TEST_CASE("pruning, threads and parts change nothing in the answer") {
  for (Question& q : all_questions(16)) {
    const Enumeration space(training_space(), q.tables.model(), q.tables.cluster(),
                            q.tables.task());
    const RowRange all{0, space.size()};
    for (SearchOptions options :
         {options_of({{"step_time_s", 1}}), options_of({{"tokens_per_j", 1}}),
          options_of({{"memory_bytes", 1}}), options_of({{"step_time_s", 1}, {"memory_bytes", 2}}),
          options_of({{"power_w", 1}})}) {
      options.constraints.push_back({find_column("memory_bytes"), Comparison::less_equal, 0.9,
                                     find_column("memory_capacity_bytes")});
      INFO(q.name << " by " << options.objective.terms[0].column->name);
      options.prune = false;
      const SearchResult every = search(q.tables, space, all, options, {});
      CHECK(every.counts.evaluated == space.size());
      options.prune = true;
      const SearchResult pruned = search(q.tables, space, all, options, {});
      CHECK(same(every, pruned));
      CHECK(pruned.counts.evaluated + pruned.counts.pruned == space.size());
      options.threads = 3;
      const SearchResult threads = search(q.tables, space, all, options, {});
      CHECK(same(every, threads));
      CHECK(same(pruned.counts, threads.counts));
      // The better half of two parts.
      const std::uint64_t cut = space.size() / 3;
      const SearchResult low = search(q.tables, space, {0, cut}, options, {});
      const SearchResult high = search(q.tables, space, {cut, space.size()}, options, {});
      CHECK(low.counts.evaluated + low.counts.pruned == cut);
      if (!every.candidates.empty()) {
        const Candidate& best = every.candidates[0];
        const SearchResult& part = best.row < cut ? low : high;
        REQUIRE(!part.candidates.empty());
        CHECK(part.candidates[0].row == best.row);
      }
    }
  }
}

TEST_CASE("hits are ordered, keep the constraints and mean different strategies") {
  Tables tables(make_decoder(gpt3_shape()), reference_cluster(64), training(64, 2048),
                reference_stack());
  Space wide = training_space();
  wide.tiers = true;
  wide.redundant = 1U << field_index(&Strategy::placement);  // several rows of the same meaning
  const Enumeration space(wide, tables.model(), tables.cluster(), tables.task());
  SearchOptions options = options_of({{"tokens_per_s", 1}});
  options.constraints.push_back({find_column("power_w"), Comparison::greater, 1, nullptr});
  options.top = 40;
  const SearchResult result = search(tables, space, {0, space.size()}, options, {});
  REQUIRE(result.candidates.size() == 40);
  for (std::size_t i = 0; i < result.candidates.size(); ++i) {
    const Candidate& candidate = result.candidates[i];
    CHECK(candidate.estimate.verdict == Reason::ok);
    CHECK(candidate.score == -candidate.estimate.tokens_per_s);
    CHECK(evaluate(tables, candidate.strategy).verdict == Reason::ok);
    for (std::size_t k = 0; k < i; ++k) {
      const Candidate& better = result.candidates[k];
      CHECK(better.score <= candidate.score);
      const auto meaning = [&](const Candidate& h) {
        return canonical(h.strategy, tables.model(), tables.cluster(), tables.task());
      };
      CHECK(!(meaning(better) == meaning(candidate)));
    }
  }
}

TEST_CASE("a poll that says stop is obeyed") {
  Tables tables(make_decoder(gpt3_shape()), reference_cluster(512), training(2048, 2048),
                reference_stack());
  Space wide = training_space();
  wide.tiers = true;
  const Enumeration space(wide, tables.model(), tables.cluster(), tables.task());
  SearchOptions options = options_of({{"step_time_s", 1}});
  options.prune = false;
  options.threads = 2;
  int asked = 0;
  // Polls come every 50 ms at most; a search as short as that may end before the first.
  const SearchResult result = search(tables, space, {0, space.size()}, options,
                                     [&](std::uint64_t done, std::uint64_t total) {
                                       CHECK(done <= total);
                                       ++asked;
                                       return false;
                                     });
  CHECK(result.finished == (asked == 0));
  CHECK(asked <= 1);
}

TEST_CASE("an exception of a worker reaches the caller") {
  ThreadPool pool(3, {}, 100);
  CHECK_THROWS_AS(pool.run(100, 1,
                           [](std::size_t, std::size_t item) {
                             if (item == 50) throw std::runtime_error("item 50");
                           }),
                  std::runtime_error);
}

TEST_CASE("a pool does every item once") {
  ThreadPool pool(4, {}, 1000);
  std::vector<std::atomic<int>> done(1000);
  for (int round = 1; round <= 3; ++round) {
    CHECK(pool.run(done.size(), 7, [&](std::size_t, std::size_t item) { ++done[item]; }));
    for (const auto& count : done) CHECK(count == round);
  }
}

struct Collect final : RowSink {
  std::mutex mutex;
  std::vector<Estimate> estimates;
  std::vector<int> times;

  void put(const RowBlock& block) override {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < block.estimates.size(); ++i) {
      estimates[block.first + i] = block.estimates[i];
      ++times[block.first + i];
    }
  }
};

TEST_CASE("a sweep is every row, as evaluated one by one") {
  Tables tables(make_decoder(experts_8x7b_shape()), reference_cluster(16), training(64, 4096),
                reference_stack());
  const Enumeration space(training_space(), tables.model(), tables.cluster(), tables.task());
  Collect sink;
  sink.estimates.resize(space.size());
  sink.times.resize(space.size());
  CHECK(sweep(tables, space, {0, space.size()}, 2, sink, {}));
  for (std::uint64_t row = 0; row < space.size(); ++row) {
    CHECK(sink.times[row] == 1);
    const Strategy s = space.at(row);
    tables.tabulate(s);
    CHECK(evaluate(tables, s) == sink.estimates[row]);
  }
}

TEST_CASE("columns have their direction and their value") {
  Estimate e;
  e.step_time = 2 * unit::s;
  e.tokens_per_s = 50;
  e.energy = Joules{25};
  e.cost = Dollars{10};
  CHECK(find_column("step_time_s")->value(e) == 2);
  CHECK(find_column("tokens_per_j")->value(e) == 4);
  CHECK(find_column("usd_per_token")->value(e) == 0.1);
  CHECK(find_column("tokens_per_j")->maximised);
  CHECK(!find_column("energy_j")->maximised);
  for (const std::string_view name : RecordOf<Estimate>::maximised) {
    REQUIRE(find_column(name) != nullptr);
    CHECK(find_column(name)->maximised);
  }
  CHECK(find_column("verdict") == nullptr);
  for (const Column& column : columns()) CHECK(find_column(column.name) == &column);
  const Constraint cheap{find_column("cost_usd"), Comparison::less, 10, nullptr};
  CHECK(!cheap.holds(e));
  CHECK(cheap.bounded());
  const auto with = [&](Comparison comparison, double factor) {
    return Constraint{find_column("cost_usd"), comparison, factor, find_column("step_time_s")}
        .holds(e);
  };
  CHECK(with(Comparison::equal, 5));
  CHECK(with(Comparison::not_equal, 4));
  CHECK(with(Comparison::less_equal, 5));
  CHECK(with(Comparison::greater_equal, 5));
  CHECK(!with(Comparison::greater, 5));
  CHECK(with(Comparison::multiple_of, 2.5));
}

}  // namespace
}  // namespace scalemodel::testing
