#include "scalemodel/fabric/direct_connect.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

Pair ordered(std::int32_t a, std::int32_t b) { return std::minmax({a, b}); }

/// Bytes by pair of NICs, both directions together.
std::map<Pair, double> pair_demands(std::int32_t nics, std::span<const NicDemand> demands) {
  std::map<Pair, double> bytes;
  for (const NicDemand& demand : demands) {
    for (const std::int32_t nic : {demand.source, demand.destination}) {
      if (nic < 0 || nic >= nics) {
        throw MalformedQuestion("demands: NIC " + std::to_string(nic) + " must be 0 to " +
                                std::to_string(nics - 1));
      }
    }
    if (demand.source != demand.destination) {
      bytes[ordered(demand.source, demand.destination)] += demand.bytes;
    }
  }
  return bytes;
}

std::vector<Pair> matching_of(const std::map<Pair, double>& bytes) {
  std::vector<std::pair<double, Pair>> heaviest;
  for (const auto& [pair, of_pair] : bytes) {
    if (of_pair > 0) heaviest.emplace_back(of_pair, pair);
  }
  std::ranges::stable_sort(heaviest, std::ranges::greater{}, [](const auto& h) { return h.first; });
  std::vector<Pair> chosen;
  std::map<std::int32_t, bool> matched;
  for (const auto& [of_pair, pair] : heaviest) {
    if (matched[pair.first] || matched[pair.second]) continue;
    matched[pair.first] = matched[pair.second] = true;
    chosen.push_back(pair);
  }
  const auto weight = [&](std::int32_t a, std::int32_t b) {
    const auto found = bytes.find(ordered(a, b));
    return found == bytes.end() ? 0.0 : found->second;
  };
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      for (std::size_t j = i + 1; j < chosen.size(); ++j) {
        const auto [a, b] = chosen[i];
        const auto [c, d] = chosen[j];
        const double now = weight(a, b) + weight(c, d);
        const double crossed = weight(a, c) + weight(b, d), other = weight(a, d) + weight(b, c);
        if (std::max(crossed, other) <= now * (1 + 1e-12)) continue;
        chosen[i] = crossed >= other ? ordered(a, c) : ordered(a, d);
        chosen[j] = crossed >= other ? ordered(b, d) : ordered(b, c);
        better = true;
      }
    }
  }
  std::erase_if(chosen, [&](const Pair& pair) { return weight(pair.first, pair.second) <= 0; });
  return chosen;
}

}  // namespace

std::vector<std::int32_t> ring_strides(std::int32_t nics, int count) {
  std::vector<std::int32_t> coprime;
  for (std::int32_t p = 1; 2 * p <= nics; ++p) {
    if (std::gcd(p, nics) == 1) coprime.push_back(p);
  }
  std::vector<std::int32_t> strides;
  const double ratio = std::pow(static_cast<double>(nics) / 2, 1.0 / std::max(count, 1));
  for (int i = 0; i < count && !coprime.empty(); ++i) {
    const double wanted = std::pow(ratio, i);
    const auto nearest = std::ranges::min_element(
        coprime, {}, [&](std::int32_t p) { return std::abs(std::log(p / wanted)); });
    strides.push_back(*nearest);
    coprime.erase(nearest);
  }
  return strides;
}

std::vector<Edge> heavy_matching(std::int32_t nics, std::span<const NicDemand> demands) {
  std::vector<Edge> edges;
  for (const auto& [a, b] : matching_of(pair_demands(nics, demands))) {
    edges.push_back({a, b, {}, {}});
  }
  return edges;
}

LinkGraph direct_connect(std::int32_t nics, int ports, std::span<const std::int32_t> strides,
                         std::span<const NicDemand> demands, const Cable& cable) {
  if (2 * strides.size() > static_cast<std::size_t>(ports)) {
    throw MalformedQuestion("strides: a ring takes two ports of every NIC, which has " +
                            std::to_string(ports));
  }
  std::vector<Edge> edges;
  for (const std::int32_t stride : strides) {
    if (stride < 1 || stride >= nics || std::gcd(stride, nics) != 1) {
      throw MalformedQuestion("strides: " + std::to_string(stride) +
                              " does not visit all NICs; it must be below and share no factor "
                              "with " +
                              std::to_string(nics));
    }
    for (std::int32_t nic = 0; nic < nics; ++nic) {
      edges.push_back({nic, (nic + stride) % nics, cable.bandwidth, cable.latency});
    }
  }
  std::map<Pair, double> bytes = pair_demands(nics, demands);
  for (int port = 2 * static_cast<int>(strides.size()); port < ports; ++port) {
    for (const Pair& pair : matching_of(bytes)) {
      edges.push_back({pair.first, pair.second, cable.bandwidth, cable.latency});
      bytes[pair] /= 2;
    }
  }
  return custom_fabric(nics, 0, edges);
}

}  // namespace scalemodel
