// A look at few points of a space: a score that as many strategies reach, before any search.
#include <vector>

#include "scalemodel/search/search.hpp"
#include "search/set_values.hpp"
#include "support.hpp"

namespace scalemodel::testing {
namespace {

Space wide_space() {
  Space s;
  set<&Strategy::tp>(s, {1, 2, 4, 8});
  set<&Strategy::cp>(s, {1, 2, 4});
  set<&Strategy::pp>(s, {1, 2, 4});
  set<&Strategy::vpp>(s, {1, 2});
  set<&Strategy::micro_batch>(s, {1, 2, 4});
  set<&Strategy::sequence_parallel>(s, {false, true});
  set<&Strategy::sharding>(s, {Sharding::ddp, Sharding::zero1, Sharding::zero3});
  set<&Strategy::recompute>(s, {Recompute::none, Recompute::selective, Recompute::full});
  return s;
}

SearchOptions fastest(std::size_t top) {
  SearchOptions options;
  options.objective.terms.push_back({find_column("tokens_per_s"), 1});
  options.top = top;
  return options;
}

TEST_CASE("a quick look finds no better score than the search, and parts lose nothing by it") {
  int near = 0, questions = 0;
  for (Question& q : all_questions(64)) {
    INFO(q.name);
    const Enumeration space(wide_space(), q.tables.model(), q.tables.cluster(), q.tables.task());
    SearchOptions options = fastest(5);
    const SearchResult whole = search(q.tables, space, {0, space.size()}, options, {});
    if (whole.candidates.size() < options.top) continue;
    ++questions;
    const double least = whole.candidates.back().score;
    options.beyond = quick_look(q.tables, space, options);
    CHECK(options.beyond >= least);
    // Scores are negative rates: one within a tenth of the last of the best spares much.
    near += options.beyond <= 0.9 * least ? 1 : 0;

    std::uint64_t evaluated = 0;
    std::vector<Candidate> found;
    constexpr std::uint64_t kParts = 7;
    for (std::uint64_t part = 0; part < kParts; ++part) {
      const RowRange rows{part * space.size() / kParts, (part + 1) * space.size() / kParts};
      const SearchResult of_part = search(q.tables, space, rows, options, {});
      evaluated += of_part.counts.evaluated;
      found.insert(found.end(), of_part.candidates.begin(), of_part.candidates.end());
    }
    CHECK(evaluated < space.size());
    for (const Candidate& best : whole.candidates) {
      CHECK(std::ranges::any_of(found, [&](const Candidate& each) {
        return each.row == best.row && each.score == best.score;
      }));
    }
  }
  CHECK(questions > 3);
  CHECK(2 * near > questions);
}

TEST_CASE("a quick look says nothing where nothing is pruned or too few strategies fit") {
  for (Question& q : all_questions(64)) {
    const Enumeration space(wide_space(), q.tables.model(), q.tables.cluster(), q.tables.task());
    SearchOptions options = fastest(5);
    options.prune = false;
    CHECK(quick_look(q.tables, space, options) == kInfinity);
    CHECK(quick_look(q.tables, space, fastest(1'000'000)) == kInfinity);
  }
}

}  // namespace
}  // namespace scalemodel::testing
