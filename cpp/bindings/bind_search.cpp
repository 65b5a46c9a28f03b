#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "bindings/record_columns.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/simulated.hpp"

namespace scalemodel::bindings {
namespace {

const std::vector<FieldRow>& strategy_fields() { return table_of<Strategy>().fields; }

/// Number of the strategy field of this name.
std::size_t field_number(const std::string& name) {
  const FieldRow* const field = field_of(table_of<Strategy>(), name);
  if (field == nullptr) unknown_field(name, RecordOf<Strategy>::name);
  return static_cast<std::size_t>(field - strategy_fields().data());
}

/// Appends a value to the list of field number I.
template <std::size_t I>
void append_to(Space& space, const py::object& value) {
  auto& values = std::get<I>(space.values);
  typename std::remove_cvref_t<decltype(values)>::value_type item{};
  const FieldRow& field = strategy_fields()[I];
  field.type->assign(field, value, &item);
  values.push_back(item);
}

using Append = void (*)(Space& space, const py::object& value);

constexpr auto kAppend = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<Append, sizeof...(I)>{&append_to<I>...};
}(std::make_index_sequence<std::tuple_size_v<Space::Values>>());

Product product_of(double factor, const Names& names) {
  Product product{factor, {}};
  for (const std::string& name : names) {
    const auto variable = enum_from<Variable>(name);
    if (!variable) {
      throw MalformedQuestion(name + ": no such variable; known are " + all_names<Variable>());
    }
    product.variables.push_back(*variable);
  }
  return product;
}

using RelationRow = std::tuple<double, Names, Comparison, double, Names>;

Space make_space(const py::dict& values, const std::vector<RelationRow>& relations,
                 const std::vector<py::dict>& exclusions, const Names& redundant, bool tiers) {
  Space space;
  for (const auto& [name, listed] : values) {
    const Append append = kAppend[field_number(name.cast<std::string>())];
    for (const py::handle item : listed.cast<py::sequence>()) {
      append(space, py::reinterpret_borrow<py::object>(item));
    }
  }
  for (const auto& [left, left_names, comparison, right, right_names] : relations) {
    space.relations.push_back(
        {product_of(left, left_names), comparison, product_of(right, right_names)});
  }
  for (const py::dict& row : exclusions) {
    Exclusion exclusion;
    for (const auto& [name, value] : row) {
      const std::size_t number = field_number(name.cast<std::string>());
      const FieldRow& field = strategy_fields()[number];
      field.type->assign(field, py::reinterpret_borrow<py::object>(value),
                         field.in(&exclusion.values));
      exclusion.fields |= std::uint32_t{1} << number;
    }
    space.exclusions.push_back(exclusion);
  }
  for (const std::string& name : redundant) {
    space.redundant |= std::uint32_t{1} << field_number(name);
  }
  space.tiers = tiers;
  return space;
}

/// Column of a name, or MalformedQuestion.
const Column* column_of(const std::string& name) {
  const Column* column = find_column(name);
  if (column == nullptr) throw MalformedQuestion(name + ": no such column of an estimate");
  return column;
}

using ObjectiveRow = std::tuple<std::string, double>;
Objective objective_of(const std::vector<ObjectiveRow>& rows) {
  if (rows.empty()) throw MalformedQuestion("objective: at least one column is needed");
  Objective objective;
  for (const auto& [name, weight] : rows) objective.terms.push_back({column_of(name), weight});
  return objective;
}

using ConstraintRow = std::tuple<std::string, Comparison, double, std::optional<std::string>>;

SearchOptions make_options(const std::vector<ObjectiveRow>& objective,
                           const std::vector<ConstraintRow>& constraints, std::size_t top,
                           bool prune, bool too_big) {
  SearchOptions options;
  options.objective = objective_of(objective);
  for (const auto& [left, comparison, factor, right] : constraints) {
    options.constraints.push_back(
        {column_of(left), comparison, factor, right ? column_of(*right) : nullptr});
  }
  options.top = top;
  options.prune = prune;
  options.too_big = too_big;
  return options;
}

RowRange checked_range(const Enumeration& space, std::uint64_t first, std::uint64_t last) {
  if (first > last || last > space.size()) {
    throw MalformedQuestion("rows: must lie within the space");
  }
  return {first, last};
}

/// A space and what its strategies rank by, read once however often rows of it are asked for.
/// Tables and space outlive it.
struct Searcher {
  const Tables& tables;
  const Enumeration& space;
  SearchOptions options;
};

Searcher make_searcher(const Tables& tables, const Enumeration& space,
                       const std::vector<ObjectiveRow>& objective,
                       const std::vector<ConstraintRow>& constraints, std::size_t top, bool prune,
                       bool too_big) {
  return {tables, space, make_options(objective, constraints, top, prune, too_big)};
}

py::tuple search_rows(const Searcher& searcher, std::uint64_t first, std::uint64_t last,
                      int threads, const py::object& progress, double beyond) {
  const RowRange rows = checked_range(searcher.space, first, last);
  SearchOptions options = searcher.options;
  options.threads = threads;
  options.beyond = beyond;
  Interpreter interpreter(progress);
  const Poll poll = interpreter.poll();
  SearchResult result;
  {
    const py::gil_scoped_release release;
    result = search(searcher.tables, searcher.space, rows, options, poll);
  }
  interpreter.rethrow();
  py::list hits;
  for (const Candidate& candidate : result.candidates) {
    hits.append(
        py::make_tuple(candidate.score, candidate.row, candidate.strategy, candidate.estimate));
  }
  py::dict verdicts;
  for (std::size_t i = 0; i < kReasons; ++i) {
    if (result.counts.verdicts[i] == 0) continue;
    verdicts[py::cast(static_cast<Reason>(i))] = result.counts.verdicts[i];
  }
  return py::make_tuple(hits, verdicts, result.counts.pruned, result.counts.constrained);
}

/// Strategy and estimate side by side; the resolved data-parallel degree is the strategy's.
class Columns final : public RowSink {
 public:
  Columns(RowRange rows, const std::optional<Names>& wanted, py::dict& strategies,
          py::dict& estimates)
      : first_(rows.first),
        strategies_(table_of<Strategy>(), rows.size(), wanted, strategies),
        estimates_(table_of<Estimate>(), rows.size(), wanted, estimates) {}

