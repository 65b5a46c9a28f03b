// Pooled embedding tables on the ranks of a mesh: lookups, exchanges, updates and memory.
#pragma once

#include <array>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/strategy/mesh.hpp"

namespace scalemodel {

/// One collective of a schedule.
struct Transfer {
  Seconds time;
  Bytes size;  ///< in the convention of `collective_time`
  Collective op = Collective::all_reduce;
  std::uint8_t level = 0;  ///< 0: inside a scale-up domain, 1: over the fabric
};

inline bool takes_part(const Transfer& moved) { return moved.time > Seconds{}; }

/// Levels as a set of bits; empty for a transfer of no time.
inline std::uint8_t level_bit(const Transfer& moved) {
  return takes_part(moved) ? static_cast<std::uint8_t>(1 << moved.level) : std::uint8_t{0};
}

/// A collective on the ranks of one axis, without what an ablation leaves out.
Transfer transfer(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster,
                  const Ablation& ablation);

/// Tables of one rank (the busiest) for one micro-batch. Of the transfers in a list those that take
/// part come first.
struct TableCost {
  Seconds lookup, update;
  std::array<Transfer, kMaxAxes> forward{}, backward{};  ///< exchanges in their order
  std::array<Transfer, kMaxAxes> indices{};              ///< of the next micro-batch
  std::array<Transfer, kMaxAxes> gradients{};  ///< of replicas: whole tables, touched rows
  double parameters = 0;                       ///< of the fullest rank
  Bytes tables, states;                        ///< the same in bytes
  Bytes buffers;                               ///< pooled rows on either side of the exchange
  Bytes looked_up;                             ///< rows of the mean rank
  double imbalance = 1;                        ///< lookups of the busiest rank over the mean
};

/// `samples` of a rank behind the exchange; `trained`: rows are updated; `lookup_fraction`: share
/// of memory bandwidth that pooled lookups and updates reach.
TableCost table_cost(const TableSet& set, const Mesh& mesh, double samples, bool trained,
                     const Cluster& cluster, const Ablation& ablation, double lookup_fraction);

}  // namespace scalemodel
