// The all-reduce kernels that serving engines use inside a domain in place of the library's.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/fabric/levels.hpp"

namespace scalemodel {

/// Two kernels: every rank reads every other's buffer (one-shot), or its share of them and then
/// the reduced shares (two-shot). Constants belong to a kernel and a link class.
struct CustomAllReduce {
  Seconds start1, per_rank1;
  double bandwidth_fraction1 = 1;
  Seconds start2, per_rank2;
  double bandwidth_fraction2 = 1;
  double host_share = 0;  ///< slowdown by every rank beyond two, where all cross host memory
  Seconds host_floor;     ///< CPU overhead of a launch, the least time of a call; 0 in a CUDA graph

  bool operator==(const CustomAllReduce&) const = default;
};

template <>
struct RecordOf<CustomAllReduce> {
  static constexpr std::string_view name = "CustomAllReduce";
  using T = CustomAllReduce;
  static constexpr FieldTable fields{
      field("start1_s", &T::start1, 0, 1, "fixed time, one-shot"),
      field("per_rank1_s", &T::per_rank1, 0, 1, "time per rank, one-shot"),
      field("bandwidth_fraction1", &T::bandwidth_fraction1, 1e-4, 1, "of the link, one-shot"),
      field("start2_s", &T::start2, 0, 1, "fixed time, two-shot"),
      field("per_rank2_s", &T::per_rank2, 0, 1, "time per rank, two-shot"),
      field("bandwidth_fraction2", &T::bandwidth_fraction2, 1e-4, 1, "of the link, two-shot"),
      field("host_share", &T::host_share, 0, 100,
            "slowdown by every rank beyond two, across host memory"),
      field("host_floor_s", &T::host_floor, 0, 1,
            "CPU overhead of a launch: least time of a call")};
};

/// With n ranks on links of L bytes per second:
///
///     t = max( host floor, min( a1 + l1 (n-1) + h S (n-1)/(b1 L),
///                               a2 + l2 (n-1) + 2 h S (n-1)/(n b2 L) ) )
///
/// h = 1 + host share (n-2); without it every pair is joined at full link rate (a switch), and in a
/// host of stated levels no rate is above that of the slowest one crossed. A group of one rank
/// costs nothing.
constexpr Seconds custom_all_reduce_time(Bytes size, const GroupShape& group, const ScaleUp& up,
                                         const CustomAllReduce& kernel) noexcept {
  const int ranks = group.ranks;
  if (ranks <= 1 || size <= Bytes{}) return Seconds{};
  const double others = ranks - 1;
  const BytesPerSecond crossing = crossing_bandwidth(up, group);
  const auto moved = [&](double passes, double fraction) {
    const Bytes bytes = passes * size;
    const double host = up.levels.switched > 0 ? 1 : 1 + kernel.host_share * (others - 1);
    const Seconds free = (host * bytes) / (fraction * up.bandwidth);
    return crossing > BytesPerSecond{} ? max(free, bytes / crossing) : free;
  };
  const Seconds one_shot =
      kernel.start1 + others * kernel.per_rank1 + moved(others, kernel.bandwidth_fraction1);
  const Seconds two_shot = kernel.start2 + others * kernel.per_rank2 +
                           moved(2 * others / ranks, kernel.bandwidth_fraction2);
  return max(kernel.host_floor, min(one_shot, two_shot));
}

}  // namespace scalemodel