  void put(const RowBlock& block) override {
    strategies_.put<Strategy>(block.first - first_, block.strategies);
    estimates_.put<Estimate>(block.first - first_, block.estimates);
  }

 private:
  std::uint64_t first_;
  RecordColumns strategies_;
  RecordColumns estimates_;
};

py::tuple sweep_rows(const Tables& tables, const Enumeration& space, std::uint64_t first,
                     std::uint64_t last, const std::optional<Names>& wanted, int threads,
                     const py::object& progress) {
  const RowRange rows = checked_range(space, first, last);
  py::dict strategies, estimates;
  Columns sink(rows, wanted, strategies, estimates);
  Interpreter interpreter(progress);
  const Poll poll = interpreter.poll();
  {
    const py::gil_scoped_release release;
    sweep(tables, space, rows, threads, sink, poll);
  }
  interpreter.rethrow();
  return py::make_tuple(strategies, estimates);
}

py::list simulate_strategies(const Tables& tables, const std::vector<Strategy>& strategies,
                             const std::vector<ObjectiveRow>& objective) {
  const Objective wanted = objective_of(objective);
  Tables own = tables.without_cells();
  const std::vector<Simulated> answers =
      listening([&] { return simulate_best(own, strategies, wanted); });
  py::list rows;
  for (const Simulated& answer : answers) {
    const bool known = answer.step_time < Seconds{kInfinity};
    rows.append(
        py::make_tuple(known ? py::cast(answer.step_time / unit::s) : py::none(), answer.score));
  }
  return rows;
}

py::list column_rows() {
  py::list rows;
  for (const Column& column : columns()) {
    py::dict row;
    row["name"] = py::str(column.name.data(), column.name.size());
    row["maximised"] = column.maximised;
    row["bounded"] = column.bounded;
    row["positive"] = column.positive;
    rows.append(row);
  }
  return rows;
}

py::list refusal_rows(const Enumeration& space) {
  py::list rows;
  for (const Refusal& refusal : space.refusals()) {
    rows.append(py::make_tuple(std::string(name_of(refusal.rule)), refusal.reason, refusal.relation,
                               refusal.first, refusal.combinations));
  }
  return rows;
}

Strategy strategy_at(const Enumeration& space, std::uint64_t row) {
  if (row >= space.size()) throw MalformedQuestion("row: must lie within the space");
  return space.at(row);
}

std::vector<std::uint64_t> parts_of(const Enumeration& space, std::uint64_t count) {
  if (count == 0) throw MalformedQuestion("count: must be positive");
  return space.parts(count);
}

double quick_look_of(const Searcher& searcher) {
  return listening([&] { return quick_look(searcher.tables, searcher.space, searcher.options); });
}

double score_among_rows(const Searcher& searcher, const std::vector<std::uint64_t>& rows) {
  return score_among(searcher.tables, searcher.space, rows, searcher.options);
}

}  // namespace

