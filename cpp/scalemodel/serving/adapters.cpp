#include "scalemodel/serving/adapters.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace scalemodel {
namespace {

constexpr double kValueBytes = 2;  ///< adapters are kept in 16 bits whatever the model's format

/// Values of one adapter of an operator on one rank; experts are spread over the ranks of a stage.
double adapter_values(const Unit& unit, const LayerOperator& op, const Adapters& adapters,
                      const ServingLayout& layout) {
  const double rank = adapters.rank, slices = adapter_slices(op);
  if (unit.on_copies(op)) {
    const double copies = unit.experts + layout.redundant_experts;
    return rank * (slices * op.depth + op.columns) * copies / layout.stage_ranks();
  }
  return rank * (slices * op.local_depth(layout.tp) + op.local_columns(layout.tp));
}

/// Sum over the adapted operators of the fullest pipeline stage.
template <typename Each>
double over_stage(const Model& model, const Adapters& adapters, const ServingLayout& layout,
                  const Each& each) {
  const double stage = std::ceil(static_cast<double>(model.layers()) / layout.pp);
  double sum = 0;
  for (const std::uint8_t index : model.layer_kind) {
    for (const Unit& unit : model.kinds[index].units) {
      for (const LayerOperator& op : unit.operators) {
        if (adapted(adapters, op)) sum += each(unit, op);
      }
    }
  }
  return sum * stage / model.layers();
}

}  // namespace

bool adapted(const Adapters& adapters, const LayerOperator& op) noexcept {
  if (!adapters.any() || !op.has_weight() || op.routes) return false;
  return adapters.targets == LoraTargets::all || op.adapts;
}

double adapter_slices(const LayerOperator& op) noexcept {
  return std::max(1.0, static_cast<double>(op.parts.size()));
}

double widest_slice(const LayerOperator& op, double tp) noexcept {
  double widest = op.parts.empty() ? op.local_columns(tp) : 0;
  for (const ColumnPart& part : op.parts) widest = std::max(widest, op.local_columns(part, tp));
  return widest;
}

double distinct_adapters(const Adapters& adapters, double requests) noexcept {
  const double count = adapters.count;
  const double met = count * (1 - std::pow(1 - 1 / count, requests));
  return std::clamp(met, 1.0, static_cast<double>(adapters.resident()));
}

AdapterBlocks adapter_blocks(double rows, double tokens, double rank, double slices, double depth,
                             double widest) noexcept {
  // Tiles of both kernels. A shrink splits its depth between blocks, to occupy the accelerator.
  constexpr double kShrinkRows = 32, kShrinkColumns = 16, kExpandRows = 64, kExpandColumns = 128;
  constexpr double kFewTokens = 128, kSplitOfFew = 64, kDepthOfFew = 256, kSplit = 8, kDepth = 32;
  const bool few = tokens < kFewTokens;
  const double split = few ? kSplitOfFew : kSplit;
  return {
      .shrink = split * slices * std::ceil(rows / kShrinkRows) * std::ceil(rank / kShrinkColumns),
      .expand = slices * std::ceil(rows / kExpandRows) * std::ceil(widest / kExpandColumns),
      .shrink_passes = std::ceil(depth / split / (few ? kDepthOfFew : kDepth))};
}

Bytes adapter_bytes(const Model& model, const Adapters& adapters, const ServingLayout& layout) {
  if (!adapters.any()) return Bytes{};
  const double values = over_stage(model, adapters, layout, [&](const Unit& unit, const auto& op) {
    return adapter_values(unit, op, adapters, layout);
  });
  return Bytes{kValueBytes * values};
}

double adapter_matrices(const Model& model, const Adapters& adapters, const ServingLayout& layout) {
  return over_stage(model, adapters, layout, [&](const Unit& unit, const auto& op) {
    const double copies =
        unit.on_copies(op)
            ? static_cast<double>(unit.experts + layout.redundant_experts) / layout.stage_ranks()
            : 1;
    return 2 * adapter_slices(op) * copies;
  });
}

Seconds adapter_load_time(const Model& model, const Adapters& adapters, const ServingLayout& layout,
                          BytesPerSecond host_bandwidth, Seconds copy) {
  if (!adapters.any() || host_bandwidth <= BytesPerSecond{}) return Seconds{};
  const double absent = 1 - static_cast<double>(adapters.resident()) / adapters.count;
  return absent * max(adapter_bytes(model, adapters, layout) / host_bandwidth,
                      adapter_matrices(model, adapters, layout) * copy);
}

}  // namespace scalemodel
