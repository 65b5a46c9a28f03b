// Fabrics and flows of the tests and benchmarks of routing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/fabric/builders.hpp"
#include "scalemodel/routing/instance.hpp"
#include "scalemodel/traffic/patterns.hpp"
#include "scalemodel/traffic/ring_jobs.hpp"

namespace scalemodel::testing {

inline constexpr BytesPerSecond kPort{12.5e9};  // 100 Gbit/s

/// A leaf-spine fabric whose cables all have the capacity of a port.
inline LinkGraph clos(int leaves, int spines, int nics_per_leaf) {
  LeafSpine spec;
  spec.leaves = leaves;
  spec.spines = spines;
  spec.nics_per_leaf = nics_per_leaf;
  spec.host.bandwidth = spec.fabric.bandwidth = kPort;
  return leaf_spine(spec);
}

/// The routing paper's fabric: 64 leaves, 32 spines, 2,048 NICs; the last `failed` spines are down.
inline LinkGraph paper_fabric(int failed = 0) {
  LinkGraph graph = clos(64, 32, 32);
  for (int s = 0; s < failed; ++s) graph.fail_node(64 + 31 - s);
  return graph;
}

/// Flows from (source, destination) pairs, each its own job and group unless `one_job`.
inline Flows flows_of(const std::vector<std::pair<int, int>>& pairs, Bytes size,
                      bool one_job = false) {
  Flows flows;
  if (one_job) open_job(flows);
  for (const auto& [from, to] : pairs) {
    if (!one_job) open_job(flows);
    ++flows.groups;
    flows.add(from, to, size);
  }
  return flows;
}

/// `count` equal flows between random NICs under different leaves, one job.
inline Flows random_flows(const LinkGraph& graph, int count, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<std::pair<int, int>> pairs;
  while (static_cast<int>(pairs.size()) < count) {
    const int from = random.below(graph.nics()), to = random.below(graph.nics());
    if (from != to && graph.leaf_of(from) != graph.leaf_of(to)) pairs.emplace_back(from, to);
  }
  return flows_of(pairs, 1 * unit::MB, true);
}

/// A ring over all NICs in random order: every NIC sends and receives once.
inline Flows full_ring(const LinkGraph& graph, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<std::int32_t> members(graph.nics());
  std::iota(members.begin(), members.end(), 0);
  for (std::int32_t i = graph.nics() - 1; i > 0; --i) {
    std::swap(members[i], members[random.below(i + 1)]);
  }
  Flows flows;
  open_job(flows);
  add_ring(flows, members, 1 * unit::MB);
  return flows;
}

/// The flows in random order, since the order of planting reveals the planes.
inline Flows shuffled(const Flows& flows, SplitMix& random) {
  std::vector<std::int32_t> order(flows.size());
  std::iota(order.begin(), order.end(), 0);
  for (auto i = static_cast<std::int32_t>(flows.size()) - 1; i > 0; --i) {
    std::swap(order[i], order[random.below(i + 1)]);
  }
  Flows result;
  for (const std::int32_t f : order) {
    open_job(result);
    ++result.groups;
    result.add(flows.source[f], flows.destination[f], Bytes{flows.bytes[f]});
  }
  return result;
}

/// Unequal flows that can fill every link of the first `active` leaves exactly: on each spine
/// `layers` cyclic orders of the leaves carry random parts of `full`, one flow per leaf and order.
/// The load of every link in the planted routing, `full`, is the least possible.
inline Flows layered_flows(const LinkGraph& graph, int active, int layers, Bytes full,
                           std::uint64_t seed) {
  const TwoTier& tiers = graph.two_tier();
  SplitMix random(seed);
  const std::int32_t under = graph.nics() / tiers.leaves;
  Flows flows;
  std::vector<std::int32_t> order(active);
  for (std::int32_t spine = 0; spine < tiers.planes; ++spine) {
    std::vector<double> part(layers);
    for (double& p : part) p = 0.1 + random.unit();
    const double sum = std::accumulate(part.begin(), part.end(), 0.0);
    for (const double p : part) {
      std::iota(order.begin(), order.end(), 0);
      for (std::int32_t i = active - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
      for (std::int32_t i = 0; i < active; ++i) {
        const std::int32_t from = order[i], to = order[(i + 1) % active];
        open_job(flows);
        ++flows.groups;
        flows.add(from * under + random.below(under), to * under + random.below(under),
                  p / sum * full);
      }
    }
  }
  return shuffled(flows, random);
}

/// As `layered_flows` with one cyclic order on each spine, whose flows are cut in parts at random
/// places, all together `count`; a multiple of `full` over `grain` each where that is above 0.
inline Flows cut_flows(const LinkGraph& graph, int active, int count, Bytes full,
                       std::uint64_t seed, int grain = 0) {
  const Flows whole = layered_flows(graph, active, 1, full, seed);
  const auto wholes = static_cast<std::int32_t>(whole.size());
  SplitMix random(seed);
  std::vector<std::vector<double>> cuts(whole.size(), {0.0, 1.0});
  for (std::int32_t left = count - wholes; left > 0;) {
    std::vector<double>& of_flow = cuts[random.below(wholes)];
    const double place =
        grain > 0 ? random.below(grain) / static_cast<double>(grain) : random.unit();
    const auto near = [&](double cut) { return std::abs(cut - place) < 0.02; };
    if (std::ranges::any_of(of_flow, near)) continue;
    of_flow.push_back(place);
    --left;
  }
  Flows flows;
  for (std::size_t f = 0; f < whole.size(); ++f) {
    std::ranges::sort(cuts[f]);
    for (std::size_t i = 1; i < cuts[f].size(); ++i) {
      open_job(flows);
      ++flows.groups;
      flows.add(whole.source[f], whole.destination[f], (cuts[f][i] - cuts[f][i - 1]) * full);
    }
  }
  return shuffled(flows, random);
}

/// Whole numbers from `low` to `high` that add up to `sum`, at random.
inline std::vector<int> composition(int sum, int low, int high, SplitMix& random) {
  while (true) {
    std::vector<int> parts;
    int left = sum;
    while (left >= low) {
      const int part = low + random.below(high - low + 1);
      if (part > left) break;
      parts.push_back(part);
      left -= part;
    }
    if (left == 0) return parts;
  }
}

/// Flows of few sizes, `low` to `high` units, that can fill every link with `full` units: on every
/// spine each leaf sends a random composition of `full` and receives that of another leaf, and
/// flows of one size join senders and receivers at random.
inline Flows few_size_flows(const LinkGraph& graph, int full, int low, int high, Bytes unit,
                            std::uint64_t seed) {
  const TwoTier& tiers = graph.two_tier();
  const std::int32_t under = graph.nics() / tiers.leaves;
  SplitMix random(seed);
  Flows flows;
  for (std::int32_t spine = 0; spine < tiers.planes; ++spine) {
    std::vector<std::vector<std::int32_t>> senders(high + 1), receivers(high + 1);
    const std::int32_t turn = 1 + random.below(tiers.leaves - 1);
    for (std::int32_t leaf = 0; leaf < tiers.leaves; ++leaf) {
      for (const int size : composition(full, low, high, random)) {
        senders[size].push_back(leaf);
        receivers[size].push_back((leaf + turn) % tiers.leaves);
      }
    }
    for (int size = low; size <= high; ++size) {
      std::vector<std::int32_t>& to = receivers[size];
      for (auto i = static_cast<std::int32_t>(to.size()) - 1; i > 0; --i) {
        const std::int32_t j = random.below(i + 1);
        const bool keeps_apart = senders[size][i] != to[j] && senders[size][j] != to[i];
        if (keeps_apart) std::swap(to[i], to[j]);
      }
      for (std::size_t i = 0; i < to.size(); ++i) {
        open_job(flows);
        ++flows.groups;
        flows.add(senders[size][i] * under + random.below(under),
                  to[i] * under + random.below(under), size * unit);
      }
    }
  }
  return shuffled(flows, random);
}

/// Harder than `layered_flows`: sizes repeat nowhere, and most flows fit only few others. On each
/// spine a cyclic order of the leaves carries `full` per link; then flows a -> b and c -> d of one
/// spine give a part to new flows a -> d and c -> b, which changes no sum, until there are `count`
/// flows. The load of a link in the planted routing, `full`, is the least possible.
inline Flows planted_flows(const LinkGraph& graph, int active, int count, Bytes full,
                           std::uint64_t seed) {
  struct Part {
    std::int32_t spine, from, to;
    double bytes;
  };
  const TwoTier& tiers = graph.two_tier();
  SplitMix random(seed);
  std::vector<Part> parts;
  std::vector<std::vector<std::size_t>> of_spine(tiers.planes);
  const auto add = [&](const Part& part) {
    of_spine[part.spine].push_back(parts.size());
    parts.push_back(part);
  };
  std::vector<std::int32_t> order(active);
  for (std::int32_t spine = 0; spine < tiers.planes; ++spine) {
    std::iota(order.begin(), order.end(), 0);
    for (std::int32_t i = active - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    for (std::int32_t i = 0; i < active; ++i) {
      add({spine, order[i], order[(i + 1) % active], full.base()});
    }
  }
  while (static_cast<int>(parts.size()) < count) {
    const auto& flows = of_spine[random.below(tiers.planes)];
    const auto any = [&] { return flows[random.below(static_cast<std::int32_t>(flows.size()))]; };
    Part& one = parts[any()];
    Part& two = parts[any()];
    if (one.from == two.to || two.from == one.to || one.from == two.from || one.to == two.to) {
      continue;
    }
    const double moved = (0.2 + 0.6 * random.unit()) * std::min(one.bytes, two.bytes);
    if (moved < 0.02 * full.base()) continue;
    one.bytes -= moved;
    two.bytes -= moved;
    const Part first{one.spine, one.from, two.to, moved};
    const Part second{one.spine, two.from, one.to, moved};
    add(first);
    add(second);
  }
  const std::int32_t under = graph.nics() / tiers.leaves;
  Flows flows;
  for (const Part& part : parts) {
    open_job(flows);
    ++flows.groups;
    flows.add(part.from * under + random.below(under), part.to * under + random.below(under),
              Bytes{part.bytes});
  }
  return shuffled(flows, random);
}

/// The ring jobs of arXiv 2503.05324: parameters, tokens and NICs of a copy (tensor times pipeline
/// parallelism) as in its public simulation code.
inline RingJob gpt3_job(int copies) { return {175e9, 300e9, 64, copies}; }
inline RingJob bloom_job(int copies) { return {176e9, 366e9, 48, copies}; }
inline RingJob llama70_job(int copies) { return {70e9, 2e12, 128, copies}; }

/// Mixes of 2 to 5 concurrent jobs; rings of 8 are defined for 2 and 3 jobs only.
inline std::vector<RingJob> paper_mix(int jobs, int ring) {
  const RingJob bloom = bloom_job(ring), llama = llama70_job(ring), gpt3 = gpt3_job(ring);
  if (jobs == 2) return ring == 8 ? std::vector{bloom, gpt3} : std::vector{bloom, llama};
  std::vector<RingJob> mix{bloom, llama, llama};
  if (ring == 4) mix = {bloom, llama, gpt3};
  if (ring == 8) mix = {bloom, gpt3, llama};
  if (jobs >= 4) mix.push_back(ring == 2 ? bloom : llama);
  if (jobs >= 5) mix.push_back(gpt3);
  return mix;
}

}  // namespace scalemodel::testing
