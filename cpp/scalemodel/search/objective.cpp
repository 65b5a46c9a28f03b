#include "scalemodel/search/objective.hpp"

#include <algorithm>
#include <array>

namespace scalemodel {
namespace {

/// Numeric fields of Estimate: all but the verdict.
constexpr std::size_t kFields = field_count<Estimate> - 1;
constexpr std::size_t kColumns = kFields + 2;

double tokens(const Estimate& e) { return e.tokens_per_s * e.step_time.base(); }

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

template <std::size_t... I>
std::array<Column, kColumns> make_columns(std::index_sequence<I...> /*fields*/) {
  // Field 0 is the verdict.
  std::array<Column, kColumns> all{
      Column{field_at<I + 1>(RecordOf<Estimate>::fields).name, &field_number<Estimate, I + 1>}...,
      Column{"tokens_per_j", [](const Estimate& e) { return tokens(e) / e.energy.base(); }},
      Column{"usd_per_token", [](const Estimate& e) { return e.cost.base() / tokens(e); }}};
  for (Column& column : all) {
    column.maximised = column.name == "tokens_per_j" || is_maximised<Estimate>(column.name);
    column.bounded =
        is_any(column.name, {"step_time_s", "tokens_per_s", "mfu_fraction", "energy_j", "cost_usd",
                             "memory_bytes", "tokens_per_j", "usd_per_token"});
    const bool total =
        is_any(column.name, {"memory_bytes", "memory_capacity_bytes", "host_memory_bytes"});
    column.of_kinds =
        (column.name.starts_with("memory_") && !total) || column.name == "fullest_stage";
    const bool both = is_any(column.name, {"tokens_per_j", "usd_per_token"});
    column.derived.work =
        both || is_any(column.name, {"tokens_per_s", "mfu_fraction", "hfu_fraction"});
    column.derived.power = both || is_any(column.name, {"power_w", "energy_j", "cost_usd"});
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

}  // namespace scalemodel
