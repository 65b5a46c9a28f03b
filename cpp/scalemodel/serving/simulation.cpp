#include "scalemodel/serving/simulation.hpp"

#include <algorithm>

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
  result.served.resize(requests.size());
  if (requests.empty()) return result;
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

}  // namespace scalemodel
