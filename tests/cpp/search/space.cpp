#include "scalemodel/search/space.hpp"

#include <map>
#include <set>
#include <string>

#include "scalemodel/base/error.hpp"
#include "scalemodel/search/options.hpp"
#include "search/set_values.hpp"
#include "support.hpp"

namespace scalemodel::testing {
namespace {

/// Every knob of a decoder with several values.
Space many_strategies() {
  Space s;
  set<&Strategy::tp>(s, {1, 2, 4, 8});
  set<&Strategy::cp>(s, {1, 2});
  set<&Strategy::pp>(s, {1, 2, 4});
  set<&Strategy::ep>(s, {1, 2, 4});
  set<&Strategy::etp>(s, {0, 1, 2});
  set<&Strategy::vpp>(s, {1, 2});
  set<&Strategy::micro_batch>(s, {1, 2, 3});
  set<&Strategy::schedule>(s, {Schedule::one_f_one_b, Schedule::interleaved, Schedule::dualpipe});
  set<&Strategy::sharding>(s, {Sharding::zero1, Sharding::ddp, Sharding::zero3, Sharding::hsdp});
  set<&Strategy::shard_degree>(s, {0, 2, 4, 5});
  set<&Strategy::secondary_degree>(s, {0, 2, 3, 4});
  set<&Strategy::quantized_gather>(s, {true, false});
  set<&Strategy::recompute>(s, {Recompute::none, Recompute::full});
  set<&Strategy::recompute_layers>(s, {0, 1, 2, 64});
  set<&Strategy::context>(s, {ContextParallel::ring, ContextParallel::all_to_all});
  set<&Strategy::sequence_parallel>(s, {true, false});
  set<&Strategy::regather>(s, {true, false});
  set<&Strategy::split_p2p>(s, {true, false});
  set<&Strategy::overlap_tp>(s, {TensorOverlap::off, TensorOverlap::pipelined});
  set<&Strategy::linear_precision, OrDefault<Precision>>(
      s, {{}, Precision::bf16, Precision::fp8, Precision::fp4});
  s.exclusions.push_back({Strategy{}, 0});
  s.exclusions[0].values.sharding = Sharding::zero3;
  s.exclusions[0].values.pp = 2;
  s.exclusions[0].fields =
      1U << field_index(&Strategy::sharding) | 1U << field_index(&Strategy::pp);
  return s;
}

bool illegal_but_for_memory(const Estimate& e) {
  return is_illegal(e.verdict) && e.verdict != Reason::offload;
}

TEST_CASE("every strategy of a space is legal, occurs once and has the row it says") {
  for (Question& q : all_questions(16)) {
    const Model& model = q.tables.model();
    const Enumeration rows(many_strategies(), model, q.tables.cluster(), q.tables.task());
    INFO(q.name);
    REQUIRE(rows.size() > 0);
    std::set<std::string> seen;
    std::uint64_t groups = 0;
    for (const Point& point : rows.points()) groups += rows.options(point).groups.size();
    CHECK(groups == rows.groups());
    const std::uint64_t step = std::max<std::uint64_t>(1, rows.size() / 3000);
    for (std::uint64_t row = 0; row < rows.size(); row += step) {
      const Strategy s = rows.at(row);
      const std::size_t p = rows.point_of(row);
      CHECK(rows.points()[p].first_row <= row);
      CHECK(!(s.sharding == Sharding::zero3 && s.pp == 2));
      q.tables.tabulate(s);
      CHECK(!illegal_but_for_memory(evaluate(q.tables, s)));
      const Strategy c = canonical(s, model, q.tables.cluster(), q.tables.task());
      std::string text;
      for_each_field<Strategy>([&](const auto& field) {
        text += std::to_string(static_cast<long>(c.*(field.member))) + " ";
      });
      CHECK(seen.insert(text).second);
    }
  }
}

TEST_CASE("a space holds what counting by hand finds") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(8), training(8, 2048),
                      reference_stack());
  Space s;
  set<&Strategy::tp>(s, {1, 2, 3, 4, 8});
  const auto size = [&](const Space& space) {
    return Enumeration(space, tables.model(), tables.cluster(), tables.task()).size();
  };
  CHECK(size(s) == 4);  // 3 does not divide 8 accelerators
  s.relations.push_back({{1, {Variable::tp}}, Comparison::less, {0.5, {Variable::domain}}});
  CHECK(size(s) == 2);
  s.relations.clear();
  set<&Strategy::micro_batch>(s, {1, 2, 4, 8});
  // dp = 8, 4, 2, 1 leaves 1, 2, 4, 8 sequences a replica.
  CHECK(size(s) == 1 + 2 + 3 + 4);
  set<&Strategy::sequence_parallel>(s, {true, false});
  CHECK(size(s) == 1 + 2 * (2 + 3 + 4));
  s.redundant = 1U << field_index(&Strategy::sequence_parallel);
  CHECK(size(s) == 2 * (1 + 2 + 3 + 4));
  s.tiers = true;
  // Where both dp and tp have several ranks, one of them may come first.
  CHECK(size(s) == 2 * (1 + 2 * 2 + 2 * 3 + 4));
  s.redundant |= 1U << field_index(&Strategy::placement);
  // dp or tp or both have more than one rank: 2 tiers per axis.
  CHECK(size(s) == 2 * (2 * 1 + 4 * 2 + 4 * 3 + 2 * 4));
}

