// Traffic of conversations, for the tests of fleets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/fleet/fleet.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {

/// BlockNames of blocks, as a trace has them.
struct BlockNames {
  std::vector<std::int64_t> offsets{0};
  std::vector<BlockHash> names;
  double block_tokens = 64;

  PrefixColumns columns() const { return {offsets, names, block_tokens}; }
};

struct FleetTraffic {
  std::vector<Request> requests;
  std::vector<std::int64_t> sessions;
  BlockNames names;
};

/// Sessions whose prompts grow by `grown` blocks a turn, all of one of ten system prompts.
inline FleetTraffic conversations(int count, double rate, std::uint64_t seed, int grown = 3) {
  FleetTraffic traffic;
  SplitMix random(seed);
  const int sessions = std::max(1, count / 5);
  std::vector<int> turns(static_cast<std::size_t>(sessions));
  double now = 0;
  for (int i = 0; i < count; ++i) {
    now -= std::log(1 - random.unit()) / rate;
    const int session = random.below(sessions);
    const int blocks = 4 + grown * turns[static_cast<std::size_t>(session)]++;
    for (int block = 0; block < blocks; ++block) {
      const bool system = block < 3;
      const int owner = system ? session % 10 : 100 + session;
      traffic.names.names.push_back(SplitMix(1000 * owner + block).next());
    }
    traffic.names.offsets.push_back(static_cast<std::int64_t>(traffic.names.names.size()));
    const double input = blocks * traffic.names.block_tokens + random.below(60);
    traffic.requests.push_back({Seconds{now}, input, 1.0 + random.below(150), false});
    traffic.sessions.push_back(session);
  }
  return traffic;
}

inline bool same_service(const Served& a, const Served& b) {
  return a.started == b.started && a.first_token == b.first_token && a.finished == b.finished &&
         a.preemptions == b.preemptions && a.refused == b.refused;
}

inline double mean_ttft(const FleetTraffic& traffic, const FleetResult& found) {
  double sum = 0;
  for (std::size_t i = 0; i < found.served.size(); ++i) {
    sum += (found.served[i].first_token - traffic.requests[i].arrival).base();
  }
  return sum / static_cast<double>(found.served.size());
}

inline double hit_tokens(const FleetResult& found) {
  return std::accumulate(found.served.begin(), found.served.end(), 0.0,
                         [](double sum, const Served& s) { return sum + s.cached_tokens; });
}

}  // namespace scalemodel::testing
