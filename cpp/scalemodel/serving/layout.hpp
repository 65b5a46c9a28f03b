// How one instance of a served model is spread over accelerators.
#pragma once

#include <cstdint>
#include <tuple>

#include "scalemodel/base/reason.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// Degrees of one instance. Attention and dense layers are split over `tp` ranks and repeated over
/// `dp`, which share the sequences out; experts are spread over `ep` of the tp dp cp ranks of a
/// stage and each expert is split over the rest.
struct ServingLayout {
  std::uint16_t tp = 1, pp = 1, ep = 1, dp = 1, cp = 1;

  constexpr int stage_ranks() const { return tp * dp * cp; }
  constexpr int ranks() const { return stage_ranks() * pp; }
  bool operator==(const ServingLayout&) const = default;
};

template <>
struct RecordOf<ServingLayout> {
  static constexpr std::string_view name = "ServingLayout";
  using T = ServingLayout;
  static constexpr std::tuple fields{
      field("tp", &T::tp, 1, 65535, "ranks that split every layer"),
      field("pp", &T::pp, 1, 65535, "pipeline stages"),
      field("ep", &T::ep, 1, 65535, "ranks over which the experts are sharded"),
      field("dp", &T::dp, 1, 65535, "attention data-parallel ranks of a stage"),
      field("cp", &T::cp, 1, 65535, "ranks over which a prompt is sharded")};
};

/// `ok`, or why the layout is none: precondition of everything else in this module.
Reason check_layout(const Model& model, const ServingLayout& layout,
                    const Cluster& cluster) noexcept;

}  // namespace scalemodel