TEST_CASE("a space takes every switch of a strategy, whether or not the search knows it by name") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(16), training(16, 2048),
                      reference_stack());
  for_each_field<Strategy>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(Strategy{}.*(field.member))>;
    if constexpr (std::is_same_v<Value, bool>) {
      INFO(field.name);
      Space s;
      set<&Strategy::tp>(s, {2});
      set<&Strategy::pp>(s, {2});
      set<&Strategy::sharding>(s, {Sharding::zero3});
      set<&Strategy::sequence_parallel>(s, {true, false});
      std::map<bool, int> rows;
      std::apply(
          [&](auto&... listed) {
            std::size_t index = 0;
            const auto fill = [&](auto& values) {
              if (index++ != field_index(field.member)) return;
              if constexpr (std::is_same_v<std::remove_cvref_t<decltype(values)>,
                                           std::vector<bool>>) {
                values = {false, true};
              }
            };
            (fill(listed), ...);
          },
          s.values);
      const Enumeration all(s, tables.model(), tables.cluster(), tables.task());
      for (std::uint64_t row = 0; row < all.size(); ++row) ++rows[all.at(row).*(field.member)];
      CHECK(rows.size() == 2);
    }
  });
}

TEST_CASE("a space that memory does not hold is refused with what is too large") {
  constexpr std::uint64_t most = std::uint64_t{1} << 23;
  CHECK_NOTHROW(require_listable(most));
  const std::string said =
      "space: 8388609 combinations or more, of at most 8388608, of knobs "
      "beside the degrees, sharding, offload and overlaps of gradients and "
      "parameters: give fewer values";
  CHECK_THROWS_WITH_AS(require_listable(most + 1), said.c_str(), MalformedQuestion);
}

TEST_CASE("rows are cut between points where one begins near enough") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(16), training(16, 2048),
                      reference_stack());
  const Enumeration space(many_strategies(), tables.model(), tables.cluster(), tables.task());
  std::vector<std::uint64_t> begins{space.size()};
  for (const Point& point : space.points()) begins.push_back(point.first_row);
  int between = 0, others = 0;
  for (std::uint64_t row = 0; row < space.size(); row += 1 + space.size() / 1000) {
    for (const std::uint64_t most : {std::uint64_t{0}, std::uint64_t{10}, space.size()}) {
      const auto distance = [&](std::uint64_t begin) {
        return std::max(begin, row) - std::min(begin, row);
      };
      const std::uint64_t nearest = distance(*std::ranges::min_element(begins, {}, distance));
      const std::uint64_t cut = space.cut_near(row, most);
      if (nearest > most) {
        CHECK(cut == row);
        ++others;
      } else {
        CHECK(std::ranges::find(begins, cut) != begins.end());
        CHECK(distance(cut) == nearest);
        ++between;
      }
    }
  }
  CHECK(between > 100);
  CHECK(others > 100);
}

TEST_CASE("parts of a space hold every row once and are of nearly equal size") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(16), training(16, 2048),
                      reference_stack());
  const Enumeration space(many_strategies(), tables.model(), tables.cluster(), tables.task());
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{7}, space.size() / 3, space.size(), 2 * space.size() + 1}) {
    const std::vector<std::uint64_t> starts = space.parts(count);
    REQUIRE(starts.size() == count + 1);
    CHECK(starts.front() == 0);
    CHECK(starts.back() == space.size());
    const std::uint64_t most = space.size() / count / 4;
    for (std::uint64_t i = 1; i < count; ++i) {
      CHECK(starts[i - 1] <= starts[i]);
      CHECK(starts[i] == space.cut_near(space.size() * i / count, most));
    }
  }
}

