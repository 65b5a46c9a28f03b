// Traffic as flows from NIC to NIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Flows by column: in every step of its group, a NIC of a job sends `bytes` to another NIC. The
/// flows of a group (a ring, a tree, one all-to-all) are synchronised: the next step starts when
/// all of them have ended.
struct Flows {
  std::vector<std::int32_t> job;
  std::vector<std::int32_t> group;        ///< consecutive from 0 over all jobs, ascending
  std::vector<std::int32_t> source;       ///< NIC
  std::vector<std::int32_t> destination;  ///< NIC
  std::vector<double> bytes;              ///< bytes of one step, > 0
  std::int32_t jobs = 0;
  std::int32_t groups = 0;
  /// By group: the groups of a job with one number run at the same time, groups with larger numbers
  /// after them. Empty: all groups of a job run at the same time.
  std::vector<std::int32_t> phase;

  std::size_t size() const { return job.size(); }
  std::int32_t phase_of(std::int32_t of_group) const { return phase.empty() ? 0 : phase[of_group]; }
  void add(std::int32_t source_nic, std::int32_t destination_nic, Bytes size) {
    job.push_back(jobs - 1);
    group.push_back(groups - 1);
    source.push_back(source_nic);
    destination.push_back(destination_nic);
    bytes.push_back(size.base());
  }
  bool operator==(const Flows&) const = default;
};

}  // namespace scalemodel
