// Fabrics from parameters. Node numbers: switches first, tier by tier, then NICs.
#pragma once

#include <cstdint>
#include <span>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/fabric/graph.hpp"

namespace scalemodel {

/// Capacity and latency of a cable in one direction.
struct Cable {
  BytesPerSecond bandwidth{12.5e9};
  Seconds latency;

  bool operator==(const Cable&) const = default;
};

/// `leaves` switches with `nics_per_leaf` NICs each; `cables` cables connect every leaf to every
/// one of `spines` switches. Oversubscription: nics_per_leaf host.bandwidth over spines cables
/// fabric.bandwidth. Node numbers: leaves from 0, then spines, then NICs; NIC k is connected to
/// leaf k / nics_per_leaf.
struct LeafSpine {
  int leaves = 64;
  int spines = 32;
  int nics_per_leaf = 32;
  int cables = 1;
  Cable host, fabric;

  bool operator==(const LeafSpine&) const = default;
};

/// Three tiers of k-port switches: k pods of k/2 leaves and k/2 spines, (k/2)^2 core switches,
/// k^3/4 NICs; spine i of every pod is connected to cores i k/2 ... (i+1) k/2 - 1. Source:
/// Al-Fares, Loukissas and Vahdat, SIGCOMM 2008.
struct FatTree {
  int ports = 4;
  Cable host, fabric;

  bool operator==(const FatTree&) const = default;
};

/// `servers` with `gpus` accelerators each. In a unit of `servers_per_unit` servers, accelerator r
/// of every server is connected to leaf r of the unit, and every leaf to `spines` spines (0:
/// rail-only). The accelerators of a server share a scale-up domain (no bandwidth: no domain),
/// through which traffic may change its rail (NCCL's PXN; rail-only: arXiv 2307.12169). NIC number:
/// server gpus + r.
struct Rails {
  int servers = 32;
  int gpus = 8;
  int servers_per_unit = 32;
  int spines = 0;
  Cable host, fabric;
  Cable scale_up{BytesPerSecond{}, Seconds{}};

  bool operator==(const Rails&) const = default;
};

/// Groups of `routers` fully connected routers, each with `nics` NICs and `global_cables` cables to
/// other groups; routers global_cables + 1 groups, one cable between any two of them.
/// Source: Kim, Dally, Scott and Abts, ISCA 2008.
struct Dragonfly {
  int routers = 4;
  int nics = 2;
  int global_cables = 2;
  Cable host, local, global;

  bool operator==(const Dragonfly&) const = default;
};

/// A torus of up to three dimensions with one NIC per node. A dimension of size two has one cable
/// between its nodes, a dimension of size one has none. Shortest paths start along the first
/// dimension.
struct Torus {
  int x = 4;
  int y = 4;
  int z = 1;
  Cable host, fabric;

  bool operator==(const Torus&) const = default;
};

/// A cable of a custom fabric between nodes `a` and `b`.
struct Edge {
  std::int32_t a = 0;
  std::int32_t b = 0;
  BytesPerSecond bandwidth;
  Seconds latency;
};

// Every builder throws MalformedQuestion where its parameters are inconsistent.
LinkGraph leaf_spine(const LeafSpine& spec);
LinkGraph fat_tree(const FatTree& spec);
LinkGraph rails(const Rails& spec);
LinkGraph dragonfly(const Dragonfly& spec);
LinkGraph torus(const Torus& spec);
/// `nics` accelerators on one scale-up switch.
LinkGraph scale_up_domain(int nics, const Cable& cable);
/// NICs 0 ... nics - 1 are nodes 0 ... nics - 1, the nodes after them are switches. NICs with
/// several cables forward traffic (direct-connect fabrics).
LinkGraph custom_fabric(std::int32_t nics, std::int32_t switches, std::span<const Edge> edges);

template <>
struct RecordOf<Cable> {
  static constexpr std::string_view name = "Cable";
  using T = Cable;
  static constexpr FieldTable fields{
      field("bandwidth_bytes_per_s", &T::bandwidth, 0, 1e15, "one direction"),
      field("latency_s", &T::latency, 0, 1, "one traversal")};
};

template <>
struct RecordOf<LeafSpine> {
  static constexpr std::string_view name = "LeafSpine";
  using T = LeafSpine;
  static constexpr FieldTable fields{
      field("leaves", &T::leaves, 1, 1e5, "leaf switches"),
      field("spines", &T::spines, 1, 1e5, "spine switches"),
      field("nics_per_leaf", &T::nics_per_leaf, 1, 1e5, "NICs under a leaf"),
      field("cables", &T::cables, 1, 1e3, "between a leaf and a spine"),
      field("host", &T::host, "NIC to leaf"),
      field("fabric", &T::fabric, "leaf to spine")};
};

template <>
struct RecordOf<FatTree> {
  static constexpr std::string_view name = "FatTree";
  using T = FatTree;
  static constexpr FieldTable fields{field("ports", &T::ports, 2, 256, "of a switch, even"),
                                     field("host", &T::host, "NIC to leaf"),
                                     field("fabric", &T::fabric, "between switches")};
};

template <>
struct RecordOf<Rails> {
  static constexpr std::string_view name = "Rails";
  using T = Rails;
  static constexpr FieldTable fields{
      field("servers", &T::servers, 1, 1e6, "servers"),
      field("gpus", &T::gpus, 1, 1e4, "accelerators of a server"),
      field("servers_per_unit", &T::servers_per_unit, 1, 1e5, "servers that share leaves"),
      field("spines", &T::spines, 0, 1e5, "spine switches; 0 = rail-only"),
      field("host", &T::host, "NIC to leaf"),
      field("fabric", &T::fabric, "leaf to spine"),
      field("scale_up", &T::scale_up, "accelerator to scale-up switch; no bandwidth = none")};
};

template <>
struct RecordOf<Dragonfly> {
  static constexpr std::string_view name = "Dragonfly";
  using T = Dragonfly;
  static constexpr FieldTable fields{
      field("routers", &T::routers, 1, 1e3, "of a group"),
      field("nics", &T::nics, 1, 1e3, "of a router"),
      field("global_cables", &T::global_cables, 1, 1e3, "of a router"),
      field("host", &T::host, "NIC to router"),
      field("local", &T::local, "between routers of a group"),
      field("between", &T::global, "between groups")};
};

template <>
struct RecordOf<Torus> {
  static constexpr std::string_view name = "Torus";
  using T = Torus;
  static constexpr FieldTable fields{field("x", &T::x, 1, 1e4, "nodes along the first dimension"),
                                     field("y", &T::y, 1, 1e4, "nodes along the second dimension"),
                                     field("z", &T::z, 1, 1e4, "nodes along the third dimension"),
                                     field("host", &T::host, "NIC to node"),
                                     field("fabric", &T::fabric, "between nodes")};
};

}  // namespace scalemodel
