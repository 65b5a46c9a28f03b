// A cluster: accelerators in nodes, a scale-up network around each and a scale-out network beyond.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/hardware/measured.hpp"
#include "scalemodel/hardware/network_shares.hpp"

namespace scalemodel {

/// One collective operation inside a scale-up domain: the faster of a latency branch (1) and a
/// bandwidth branch (2); see collectives/collectives.hpp for the form.
struct CollectiveFit {
  Seconds start1, per_rank1;
  double bandwidth_fraction1 = 0;
  Seconds start2, per_rank2;
  double bandwidth_fraction2 = 0;
  Seconds pipeline_fill;
  double own_share = 0;  ///< traffic beyond the ring's, in shares of a rank: small groups lose more
  double host_share = 0;  ///< slowdown by every rank beyond two, where all cross host memory

  bool operator==(const CollectiveFit&) const = default;
};

/// Reduction inside the switch of a scale-up domain (NVLink SHARP).
struct InSwitchFit {
  Seconds start;
  double bandwidth_fraction = 0;  ///< of the link; 0 = the switch cannot reduce
  Seconds pipeline_fill;

  bool operator==(const InSwitchFit&) const = default;
};

/// Levels of a host inside a domain: accelerators below one PCIe switch, root port or NVLink bridge
/// reach each other at the rate of their links, those of one socket and of the whole host share a
/// path. Without levels every pair is joined alike.
struct HostLevels {
  int switched = 0;              ///< accelerators below one switch; 0 = all of the domain
  BytesPerSecond beyond_switch;  ///< of all that crosses between switches at once, one direction
  int socket = 0;                ///< accelerators of one socket; 0 = all of the domain
  BytesPerSecond beyond_socket;  ///< the same between sockets

  constexpr bool any() const noexcept { return switched > 0 || socket > 0; }
  bool operator==(const HostLevels&) const = default;
};

/// The network that joins accelerators into one domain (NVLink and its like).
struct ScaleUp {
  int domain = 1;            ///< accelerators joined; may exceed a node
  BytesPerSecond bandwidth;  ///< per accelerator, one direction
  CollectiveFit all_reduce, all_gather, reduce_scatter, all_to_all;
  Seconds p2p_latency;
  double p2p_fraction = 0;  ///< of the bandwidth, one large transfer
  InSwitchFit in_switch;
  bool carries_fabric = false;  ///< adapters share the links (PCIe)
  HostLevels levels;

  bool operator==(const ScaleUp&) const = default;
};

/// The network between domains.
struct Fabric {
  BytesPerSecond bandwidth;     ///< per accelerator, one direction
  double oversubscription = 1;  ///< between pods: 7 means a seventh of the bandwidth
  int pod = 0;                  ///< accelerators that see the full bandwidth; 0 = all
  Seconds ring_hop_ll128, ring_hop_simple, tree_hop_ll128, tree_hop_simple;
  double latency_factor = 1;      ///< measured over tabulated latency
  double bandwidth_fraction = 0;  ///< of the wire, large rings and trees
  double all_to_all_fraction = 0;
  Seconds p2p_latency;
  double p2p_fraction = 0;
  bool in_network_reduction = false;  ///< switches reduce (InfiniBand SHARP)
  NetworkShares shares{};             ///< of the bandwidth, by axis

  bool operator==(const Fabric&) const = default;
};

struct Cluster {
  Accelerator accelerator;
  int accelerators = 1;
  int node_accelerators = 1;
  Watts host_power;   ///< of a node, beside its accelerators
  Bytes host_memory;  ///< of a node
  ScaleUp scale_up;
  Fabric fabric;
  double pue = 1;             ///< facility power over equipment power
  DollarsPerSecond price;     ///< per accelerator; 0 = unknown
  MeasuredCurves measured{};  ///< win over the model where they apply

