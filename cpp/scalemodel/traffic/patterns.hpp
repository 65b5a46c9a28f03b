// Communication patterns as flows. Each adds one or more groups to the last opened job.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

enum class TrafficPattern : std::uint8_t {
  ring,
  all_to_all,
  chain,
  double_binary_tree,
  in_network,  // reduction and multicast in the switches
};

template <>
struct EnumNames<TrafficPattern> {
  static constexpr std::string_view what = "pattern";
  static constexpr std::array<std::string_view, 5> names{"ring", "all_to_all", "chain",
                                                         "double_binary_tree", "in_network"};
};

/// Opens a job; later patterns belong to it.
void open_job(Flows& flows);

/// One group: every member sends `bytes_per_step` to the next one, the last to the first. One step
/// of a ring all-reduce (2 (n - 1) steps of size / n), all-gather or reduce-scatter (n - 1 steps).
/// A ring of one member sends nothing.
void add_ring(Flows& flows, std::span<const std::int32_t> members, Bytes bytes_per_step);

/// One group: every member sends `bytes_per_pair` to every other one.
void add_all_to_all(Flows& flows, std::span<const std::int32_t> members, Bytes bytes_per_pair);

/// One group per pair of neighbours: member i sends to member i + 1, and back when `both_ways`
/// (activations and their gradients between pipeline stages).
void add_chain(Flows& flows, std::span<const std::int32_t> members, Bytes bytes, bool both_ways);

/// One group: the edges of two complementary binary trees, each carrying half of `size` up and
/// down. Leaves of one tree are inner nodes of the other (except one member where the count is
/// odd), so no member sends more than `size` up and `size` down. Source: Sanders, Speck and Traff,
/// Parallel Computing 35 (2009) 581-594; used by NCCL from 2.4 on.
void add_double_binary_tree(Flows& flows, std::span<const std::int32_t> members, Bytes size);

/// One group: an all-reduce with reduction in the switches. Every member sends its buffer once and
/// receives the sum once, where a ring moves 2 (n - 1) / n of it; a leaf sends one buffer up and
/// one down, independent of the number of its members. The flows connect members as a ring does,
/// which puts the same bytes on the links of NICs and between switches as long as the members of a
/// leaf are consecutive. The memory of switches is not a limit here. Source: Graham et al., COMHPC
/// 2016 (SHARP).
void add_in_network(Flows& flows, std::span<const std::int32_t> members, Bytes size);

/// An all-reduce decomposed over the dimensions of `shape`, innermost first: with n = p1 p2 ...
/// members, reduce-scatters and all-gathers in rings of p1 neighbours, then in rings of p2 over the
/// p1-th part of the buffer, and so on. Per member and dimension i
///
///     bytes = 2 (p_i - 1) / p_i size / (p_1 ... p_(i-1))
///
/// One group per ring, all of them in one step: the chunks of a buffer use all dimensions at the
/// same time. Source: Cho, Finkler and Kung, BlueConnect, MLSys 2019. Throws MalformedQuestion
/// where the product of the shape is not the number of members.
void add_decomposed_rings(Flows& flows, std::span<const std::int32_t> members,
                          std::span<const std::int32_t> shape, Bytes size);

/// Rings over several copies of a model whose NICs are listed copy by copy: ring i connects the
/// i-th NIC of every copy. One group per ring.
void add_copy_rings(Flows& flows, std::span<const std::int32_t> nics, std::int32_t copies,
                    Bytes bytes_per_step);

/// A pattern by name. `size` is the whole buffer of a member for ring, tree and in_network, the
/// bytes to every other member for all-to-all, and the bytes to the next member for a chain.
void add_pattern(Flows& flows, TrafficPattern pattern, std::span<const std::int32_t> members,
                 Bytes size);

/// Steps of one collective of n members: 2 (n - 1) for a ring all-reduce, otherwise one.
std::int32_t pattern_steps(TrafficPattern pattern, std::int32_t members);

}  // namespace scalemodel
