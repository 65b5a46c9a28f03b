// What a network leaves of its ideal bandwidth to the communicators of each axis.
#pragma once

#include <tuple>

#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Parts of the ideal rate between domains that the slowest flow of each axis gets: on a network
/// with paths that collide, or with links down, below one. Expert-parallel groups include the
/// tensor-parallel groups of experts; data-parallel groups those that shard states.
struct NetworkShares {
  double tp = 1, cp = 1, ep = 1, pp = 1, dp = 1;

  bool operator==(const NetworkShares&) const = default;
};

template <>
struct RecordOf<NetworkShares> {
  static constexpr std::string_view name = "NetworkShares";
  using T = NetworkShares;
  static constexpr double least = 1e-9;
  static constexpr FieldTable fields{
      field("tp", &T::tp, least, 1, "of tensor-parallel groups"),
      field("cp", &T::cp, least, 1, "of context-parallel groups"),
      field("ep", &T::ep, least, 1, "of expert-parallel groups"),
      field("pp", &T::pp, least, 1, "of neighbouring pipeline stages"),
      field("dp", &T::dp, least, 1, "of data-parallel groups")};
};

}  // namespace scalemodel
