// Time of collective operations on a group of ranks.
#pragma once

#include <array>
#include <cstdint>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

template <>
struct EnumNames<Collective> {
  static constexpr std::string_view what = "collective";
  static constexpr std::array<std::string_view, 4> names{"all_reduce", "all_gather",
                                                         "reduce_scatter", "all_to_all"};
};

/// Time of one operation on `group`. `size` follows the convention of nccl-tests: all-reduce, the
/// buffer of a rank; all-gather and reduce-scatter, the whole buffer of all ranks together;
/// all-to-all, what one rank sends to all. A group of one rank costs nothing.
Seconds collective_time(Collective op, Bytes size, const GroupShape& group,
                        const Cluster& cluster) noexcept;

/// Time of one transfer of `size` between neighbours of `group`.
Seconds p2p_time(Bytes size, const GroupShape& group, const Cluster& cluster) noexcept;

}  // namespace scalemodel
