// Time of sending tokens to the ranks of their experts and back.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Constants of one direction (dispatch or combine) of one library on one accelerator.
struct DispatchKernel {
  Seconds launch;               ///< fixed time of a call
  Seconds doubling;             ///< per doubling of the nodes, or of the ranks of one domain
  Seconds choice;               ///< per expert a token chooses
  Seconds sender;               ///< per token and sending block
  double value_bytes = 2;       ///< per value of a token, scales included
  BytesPerSecond block_rate;    ///< of one communication multiprocessor; 0: not limited
  BytesPerSecond domain_rate;   ///< of a rank inside its scale-up domain; 0: nothing is sent
  BytesPerSecond network_rate;  ///< of a rank's network port
  double blend = 1;             ///< exponent of the smooth minimum of the first two rates
  double spine_nodes = 1;       ///< nodes that reach each other at the full network rate
  double spine_fraction = 1;    ///< of the network rate, between more nodes than those
  bool copies_once = true;      ///< a token goes once to a rank that holds several choices
  bool counts_ranks = false;    ///< `doubling` counts ranks instead of nodes

  bool operator==(const DispatchKernel&) const = default;
};

/// One call as every rank makes it.
struct DispatchWork {
  double tokens = 0;  ///< of one rank
  double hidden = 0;
  double topk = 1;
  double experts = 1;
  double ranks = 1;
  double nodes = 1;
  double communication_blocks = 0;  ///< multiprocessors given to the kernel; 0: as it likes
  double sending_blocks = 1;        ///< blocks of the accelerator that can send at once
};

/// Distinct places, of `places`, that `topk` even choices reach: places (1 - (1 - 1/places)^topk).
double distinct_places(double places, double topk) noexcept;

/// With R ranks on N nodes, n = R/N:
///
///     copies once:  inside = distinct(R) (R-1)/R, between = distinct(N) (N-1)/N   per token
///     otherwise:    inside = topk (n-1)/R,        between = topk (N-1)/N
///     t = launch + doubling log2(N or R) + choice topk + sender tokens/min(experts, blocks)
///         + inside and between, in bytes over their rates
///
/// Copies inside and between nodes overlap where they are made once (a node forwards what arrives);
/// otherwise every choice is one message and they add up. The rate inside a domain is the smooth
/// minimum of the communication blocks' and the domain's. DeepEP (low latency) starts one sending
/// block per expert, so that few experts send slowly whatever the network. Beyond `spine_nodes` the
/// published runs reach half the rate of a 400 Gbit/s port; why is not known.
Seconds dispatch_time(const DispatchWork& work, const DispatchKernel& kernel) noexcept;

template <>
struct RecordOf<DispatchKernel> {
  static constexpr std::string_view name = "DispatchKernel";
  using T = DispatchKernel;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("doubling_s", &T::doubling, 0, 1, "per doubling of nodes or ranks"),
      field("choice_s", &T::choice, 0, 1, "per expert a token chooses"),
      field("sender_s", &T::sender, 0, 1, "per token and sending block"),
      field("value_bytes", &T::value_bytes, 0, 16, "bytes per value of a token"),
      field("block_bytes_per_s", &T::block_rate, 0, 1e15, "of one communication block"),
      field("domain_bytes_per_s", &T::domain_rate, 0, 1e15, "inside the scale-up domain"),
      field("network_bytes_per_s", &T::network_rate, 0, 1e15, "of a rank's network port"),
      field("blend", &T::blend, 0.5, 100, "exponent of the smooth minimum"),
      field("spine_nodes", &T::spine_nodes, 1, 1e6, "nodes at the full network rate"),
      field("spine_fraction", &T::spine_fraction, 0.01, 1, "of it, between more nodes"),
      field("copies_once", &T::copies_once, "one copy per rank that holds several choices"),
      field("counts_ranks", &T::counts_ranks, "doublings of ranks instead of nodes")};
};

}  // namespace scalemodel
