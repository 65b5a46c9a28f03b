// Time of collective operations on a group of ranks.
#pragma once

#include <array>
#include <cstdint>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

/// How a collective is carried out. `best` is the fastest that the library has for the group;
/// protocols (LL, LL128, Simple) are branches of each, not algorithms.
enum class Algorithm : std::uint8_t {
  best,
  ring,
  tree,          ///< double binary tree over domains, chains inside
  nvls,          ///< the switch of a domain reduces or multicasts
  nvls_tree,     ///< the switch inside domains, a double binary tree over them
  pat,           ///< logarithmic all-gather and reduce-scatter, one rank per domain
  sharp,         ///< the switches between domains reduce
  hierarchical,  ///< inside domains first, then along rails; no library chooses it for reductions
  direct,        ///< every pair of ranks exchanges messages
};

template <>
struct EnumNames<Algorithm> {
  static constexpr std::string_view what = "algorithm";
  static constexpr std::array<std::string_view, 9> names{
      "best", "ring", "tree", "nvls", "nvls_tree", "pat", "sharp", "hierarchical", "direct"};
};

/// Whether the hardware of `cluster` and the shape of `group` allow `algorithm` for `op`.
bool is_legal(Collective op, Algorithm algorithm, const GroupShape& group,
              const Cluster& cluster) noexcept;

/// Time of one operation on `group`. `size` follows the convention of nccl-tests: all-reduce, the
/// buffer of a rank; all-gather and reduce-scatter, the whole buffer of all ranks together;
/// all-to-all, what one rank sends to all. A group of one rank costs nothing. A measured curve of
/// the cluster for this operation and group wins over the model.
Seconds collective_time(Collective op, Bytes size, const GroupShape& group,
                        const Cluster& cluster) noexcept;

/// The same with a given algorithm, without measured curves. Precondition: is_legal.
Seconds collective_time(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster,
                        Algorithm algorithm) noexcept;

/// The fastest legal algorithm that the library itself would consider. Precondition: ranks >= 2.
Algorithm best_algorithm(Collective op, Bytes size, const GroupShape& group,
                         const Cluster& cluster) noexcept;

/// Bytes that the domain with most to send sends to the others in one operation on `group`, through
/// all of its ports; `size` as in collective_time, which divides them by bandwidths. Inside one
/// domain: none. `best` counts as a ring. Precondition: is_legal.
Bytes domain_bytes(Collective op, Algorithm algorithm, Bytes size,
                   const GroupShape& group) noexcept;

/// Time of one transfer of `size` between neighbours of `group`.
Seconds p2p_time(Bytes size, const GroupShape& group, const Cluster& cluster) noexcept;

}  // namespace scalemodel
