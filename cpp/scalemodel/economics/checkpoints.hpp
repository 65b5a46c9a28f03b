// A checkpoint of a running job: how long the job stands still, and when the checkpoint counts.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/economics/reliability.hpp"

namespace scalemodel {

/// What a job writes, and over which paths. Ranks write their parts at the same time.
struct CheckpointWrite {
  Bytes all;                    ///< of the job
  Bytes rank;                   ///< of the busiest rank
  Bytes node;                   ///< of the busiest node
  double copies = 0;            ///< in other nodes, beside a node's own part
  BytesPerSecond host_link;     ///< of a rank, from the device to the host
  BytesPerSecond peer_network;  ///< of a node, to other nodes
  BytesPerSecond node_storage;  ///< of a node; 0 = the checkpoint stays in host memory
  BytesPerSecond shared;        ///< of the storage as a whole; 0 = it does not limit the nodes
  Seconds planning;             ///< who writes what, agreed on by all ranks

  bool operator==(const CheckpointWrite&) const = default;
};

/// The busiest rank's part from its device to host memory.
constexpr Seconds staging_time(const CheckpointWrite& write) {
  return write.rank / write.host_link;
}

/// From host memory to where the checkpoint counts: the slowest of the network to peers, the
/// storage of the busiest node, which keeps its peers' copies too, and the storage as a whole.
constexpr Seconds persisting_time(const CheckpointWrite& write) {
  Seconds time;
  if (write.copies > 0) time = max(time, write.copies * write.node / write.peer_network);
  if (write.node_storage > BytesPerSecond{}) {
    time = max(time, (1 + write.copies) * write.node / write.node_storage);
  }
  if (write.shared > BytesPerSecond{})
    time = max(time, (1 + write.copies) * write.all / write.shared);
  return time;
}

/// The job stands still: for the copy to host memory of an asynchronous checkpoint; else until it
/// is written, while tensors are copied one after the other beside the write of those before.
/// Source: torch.distributed.checkpoint, state_dict_saver.py (async_save stages, then writes in
/// another process) and filesystem.py (an overlapping loader).
constexpr Seconds blocking_time(const CheckpointWrite& write, bool asynchronous) {
  const Seconds staged = staging_time(write);
  return write.planning + (asynchronous ? staged : max(staged, persisting_time(write)));
}

/// From the end of the standstill until the checkpoint counts; the next one must wait for it.
constexpr Seconds background_time(const CheckpointWrite& write, bool asynchronous) {
  return asynchronous ? persisting_time(write) : Seconds{};
}

/// Host memory of the busiest node: a staged part is kept until it is written. Where the
/// checkpoint stays in host memory, the last one must be whole until the next is, so there are two
/// of the node's own part and of every peer's (Gemini, SOSP 2023).
constexpr Bytes checkpoint_host_memory(const CheckpointWrite& write, bool asynchronous) {
  if (write.node_storage > BytesPerSecond{}) return asynchronous ? write.node : Bytes{};
  return 2 * (1 + write.copies) * write.node;
}

/// Productive share of a job that writes frequent checkpoints to its nodes and seldom ones to
/// storage: `beyond` of the failures take the nodes' copies along and go back to storage. To first
/// order in the failure rate:
///
///     (1 - rate ((1 - beyond) lost_local + beyond lost_remote)) / (1 + w_l / t_l + w_r / t_r),
///     lost = restart + background + interval / 2
///
/// With intervals of one length and beyond = 0 the second level is a cost alone. Source: the form
/// of Kokolis et al., arXiv 2410.21680, with two levels as in Moody et al., SC 2010 (SCR).
/// Precondition: intervals > 0.
constexpr double two_level_ettr(const FailingJob& local, Seconds local_interval,
                                const FailingJob& remote, Seconds remote_interval, double beyond) {
  const auto lost = [](const FailingJob& job, Seconds interval) {
    return job.restart + mean_repeated(job, interval);
  };
  const double share = local.rate() * ((1 - beyond) * lost(local, local_interval) +
                                       beyond * lost(remote, remote_interval));
  const double writes = local.write / local_interval + remote.write / remote_interval;
  return share < 1 ? (1 - share) / (1 + writes) : 0;
}

template <>
struct RecordOf<CheckpointWrite> {
  static constexpr std::string_view name = "CheckpointWrite";
  using T = CheckpointWrite;
  static constexpr FieldTable fields{
      field("all_bytes", &T::all, 0, 1e18, "of the job"),
      field("rank_bytes", &T::rank, 0, 1e15, "of the busiest rank"),
      field("node_bytes", &T::node, 0, 1e16, "of the busiest node"),
      field("copies", &T::copies, 0, 1e6, "in other nodes, beside a node's own part"),
      field("host_link_bytes_per_s", &T::host_link, 1, 1e15, "of a rank, device to host"),
      field("peer_network_bytes_per_s", &T::peer_network, 1, 1e18, "of a node, to other nodes"),
      field("node_storage_bytes_per_s", &T::node_storage, 0, 1e15,
            "of a node; 0 = stays in host memory"),
      field("shared_bytes_per_s", &T::shared, 0, 1e18, "of the whole storage; 0 = no limit"),
      field("planning_s", &T::planning, 0, 1e6, "who writes what")};
};

}  // namespace scalemodel
