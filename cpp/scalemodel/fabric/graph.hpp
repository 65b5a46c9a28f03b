// The network between accelerators: a directed graph of links.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Kind of a node of the network. A `nic` is an accelerator with its network port; a `domain` is
/// the switch of a scale-up domain.
enum class NodeKind : std::uint8_t { nic, leaf, spine, core, domain };

template <>
struct EnumNames<NodeKind> {
  static constexpr std::string_view what = "kind of node";
  static constexpr std::array<std::string_view, 5> names{"nic", "leaf", "spine", "core", "domain"};
};

/// Two tiers of switches in which every leaf has one cable to every plane. A plane is a spine, or
/// one of the parallel cables of a spine; a path between two leaves is a choice of a plane.
struct TwoTier {
  std::int32_t leaves = 0;  ///< 0: the fabric has another structure
  std::int32_t planes = 0;
  std::vector<std::int32_t> up;    ///< by leaf * planes + plane: link from the leaf
  std::vector<std::int32_t> down;  ///< by leaf * planes + plane: link to the leaf

  std::size_t at(std::int32_t leaf, std::int32_t plane) const {
    return static_cast<std::size_t>(leaf) * static_cast<std::size_t>(planes) +
           static_cast<std::size_t>(plane);
  }
  bool operator==(const TwoTier&) const = default;
};

/// Directed links between nodes. Each cable is two links with consecutive numbers, 2c and 2c + 1,
/// one per direction. Capacities are bytes per second, latencies seconds; a link with a capacity of
/// zero is down.
class LinkGraph {
 public:
  std::int32_t add_node(NodeKind kind);
  /// The link from `a` to `b`; the one from `b` to `a` has the next number.
  std::int32_t add_cable(std::int32_t a, std::int32_t b, BytesPerSecond capacity, Seconds latency);
  /// Gives a node the next number of a NIC, from 0 on.
  void add_nic(std::int32_t node);
  /// Indexes the links by node. Precondition: called once, after the last cable.
  void finish();

  std::int32_t nodes() const { return static_cast<std::int32_t>(kinds_.size()); }
  std::int32_t links() const { return static_cast<std::int32_t>(from_.size()); }
  std::int32_t nics() const { return static_cast<std::int32_t>(nic_nodes_.size()); }

  NodeKind kind(std::int32_t node) const { return kinds_[node]; }
  std::int32_t from(std::int32_t link) const { return from_[link]; }
  std::int32_t to(std::int32_t link) const { return to_[link]; }
  static std::int32_t reverse(std::int32_t link) { return link % 2 == 0 ? link + 1 : link - 1; }
  BytesPerSecond capacity(std::int32_t link) const { return BytesPerSecond{capacity_[link]}; }
  Seconds latency(std::int32_t link) const { return Seconds{latency_[link]}; }
  bool alive(std::int32_t link) const { return capacity_[link] > 0; }
  std::span<const double> capacities() const { return capacity_; }
  std::span<const std::int32_t> links_from(std::int32_t node) const {
    return std::span(out_links_).subspan(out_first_[node], out_first_[node + 1] - out_first_[node]);
  }
  std::int32_t nic_node(std::int32_t nic) const { return nic_nodes_[nic]; }
  /// The link out of a NIC with a single cable to a switch of the network; -1 for other NICs.
  std::int32_t only_link(std::int32_t nic) const;

  /// End of every path of a NIC through the network: its switch, or the NIC itself where it has
  /// several cables.
  std::int32_t end_switch(std::int32_t nic) const {
    const std::int32_t link = only_link(nic);
    return link < 0 ? nic_node(nic) : to(link);
  }

  /// Takes down every link of a node.
  void fail_node(std::int32_t node);
  /// Takes down both directions of the cable that `link` belongs to.
  void fail_cable(std::int32_t link);
  /// Sets both directions of a cable to a fraction of their original capacity; 1 repairs them.
  void scale_cable(std::int32_t link, double factor);

  const TwoTier& two_tier() const { return two_tier_; }
  void set_two_tier(TwoTier tiers) { two_tier_ = std::move(tiers); }
  /// Half the ports of a switch of a fat tree; 0 for other structures.
  std::int32_t fat_tree_half() const { return fat_tree_half_; }
  void set_fat_tree_half(std::int32_t half) { fat_tree_half_ = half; }
  /// Switch of a NIC that has an `only_link`.
  std::int32_t leaf_of(std::int32_t nic) const { return to_[only_link(nic)]; }

  bool operator==(const LinkGraph&) const = default;
  /// References to the whole state of a graph, for storage.
  template <class Graph>
  static auto contents(Graph& g) {
    return std::tie(g.kinds_, g.from_, g.to_, g.capacity_, g.built_, g.latency_, g.nic_nodes_,
                    g.out_first_, g.out_links_, g.two_tier_.leaves, g.two_tier_.planes,
                    g.two_tier_.up, g.two_tier_.down, g.fat_tree_half_);
  }

 private:
  std::vector<NodeKind> kinds_;
  std::vector<std::int32_t> from_, to_;
  std::vector<double> capacity_, built_, latency_;
  std::vector<std::int32_t> nic_nodes_;
  std::vector<std::int32_t> out_first_, out_links_;
  TwoTier two_tier_;
  std::int32_t fat_tree_half_ = 0;
};

}  // namespace scalemodel