void bind_search(py::module_& m) {
  py::class_<Space>(m, "Space", "Values of every knob and the rules between them.")
      .def(py::init(&make_space), py::arg("values"), py::arg("relations"), py::arg("exclusions"),
           py::arg("redundant"), py::arg("tiers"));
  py::class_<Enumeration>(m, "Enumeration", "The legal strategies of a space, numbered.")
      .def(py::init([](const Space& space, const Model& model, const Cluster& cluster,
                       const Task& task) {
             return listening([&] { return Enumeration(space, model, cluster, task); });
           }),
           py::arg("space"), py::arg("model"), py::arg("cluster"), py::arg("task"))
      .def_property_readonly("size", &Enumeration::size, "Strategies.")
      .def_property_readonly("groups", &Enumeration::groups, "Groups that share a lower bound.")
      .def_property_readonly(
          "points", [](const Enumeration& space) { return space.points().size(); },
          "Sets of degrees, micro-batch and schedule.")
      .def_property_readonly("refusals", &refusal_rows,
                             "Rule, reason, number of the relation, first strategy and number of "
                             "the combinations without a row.")
      .def("strategy", &strategy_at, py::arg("row"), "Strategy number `row`.")
      .def("parts", &parts_of, py::arg("count"),
           "First rows of `count` parts of nearly equal size, and the size: cut between points "
           "where one begins within a quarter of a part.");
  py::class_<Searcher>(m, "Searcher", "A space and what its strategies rank by.")
      .def(py::init(&make_searcher), py::arg("tables"), py::arg("space"), py::arg("objective"),
           py::arg("constraints"), py::arg("top"), py::arg("prune"), py::arg("too_big"),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>())
      .def("search", &search_rows, py::arg("first"), py::arg("last"), py::arg("threads"),
           py::arg("progress"), py::arg("beyond") = kInfinity,
           "Best strategies of the rows [first, last) that score at most `beyond`; of the others "
           "how many by verdict, pruned, and left out by a constraint.")
      .def("quick_look", &quick_look_of,
           "A score that `top` strategies of the space do not exceed; infinite where too few are "
           "seen, or nothing is pruned.")
      .def("score_among", &score_among_rows, py::arg("rows"),
           "A score that `top` of these rows do not exceed; infinite where too few are answers.");
  m.def("canonical", &canonical, py::arg("strategy"), py::arg("model"), py::arg("cluster"),
        py::arg("task"), "The strategy with knobs without effect at their defaults.");
  m.def("simulate_best", &simulate_strategies, py::arg("tables"), py::arg("strategies"),
        py::arg("objective"),
        "Simulated step time, None where it was not simulated, and rank of strategies.");
  m.def(
      "score",
      [](const Estimate& estimate, const std::vector<ObjectiveRow>& objective) {
        return objective_of(objective).score(estimate);
      },
      py::arg("estimate"), py::arg("objective"), "What a search minimises.");
  m.def("columns", &column_rows, "Columns an objective or constraint may name.");
  m.def("variables", [] { return all_names<Variable>(); }, "Variables a relation may name.");
  m.def("sweep", &sweep_rows, py::arg("tables"), py::arg("space"), py::arg("first"),
        py::arg("last"), py::arg("wanted"), py::arg("threads"), py::arg("progress"),
        "Columns of the rows [first, last): of the strategies, of the estimates.");
}

}  // namespace scalemodel::bindings
