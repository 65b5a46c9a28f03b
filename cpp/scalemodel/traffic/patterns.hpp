// Communication patterns as flows. Each opens one or more groups of the job opened last.
#pragma once

#include <cstdint>
#include <span>

#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

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

/// One group: the edges of two complementary binary trees, each carrying half of `size` up and down.
/// Leaves of one tree are inner nodes of the other (but for one member where the count is odd), so
/// that no member sends more than `size` up and `size` down. Source: Sanders, Speck and Traff, Parallel Computing
/// 35 (2009) 581-594; used by NCCL from 2.4 on.
void add_double_binary_tree(Flows& flows, std::span<const std::int32_t> members, Bytes size);

/// Rings of several copies of a model, laid out copy by copy: ring i joins the i-th NIC of every
/// copy. One group per ring.
void add_copy_rings(Flows& flows, std::span<const std::int32_t> nics, std::int32_t copies,
                    Bytes bytes_per_step);

}  // namespace scalemodel
