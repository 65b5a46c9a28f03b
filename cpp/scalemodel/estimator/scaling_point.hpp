// One size of a scaling study: what its estimate says per accelerator, joule and dollar.
#pragma once

#include <tuple>

#include "scalemodel/base/record.hpp"
#include "scalemodel/estimator/estimate.hpp"

namespace scalemodel {

struct ScalingPoint {
  double tokens_per_s_per_accelerator = 0;
  double full_attention_mfu_fraction = 0;
  Seconds exposed;
  double exposed_fraction = 0;
  double tokens_per_j = 0, accelerator_tokens_per_j = 0, usd_per_token = 0;

  bool operator==(const ScalingPoint&) const = default;
};

/// Precondition: `estimate` is that of `strategy` in `tables`, and not illegal.
ScalingPoint scaling_point(const Tables& tables, const Strategy& strategy,
                           const Estimate& estimate) noexcept;

template <>
struct RecordOf<ScalingPoint> {
  static constexpr std::string_view name = "ScalingPoint";
  using T = ScalingPoint;
  static constexpr FieldTable fields{
      field("tokens_per_s_per_accelerator", &T::tokens_per_s_per_accelerator,
            "throughput of one accelerator"),
      field("full_attention_mfu_fraction", &T::full_attention_mfu_fraction,
            "MFU with 12 L h s flop of attention per token, masked ones included"),
      field("exposed_s", &T::exposed, "communication between accelerators not hidden"),
      field("exposed_fraction", &T::exposed_fraction, "the same, share of the step"),
      field("tokens_per_j", &T::tokens_per_j, "per joule at the facility's meter"),
      field("accelerator_tokens_per_j", &T::accelerator_tokens_per_j,
            "per joule of the accelerators alone"),
      field("usd_per_token", &T::usd_per_token, "rent")};
};

}  // namespace scalemodel