  bool operator==(const Cluster&) const = default;
};

template <>
struct RecordOf<CollectiveFit> {
  static constexpr std::string_view name = "CollectiveFit";
  using T = CollectiveFit;
  static constexpr FieldTable fields{
      field("start1_s", &T::start1, 0, 1, "fixed time, latency branch"),
      field("per_rank1_s", &T::per_rank1, 0, 1, "time per ring step, latency branch"),
      field("bandwidth_fraction1", &T::bandwidth_fraction1, 1e-4, 2, "of the link, latency branch"),
      field("start2_s", &T::start2, 0, 1, "fixed time, bandwidth branch"),
      field("per_rank2_s", &T::per_rank2, 0, 1, "time per ring step, bandwidth branch"),
      field("bandwidth_fraction2", &T::bandwidth_fraction2, 1e-4, 2,
            "of the link, bandwidth branch"),
      field("pipeline_fill_s", &T::pipeline_fill, 0, 1, "constant of the pipeline fill"),
      field("own_share", &T::own_share, 0, 1, "traffic beyond the ring's, shares of a rank"),
      field("host_share", &T::host_share, 0, 100,
            "slowdown by every rank beyond two, across host memory")};
};

template <>
struct RecordOf<InSwitchFit> {
  static constexpr std::string_view name = "InSwitchFit";
  using T = InSwitchFit;
  static constexpr FieldTable fields{
      field("start_s", &T::start, 0, 1, "fixed time"),
      field("bandwidth_fraction", &T::bandwidth_fraction, 0, 1, "of the link; 0 = no reduction"),
      field("pipeline_fill_s", &T::pipeline_fill, 0, 1, "constant of the pipeline fill")};
};

template <>
struct RecordOf<HostLevels> {
  static constexpr std::string_view name = "HostLevels";
  using T = HostLevels;
  static constexpr FieldTable fields{
      field("switched", &T::switched, 0, 1e6, "accelerators below one switch; 0 = all"),
      field("beyond_switch_bytes_per_s", &T::beyond_switch, 0, 1e15,
            "of all that crosses between switches, one direction"),
      field("socket", &T::socket, 0, 1e6, "accelerators of one socket; 0 = all"),
      field("beyond_socket_bytes_per_s", &T::beyond_socket, 0, 1e15,
            "of all that crosses between sockets, one direction")};
};

template <>
struct RecordOf<ScaleUp> {
  static constexpr std::string_view name = "ScaleUp";
  using T = ScaleUp;
  static constexpr FieldTable fields{
      field("domain", &T::domain, 1, 1e6, "accelerators joined"),
      field("bandwidth_bytes_per_s", &T::bandwidth, 1e6, 1e15, "per accelerator, one direction"),
      field("all_reduce", &T::all_reduce, "constants of the operation"),
      field("all_gather", &T::all_gather, "constants of the operation"),
      field("reduce_scatter", &T::reduce_scatter, "constants of the operation"),
      field("all_to_all", &T::all_to_all, "constants of the operation"),
      field("p2p_latency_s", &T::p2p_latency, 0, 1, "one transfer"),
      field("p2p_fraction", &T::p2p_fraction, 1e-4, 2, "of the bandwidth, one large transfer"),
      field("in_switch", &T::in_switch, "reduction inside the switch"),
      field("carries_fabric", &T::carries_fabric, "adapters share the links"),
      field("levels", &T::levels, "switches and sockets of a host")};
};

template <>
struct RecordOf<Fabric> {
  static constexpr std::string_view name = "Fabric";
  using T = Fabric;
  static constexpr FieldTable fields{
      field("bandwidth_bytes_per_s", &T::bandwidth, 1e5, 1e15, "per accelerator, one direction"),
      field("oversubscription", &T::oversubscription, 1, 1e4, "between pods"),
      field("pod", &T::pod, 0, 1e8, "accelerators at full bandwidth; 0 = all"),
      field("ring_hop_ll128_s", &T::ring_hop_ll128, 0, 1, "ring step, LL128 protocol"),
      field("ring_hop_simple_s", &T::ring_hop_simple, 0, 1, "ring step, Simple protocol"),
      field("tree_hop_ll128_s", &T::tree_hop_ll128, 0, 1, "tree step, LL128 protocol"),
      field("tree_hop_simple_s", &T::tree_hop_simple, 0, 1, "tree step, Simple protocol"),
      field("latency_factor", &T::latency_factor, 0, 1e3, "measured over tabulated latency"),
      field("bandwidth_fraction", &T::bandwidth_fraction, 1e-4, 2, "rings and trees"),
      field("all_to_all_fraction", &T::all_to_all_fraction, 1e-4, 2, "all-to-all"),
      field("p2p_latency_s", &T::p2p_latency, 0, 1, "one transfer"),
      field("p2p_fraction", &T::p2p_fraction, 1e-4, 2, "of the bandwidth, one large transfer"),
      field("in_network_reduction", &T::in_network_reduction, "switches reduce"),
      field("shares", &T::shares, "of the bandwidth that each axis gets")};
};

template <>
struct RecordOf<Cluster> {
  static constexpr std::string_view name = "Cluster";
  using T = Cluster;
  static constexpr FieldTable fields{
      field("accelerator", &T::accelerator, "the accelerator"),
      field("accelerators", &T::accelerators, 1, 1e8, "in the job"),
      field("node_accelerators", &T::node_accelerators, 1, 1e4, "in a node"),
      field("host_power_w", &T::host_power, 0, 1e6, "of a node beside its accelerators"),
      field("host_memory_bytes", &T::host_memory, 0, 1e16, "of a node"),
      field("scale_up", &T::scale_up, "network inside a domain"),
      field("fabric", &T::fabric, "network between domains"),
      field("pue", &T::pue, 1, 10, "facility power over equipment power"),
      field("price_usd_per_s", &T::price, 0, 1e3, "per accelerator; 0 = unknown"),
      field("measured", &T::measured, "timed collectives; they win over the model")};
};

}  // namespace scalemodel
