// Time of looking rows up in embedding tables.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

/// Constants of a lookup kernel on one accelerator.
struct LookupKernel {
  Seconds launch;
  double memory_fraction = 1;  ///< of memory bandwidth: rows are read at random

  bool operator==(const LookupKernel&) const = default;
};

/// Bags of a batch: every sample reads `pooling` rows of each table and writes their sum.
struct EmbeddingBags {
  double tables = 1;
  double batch = 0;
  double pooling = 1;
  double dim = 0;
  double value_bytes = 4;
};

/// Bytes of a forward pass: rows and 8-byte indices read, sums written. A token embedding is one
/// table with pooling 1.
constexpr Bytes lookup_bytes(const EmbeddingBags& bags) noexcept {
  const double row = bags.dim * bags.value_bytes;
  return Bytes{bags.batch * bags.tables * (bags.pooling * (row + 8) + row)};
}

/// t = launch + bytes/(e W). Fitted to token embeddings (error 4-6 % above 20 us); pooled bags are
/// known from ten published rows only, whose accelerator is not named: an error bar of a factor
/// two. The optimizer's update of touched rows is not included (see estimator/evaluate.cpp for
/// dense parameters).
constexpr Seconds lookup_time(const EmbeddingBags& bags, const LookupKernel& kernel,
                              const Accelerator& accelerator) noexcept {
  if (bags.batch <= 0) return Seconds{};
  return kernel.launch +
         lookup_bytes(bags) / (kernel.memory_fraction * accelerator.memory_bandwidth);
}

template <>
struct RecordOf<LookupKernel> {
  static constexpr std::string_view name = "LookupKernel";
  using T = LookupKernel;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("memory_fraction", &T::memory_fraction, 1e-3, 2, "of memory bandwidth")};
};

}  // namespace scalemodel