TEST_CASE("relations compare products of degrees and sizes") {
  const Tables tables(make_decoder(experts_8x7b_shape()), reference_cluster(16), training(64, 4096),
                      reference_stack());
  Space s = many_strategies();
  const auto rows = [&](Comparison comparison) {
    Space limited = s;
    limited.relations = {{{2, {Variable::tp, Variable::pp}}, comparison, {1, {Variable::dp}}}};
    return Enumeration(limited, tables.model(), tables.cluster(), tables.task()).size();
  };
  const std::uint64_t all = Enumeration(s, tables.model(), tables.cluster(), tables.task()).size();
  CHECK(rows(Comparison::less) + rows(Comparison::greater_equal) == all);
  CHECK(rows(Comparison::less_equal) + rows(Comparison::greater) == all);
  CHECK(rows(Comparison::equal) + rows(Comparison::not_equal) == all);
  CHECK(rows(Comparison::equal) > 0);
  CHECK(rows(Comparison::multiple_of) >= rows(Comparison::equal));
  for (std::size_t v = 0; v < EnumNames<Variable>::names.size(); ++v) {
    Space limited = s;
    const auto variable = static_cast<Variable>(v);
    limited.relations = {{{1, {variable}}, Comparison::greater_equal, {1, {}}}};
    INFO(name_of(variable));
    CHECK(Enumeration(limited, tables.model(), tables.cluster(), tables.task()).size() == all);
  }
}

TEST_CASE("a spelling is left out only where the space holds the other one") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(8), training(8, 2048),
                      reference_stack());
  const auto shards = [&](std::initializer_list<Sharding> shardings,
                          std::initializer_list<int> degrees, std::uint32_t redundant = 0) {
    Space s;
    set<&Strategy::sharding>(s, shardings);
    set<&Strategy::shard_degree>(s, degrees);
    s.redundant = redundant;
    return Enumeration(s, tables.model(), tables.cluster(), tables.task()).size();
  };
  using enum Sharding;
  // Eight replicas: all of them, one, and what a node holds.
  CHECK(shards({hsdp}, {8}) == 1);
  CHECK(shards({hsdp}, {1}) == 1);
  CHECK(shards({hsdp}, {0}) == 1);
  CHECK(shards({hsdp}, {3}) == 0);
  CHECK(shards({hsdp, zero3}, {8, 4}) == 2);
  CHECK(shards({hsdp, ddp}, {1, 4}) == 2);
  CHECK(shards({hsdp, zero1}, {1, 8, 2}) == 4);
  constexpr auto kDegree = 1U << field_index(&Strategy::shard_degree);
  constexpr auto kSharding = 1U << field_index(&Strategy::sharding);
  CHECK(shards({zero1}, {3, 5}, kDegree) == 2);
  CHECK(shards({hsdp, zero1}, {3, 4}, kDegree) == 1 + 2);
  CHECK(shards({hsdp, zero3}, {8, 4}, kSharding) == 2 + 1);
}

TEST_CASE("what kept combinations out of a space is counted") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(8), training(8, 2048),
                      reference_stack());
  Space s;
  set<&Strategy::tp>(s, {3, 5, 8});
  s.relations.push_back({{1, {Variable::tp}}, Comparison::less, {4, {}}});
  const Enumeration rows(s, tables.model(), tables.cluster(), tables.task());
  CHECK(rows.size() == 0);
  REQUIRE(rows.refusals().size() == 2);
  CHECK(rows.refusals()[0].reason == Reason::mesh);
  CHECK(rows.refusals()[0].combinations == 2);
  CHECK(rows.refusals()[0].first.tp == 3);
  CHECK(rows.refusals()[1].rule == Rule::relation);
  CHECK(rows.refusals()[1].first.tp == 8);
}

TEST_CASE("a space nobody can satisfy is empty") {
  const Tables tables(make_decoder(gpt3_shape()), reference_cluster(8), training(8, 2048),
                      reference_stack());
  Space s;
  set<&Strategy::linear_precision>(s, {Precision::fp4});
  CHECK(Enumeration(s, tables.model(), tables.cluster(), tables.task()).size() == 0);
  Space many;
  many.exclusions.resize(65);
  CHECK_THROWS(Enumeration(many, tables.model(), tables.cluster(), tables.task()));
}

}  // namespace
}  // namespace scalemodel::testing
