#include "scalemodel/traffic/ring_jobs.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/traffic/patterns.hpp"

namespace scalemodel {
namespace {

constexpr double kBytesPerParameter = 4;

using Nics = std::vector<std::int32_t>;

/// Free NICs by pool (a leaf or a server), each pool in the order of numbers.
class Pools {
 public:
  /// `pool_of(nic)` numbers the pools from 0.
  template <class PoolOf>
  Pools(std::int32_t nics, const PoolOf& pool_of) {
    for (std::int32_t nic = 0; nic < nics; ++nic) {
      const auto pool = static_cast<std::size_t>(pool_of(nic));
      if (pool >= free_.size()) free_.resize(pool + 1);
      free_[pool].push_back(nic);
    }
    for (std::size_t p = 0; p < free_.size(); ++p) {
      largest_ = std::max(largest_, free_[p].size());
      if (!free_[p].empty()) open_.push_back(static_cast<std::int32_t>(p));
    }
  }

  /// Moves NICs of the `at`-th open pool to `placed`: all of them while a full pool is needed.
  void take(std::int32_t at, std::size_t needed, Nics& placed) {
    Nics& pool = free_[open_[at]];
    const std::size_t count = needed >= largest_ ? pool.size() : std::min(needed, pool.size());
    const auto end = pool.begin() + static_cast<std::ptrdiff_t>(count);
    placed.insert(placed.end(), pool.begin(), end);
    pool.erase(pool.begin(), end);
    if (pool.empty()) open_.erase(open_.begin() + at);
  }
  std::int32_t open() const { return static_cast<std::int32_t>(open_.size()); }

 private:
  std::vector<Nics> free_;
  std::vector<std::int32_t> open_;
  std::size_t largest_ = 0;
};

std::vector<Nics> place_random(Pools pools, std::span<const RingJob> jobs, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<Nics> placed(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    for (std::int32_t c = 0; c < jobs[j].copies; ++c) {
      const std::size_t end = placed[j].size() + jobs[j].copy;
      while (placed[j].size() < end) {
        pools.take(random.below(pools.open()), end - placed[j].size(), placed[j]);
      }
    }
  }
  return placed;
}

std::vector<Nics> place_packed(std::span<const RingJob> jobs) {
  std::vector<Nics> placed;
  std::int32_t next = 0;
  for (const RingJob& job : jobs) {
    Nics nics(static_cast<std::size_t>(job.copy) * job.copies);
    std::iota(nics.begin(), nics.end(), next);
    next += static_cast<std::int32_t>(nics.size());
    placed.push_back(std::move(nics));
  }
  return placed;
}

}  // namespace

Bytes ring_step_bytes(const RingJob& job) {
  const double of_nic = std::ceil(kBytesPerParameter * job.parameters / job.copy);
  return Bytes{std::ceil(of_nic / job.copies)};
}

std::int32_t ring_steps(const RingJob& job) { return 2 * (job.copies - 1); }

Seconds scaled_compute_time(const RingJob& job, FlopPerSecond peak) {
  const double scaled_flop = std::ceil(6 * (job.parameters / 1e9) * job.tokens / 1e9);
  return 1e-9 * Seconds{std::ceil(1e6 * scaled_flop / (peak.base() / 1e12))};
}

std::vector<std::vector<std::int32_t>> place_jobs(const LinkGraph& graph,
                                                  std::span<const RingJob> jobs,
                                                  JobPlacement placement, std::int32_t server,
                                                  std::uint64_t seed) {
  std::int64_t needed = 0;
  for (const RingJob& job : jobs) needed += static_cast<std::int64_t>(job.copy) * job.copies;
  if (needed > graph.nics()) {
    throw MalformedQuestion("jobs: need " + std::to_string(needed) + " NICs, the fabric has " +
                            std::to_string(graph.nics()));
  }
  switch (placement) {
    case JobPlacement::random_leaves:
      return place_random(
          Pools(graph.nics(), [&](std::int32_t nic) { return graph.end_switch(nic); }), jobs, seed);
    case JobPlacement::packed:
      return place_packed(jobs);
    case JobPlacement::random_servers:
      return place_random(Pools(graph.nics(), [&](std::int32_t nic) { return nic / server; }), jobs,
                          seed);
  }
  return {};
}

Flows ring_flows(const LinkGraph& graph, std::span<const RingJob> jobs,
                 std::span<const std::vector<std::int32_t>> nics, bool drop_local) {
  Flows flows;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    open_job(flows);
    const auto elsewhere = [&](std::int32_t nic) {
      return graph.end_switch(nic) != graph.end_switch(nics[j].front());
    };
    if (drop_local && std::ranges::none_of(nics[j], elsewhere)) continue;
    add_copy_rings(flows, nics[j], jobs[j].copies, ring_step_bytes(jobs[j]));
  }
  return flows;
}

}  // namespace scalemodel
