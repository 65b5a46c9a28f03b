// Messages between the ranks of a strategy: collectives by communicator.
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

/// The communicators of a strategy. A parameter is sharded within shard groups and replicated
/// across replica groups; dense and expert parameters have different replicas. Ranks of a secondary
/// group share a second copy; a shard group exchanges inside nodes, then along rails, where its
/// reduction is quantised.
enum class Communicator : std::uint8_t {
  tp,
  cp,
  ep,
  etp,
  pp,
  dense_shard,
  dense_replica,
  expert_shard,
  expert_replica,
  dense_secondary,
  expert_secondary,
  dense_node,
  expert_node,
  dense_rail,
  expert_rail
};

template <>
struct EnumNames<Communicator> {
  static constexpr std::string_view what = "communicator";
  static constexpr std::array<std::string_view, 15> names{"tp",
                                                          "cp",
                                                          "ep",
                                                          "etp",
                                                          "pp",
                                                          "dense_shard",
                                                          "dense_replica",
                                                          "expert_shard",
                                                          "expert_replica",
                                                          "dense_secondary",
                                                          "expert_secondary",
                                                          "dense_node",
                                                          "expert_node",
                                                          "dense_rail",
                                                          "expert_rail"};
};

/// The axis of the mesh to which the time of a communicator belongs.
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
    case Communicator::dense_secondary:
    case Communicator::expert_secondary:
    case Communicator::dense_node:
    case Communicator::expert_node:
    case Communicator::dense_rail:
    case Communicator::expert_rail:
      return "dp";
  }
  return {};
}

/// One collective, or one transfer from every rank to its neighbour.
struct Message {
  Communicator communicator = Communicator::tp;
  std::optional<Collective> op;  ///< none: a transfer
  Bytes size;                    ///< as in `collective_time`, or of the transfer
  GroupShape group;
  double forward = 0, backward = 0;  ///< calls in the forward, backward pass of a micro-batch
  double unrepeated = 0;  ///< of the forward ones, those that full recomputation leaves out
};
using MessageList = std::vector<Message>;

}  // namespace scalemodel
