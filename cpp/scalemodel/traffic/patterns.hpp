// Communication patterns as flows. Each opens one or more groups of the job opened last.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

enum class TrafficPattern : std::uint8_t { ring, all_to_all, chain, double_binary_tree };

template <>
struct EnumNames<TrafficPattern> {
  static constexpr std::string_view what = "pattern";
  static constexpr std::array<std::string_view, 4> names{"ring", "all_to_all", "chain",
                                                         "double_binary_tree"};
};

/// Opens a job; the patterns that follow belong to it.
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
/// down. Leaves of one tree are inner nodes of the other (but for one member where the count is
/// odd), so that no member sends more than `size` up and `size` down. Source: Sanders, Speck and
/// Traff, Parallel Computing 35 (2009) 581-594; used by NCCL from 2.4 on.
void add_double_binary_tree(Flows& flows, std::span<const std::int32_t> members, Bytes size);

/// Rings of several copies of a model, laid out copy by copy: ring i joins the i-th NIC of every
/// copy. One group per ring.
void add_copy_rings(Flows& flows, std::span<const std::int32_t> nics, std::int32_t copies,
                    Bytes bytes_per_step);

/// A pattern by name. `size`: ring and tree: a member's whole buffer of an all-reduce; all-to-all:
/// to every other member; chain: to the next member.
void add_pattern(Flows& flows, TrafficPattern pattern, std::span<const std::int32_t> members,
                 Bytes size);

/// Steps of one collective over so many members: 2 (n - 1) of a ring all-reduce, otherwise one.
std::int32_t pattern_steps(TrafficPattern pattern, std::int32_t members);

}  // namespace scalemodel
