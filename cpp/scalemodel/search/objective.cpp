#include "scalemodel/search/objective.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

namespace scalemodel {
namespace {

/// Numeric fields of Estimate: all but the verdict.
constexpr std::size_t kFields = std::tuple_size_v<decltype(RecordOf<Estimate>::fields)> - 1;
constexpr std::size_t kColumns = kFields + 2;

template <class M>
double number(const M& member) {
  if constexpr (std::is_arithmetic_v<M>) {
    return static_cast<double>(member);
  } else {
    return member.base();
  }
}

template <std::size_t I>
double field_value(const Estimate& estimate) {
  return number(estimate.*(std::get<I>(RecordOf<Estimate>::fields).member));
}

double tokens(const Estimate& e) { return e.tokens_per_s * e.step_time.base(); }

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

template <std::size_t... I>
std::array<Column, kColumns> make_columns(std::index_sequence<I...> /*fields*/) {
  // Field 0 is the verdict.
  std::array<Column, kColumns> all{
      Column{std::get<I + 1>(RecordOf<Estimate>::fields).name, &field_value<I + 1>}...,
      Column{"tokens_per_j", [](const Estimate& e) { return tokens(e) / e.energy.base(); }},
      Column{"usd_per_token", [](const Estimate& e) { return e.cost.base() / tokens(e); }}};
  for (Column& column : all) {
    column.maximised =
        is_any(column.name, {"tokens_per_s", "mfu_fraction", "hfu_fraction", "tokens_per_j"});
    column.bounded =
        is_any(column.name, {"step_time_s", "tokens_per_s", "mfu_fraction", "energy_j", "cost_usd",
                             "memory_bytes", "tokens_per_j", "usd_per_token"});
    column.positive = column.bounded || is_any(column.name, {"hfu_fraction", "power_w"});
  }
  return all;
}

const std::array<Column, kColumns> kAllColumns = make_columns(std::make_index_sequence<kFields>());

}  // namespace

std::span<const Column> columns() { return kAllColumns; }

const Column* find_column(std::string_view name) {
  for (const Column& column : kAllColumns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

double Objective::score(const Estimate& estimate) const {
  const auto signed_value = [](const Term& term, double value) {
    return term.column->maximised ? -value : value;
  };
  if (terms.size() == 1) return signed_value(terms[0], terms[0].column->value(estimate));
  double sum = 0;
  for (const Term& term : terms) {
    sum += term.weight * signed_value(term, std::log(term.column->value(estimate)));
  }
  return sum;
}

bool Objective::bounded() const {
  return std::ranges::all_of(terms, [](const Term& term) { return term.column->bounded; });
}

bool Constraint::holds(const Estimate& estimate) const {
  const double value = left->value(estimate);
  const double limit = factor * (right == nullptr ? 1 : right->value(estimate));
  switch (comparison) {
    case Comparison::less:
      return value < limit;
    case Comparison::less_equal:
      return value <= limit;
    case Comparison::equal:
      return value == limit;
    case Comparison::not_equal:
      return value != limit;
    case Comparison::greater_equal:
      return value >= limit;
    case Comparison::greater:
      return value > limit;
    case Comparison::multiple_of:
      return std::fmod(value, limit) == 0;
  }
  return false;
}

bool Constraint::bounded() const {
  const bool constant = right == nullptr || right->name == "memory_capacity_bytes";
  const bool below = comparison == Comparison::less || comparison == Comparison::less_equal;
  const bool above = comparison == Comparison::greater || comparison == Comparison::greater_equal;
  return constant && left->bounded && (left->maximised ? above : below);
}

}  // namespace scalemodel
