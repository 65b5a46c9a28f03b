#include "scalemodel/economics/spares.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

/// Replicas that have all of their nodes while `missing` nodes are under repair.
double running_replicas(const SparePool& pool, std::size_t missing) {
  const double waiting = std::max(0.0, static_cast<double>(missing) - pool.spares);
  return std::max(0.0, pool.replicas - waiting);
}

/// Failures of one replica, by its nodes and otherwise.
Hertz replica_rate(const FailingJob& job, const SparePool& pool) {
  return job.rate() / static_cast<double>(pool.replicas);
}

/// Chance that none of `missing` nodes under repair, nor any that came back since, failed within
/// the last stall; so that the others run.
double calm_fraction(const FailingJob& job, const SparePool& pool, std::size_t missing) {
  const double share = running_replicas(pool, missing) / pool.replicas;
  const double others = std::exp(-(share * job.other_rate * pool.stall));
  if (pool.stall < pool.repair) {
    return others * std::pow(1 - pool.stall / pool.repair, static_cast<double>(missing));
  }
  // A node under repair failed within the stall; before its repair none may have failed either.
  if (missing > 0) return 0;
  return others * std::exp(-(job.nodes * job.node_rate * (pool.stall - pool.repair)));
}

/// Chance that a failed node finds a spare: replicas fail in proportion to those that run.
double found_fraction(const SparePool& pool, const std::vector<double>& shares) {
  if (pool.repair == Seconds{}) return 1;
  double found = 0, all = 0;
  for (std::size_t missing = 0; missing < shares.size(); ++missing) {
    const double rate = shares[missing] * running_replicas(pool, missing);
    all += rate;
    if (missing < static_cast<std::size_t>(pool.spares)) found += rate;
  }
  return found / all;
}

/// Chance that a replica with all of its nodes has the state: it did not fail within its restart.
/// Of the time of a restart that follows the failure at once a stall of all is a part.
double caught_up_fraction(const FailingJob& job, const SparePool& pool, double found) {
  const double replicas = pool.replicas;
  const Hertz at_once = (found * job.nodes * job.node_rate + job.other_rate) / replicas;
  const Seconds stalled = min(pool.stall, job.restart);
  return std::exp(-(replica_rate(job, pool) * job.restart - at_once * stalled));
}

double ettr_of_replicas(const FailingJob& job, Seconds interval, const SparePool& pool) {
  const std::vector<double> shares = shares_under_repair(job, pool);
  const Hertz rate = replica_rate(job, pool);
  const double caught_up = caught_up_fraction(job, pool, found_fraction(pool, shares));
  const double behind = -std::expm1(-(rate * job.restart));
  double share = 0;
  Hertz lost;  // of the last replica that has the state
  for (std::size_t missing = 0; missing < shares.size(); ++missing) {
    const double running = running_replicas(pool, missing);
    if (running == 0) continue;
    share += shares[missing] * running / pool.replicas * calm_fraction(job, pool, missing);
    lost += shares[missing] * running * (1 - behind) * std::pow(behind, running - 1) * rate;
  }
  const double kept = 1 - lost * mean_repeated(job, interval);
  return share * caught_up * std::max(0.0, kept) /
         ((1 + job.write / interval) * (1 + pool.quorum_fraction));
}

}  // namespace

std::vector<double> shares_under_repair(const FailingJob& job, const SparePool& pool) {
  std::vector<double> shares{1};
  const double load = job.nodes * job.node_rate * pool.repair;
  if (load <= 0) return shares;
  const auto most = static_cast<std::size_t>(pool.spares) + static_cast<std::size_t>(pool.replicas);
  // Terms grow up to the mode and may leave the range of a double: their largest becomes 1.
  std::vector<double> logs{0};
  double largest = 0;
  for (std::size_t m = 1; m <= most; ++m) {
    const double before = running_replicas(pool, m - 1) / pool.replicas;
    const double term = logs.back() + std::log(load * before / static_cast<double>(m));
    constexpr double kNegligible = 80;  // logarithm, below the rounding of the sum
    if (term < largest - kNegligible && term < logs.back()) break;
    largest = std::max(largest, term);
    logs.push_back(term);
  }
  double sum = 0;
  for (const double term : logs) sum += std::exp(term - largest);
  shares.clear();
  for (const double term : logs) shares.push_back(std::exp(term - largest) / sum);
  return shares;
}

double staffed_fraction(const FailingJob& job, const SparePool& pool) {
  const std::vector<double> shares = shares_under_repair(job, pool);
  double staffed = 0;
  for (std::size_t missing = 0; missing < shares.size(); ++missing) {
    staffed += shares[missing] * running_replicas(pool, missing) / pool.replicas;
  }
  return std::min(1.0, staffed);
}

double ettr_with_spares(const FailingJob& job, Seconds interval, const SparePool& pool) {
  if (pool.replicas == 1) return exact_ettr(job, interval) * staffed_fraction(job, pool);
  return ettr_of_replicas(job, interval, pool);
}

}  // namespace scalemodel
