// Hot spares and replicas that fail one by one: what repair, queue and stalls leave of a long run.
#pragma once

#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/economics/reliability.hpp"

namespace scalemodel {

/// Nodes beside a job, and what goes on while one is missing.
struct SparePool {
  int spares = 0;    ///< nodes that stand ready
  Seconds repair;    ///< until a failed node stands ready again; 0: replaced at once
  int replicas = 1;  ///< that fail one by one, each of equally many nodes; 1: the job stops whole
  Seconds stall;     ///< of the other replicas at a failure: the step lost, a new quorum
  double quorum_fraction = 0;  ///< of a step of several replicas: agreeing on who takes part

  bool operator==(const SparePool&) const = default;
};

/// Share of the time with m = 0, 1, ... nodes under repair:
///
///     p(m) ~ r^m / m! prod_{k < m} rate(k),   rate(k) = N r_f running(k) / R
///
/// with running(k) = R - max(0, k - s) of R replicas that have all of their nodes: one that waits
/// for a node does not run, so its other nodes do not fail. Spares do not fail. Any distribution of
/// repair times gives the same shares, for every node is repaired by itself; R = 1 is Erlang's loss
/// formula. Source: Sevastyanov, Theory of Probability and its Applications 2 (1957), number 1;
/// with rates that depend on m: Veretennikov, Mathematical Notes 22 (1977), number 4.
std::vector<double> shares_under_repair(const FailingJob& job, const SparePool& pool);

/// Replicas that have all of their nodes, over all replicas, in the mean: 1 less the share of the
/// time in the queue.
double staffed_fraction(const FailingJob& job, const SparePool& pool);

/// Expected productive share of the time with spares and a queue for repaired nodes. One replica:
///
///     ETTR = exact_ettr(job, interval) (1 - p(s + 1))
///
/// exact, for failures strike only while the job has its nodes. Several replicas: the others stall
/// at a failure and go on; the lost one comes back `restart` after it has a node again, from its
/// peers. With q = (N r_f + r_other) / R the failure rate of a replica, q_0 that part of it after
/// which a node is there at once, repair time r and stall S
///
///     share = sum_m p(m) running(m)/R (1 - S/r)^m exp(-r_other running(m)/R S)
///             exp(-(q restart - q_0 S)) / ((1 + write/interval) (1 + quorum))
///
/// where (1 - S/r)^m says that none of m nodes under repair failed within the last S, exact for a
/// repair that always takes r >= S; a restart that begins at the failure contains the stall. Only
/// where no replica is left does work since the last checkpoint get lost, counted to first order in
/// its rate. Precondition: interval > 0.
double ettr_with_spares(const FailingJob& job, Seconds interval, const SparePool& pool);

/// Work per hour paid for, over that of nodes that never fail: `share` of the job's nodes, while
/// spares cost `spare_price` of a node each.
constexpr double work_per_paid_node(double share, double nodes, double spares, double spare_price) {
  return share * nodes / (nodes + spare_price * spares);
}

template <>
struct RecordOf<SparePool> {
  static constexpr std::string_view name = "SparePool";
  using T = SparePool;
  static constexpr FieldTable fields{
      field("spares", &T::spares, 0, 1'000'000, "nodes that stand ready"),
      field("repair_s", &T::repair, 0, 1e9, "until a failed node stands ready; 0 = at once"),
      field("replicas", &T::replicas, 1, 1'000'000,
            "that fail one by one; 1 = the job stops whole"),
      field("stall_s", &T::stall, 0, 1e8, "of the other replicas at a failure"),
      field("quorum_fraction", &T::quorum_fraction, 0, 100,
            "of a step of several replicas: agreeing on who takes part")};
};

}  // namespace scalemodel
