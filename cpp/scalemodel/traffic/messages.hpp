// What the ranks of a strategy send each other: collectives by communicator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"

namespace scalemodel {

/// The groups of ranks that exchange something. Replicas of a parameter share it out inside shard
/// groups and repeat it between them; experts have replicas of their own.
enum class Communicator : std::uint8_t {
  tp,
  cp,
  ep,
  etp,
  pp,
  dense_shard,
  dense_replica,
  expert_shard,
  expert_replica
};

template <>
struct EnumNames<Communicator> {
  static constexpr std::string_view what = "communicator";
  static constexpr std::array<std::string_view, 9> names{"tp",
                                                         "cp",
                                                         "ep",
                                                         "etp",
                                                         "pp",
                                                         "dense_shard",
                                                         "dense_replica",
                                                         "expert_shard",
                                                         "expert_replica"};
};

/// The axis of the mesh that a communicator's time counts for.
constexpr std::string_view axis_of(Communicator communicator) {
  switch (communicator) {
    case Communicator::tp:
    case Communicator::cp:
    case Communicator::ep:
    case Communicator::pp:
      return name_of(communicator);
    case Communicator::etp:
      return "ep";
    case Communicator::dense_shard:
    case Communicator::dense_replica:
    case Communicator::expert_shard:
    case Communicator::expert_replica:
      return "dp";
  }
  return {};
}

/// One collective, or one transfer from every rank to its neighbour.
struct Message {
  Communicator communicator = Communicator::tp;
  std::optional<Collective> op;  ///< none: a transfer
  Bytes size;                    ///< as in collective_time, or of the transfer
  GroupShape group;
  double forward = 0, backward = 0;  ///< how often, in each pass of a micro-batch
};
using MessageList = std::vector<Message>;

}  // namespace scalemodel
