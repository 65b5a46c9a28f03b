#include "scalemodel/serving/simulation.hpp"

#include <algorithm>
#include <array>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// Requests of every replica, by their places in the stream.
std::vector<std::vector<std::size_t>> shares(std::size_t requests, const Replicas& replicas) {
  const int count = std::max(1, replicas.count);
  std::vector<std::vector<std::size_t>> found(static_cast<std::size_t>(count));
  SplitMix random(replicas.seed);
  for (std::size_t i = 0; i < requests; ++i) {
    poll_point();
    const std::size_t chosen = replicas.balance == Balance::random
                                   ? static_cast<std::size_t>(random.below(count))
                                   : i % found.size();
    found[chosen].push_back(i);
  }
  return found;
}

}  // namespace

StreamResult simulate_stream(const StepTimes& times, const CacheBlocks& blocks,
                             const CacheCapacity& capacity, const RequestMix& mix,
                             const std::vector<Request>& requests, const Replicas& replicas) {
  StreamResult result;
  if (requests.empty()) return result;
  result.served.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {  // touching many pages takes long as well
    poll_point();
    result.served.emplace_back();
  }
  TotalsOfReplicas totals;
  std::size_t offered = 0;
  for (const std::vector<std::size_t>& share : shares(requests.size(), replicas)) {
    Replica replica({times, blocks, capacity, mix}, requests, result.served);
    for (const std::size_t request : share) {
      report_progress(offered++, requests.size());
      replica.advance(requests[request].arrival);
      replica.offer(request);
    }
    replica.advance(Seconds{kInfinity});
    totals.add(replica);
  }
  result.totals = totals.since(requests.front().arrival);
  return result;
}

std::vector<Seconds> latencies_alone(const ReplicaSetup& setup, std::span<const Request> requests,
                                     std::span<const double> uncached) {
  std::vector<Request> apart(requests.begin(), requests.end());
  std::vector<Served> served(apart.size());
  std::vector<Seconds> found;
  found.reserve(apart.size());
  Replica replica(setup, apart, served);
  for (std::size_t i = 0; i < apart.size(); ++i) {
    report_progress(i, apart.size());
    apart[i].arrival = replica.now();
    if (uncached.empty()) {
      replica.offer(i);
    } else {
      replica.offer(i, uncached[i]);
    }
    replica.advance(Seconds{kInfinity});
    found.push_back(served[i].finished - apart[i].arrival);
  }
  return found;
}

PrefixTimes prefix_times(const ReplicaSetup& setup, const CacheTier& tier, double prefix,
                         double suffix) {
  const Request request{{}, prefix + suffix, 1, false};
  const std::array<Request, 2> requests{request, request};
  const std::array<double, 2> uncached{prefix + suffix, suffix};
  const std::vector<Seconds> alone = latencies_alone(setup, requests, uncached);
  PrefixTimes found;
  found.load = load_time(tier, prefix * setup.blocks.token());
  found.compute = alone[0] - alone[1];
  const Seconds step = alone[1] - setup.times.engine().request_host;
  found.exposed = tier.layerwise ? max(Seconds{}, found.load - step) : found.load;
  return found;
}

}  // namespace scalemodel
