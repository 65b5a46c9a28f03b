#include "scalemodel/routing/rates/objective.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/rates/packing_bound.hpp"

namespace scalemodel {
namespace {

/// Capacity of the narrowest link on the widest path of a flow, bytes/s.
double widest_path(const RoutingInstance& instance, std::size_t flow) {
  double widest = 0;
  poll_point(1 + instance.paths_of(flow) / 4);
  for (std::int32_t p = 0; p < instance.paths_of(flow); ++p) {
    double narrowest = kInfinity;
    for (const std::int32_t link : instance.links(flow, p)) {
      narrowest = std::min(narrowest, instance.graph.capacity(link).base());
    }
    widest = std::max(widest, narrowest);
  }
  return widest;
}

/// Flows that leave, or that enter, one leaf, and the links between the leaf and the fabric.
struct LeafDemand {
  std::vector<double> bytes;     ///< by flow
  std::vector<double> capacity;  ///< by link that is up, bytes/s
};

/// The flows of a leaf as times on one of its links; nothing where links differ.
std::optional<LeafPacking> leaf_packing(const LeafDemand& leaf) {
  const auto [low, high] = std::ranges::minmax_element(leaf.capacity);
  if (leaf.bytes.empty() || *low < *high) return std::nullopt;
  std::vector<double> times;
  times.reserve(leaf.bytes.size());
  for (const double bytes : leaf.bytes) times.push_back(bytes / *high);
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  const double least =
      std::max(sum / static_cast<double>(leaf.capacity.size()), std::ranges::max(times));
  return LeafPacking(times, leaf.capacity.size(), least);
}

/// Time of the q + 1 smallest among the q S + 1 largest flows on one link, the longest over q.
Seconds pigeonhole_of(LeafDemand& leaf) {
  const std::size_t links = leaf.capacity.size(), flows = leaf.bytes.size();
  if (links == 0 || flows == 0) return {};
  const auto [low, high] = std::ranges::minmax_element(leaf.capacity);
  std::ranges::sort(leaf.bytes, std::greater{});
  // Sums of all flows up to each say where the longest may be, up to their rounding; only there are
  // the flows themselves added.
  std::vector<double> up_to{0.0};
  up_to.reserve(flows + 1);
  for (const double bytes : leaf.bytes) up_to.push_back(up_to.back() + bytes);
  const auto nearly = [&](std::size_t q) {
    return up_to[q * links + 1] - up_to[q * links + 1 - (q + 1)];
  };
  double most = leaf.bytes.front(), longest = most;
  for (std::size_t q = 1; q * links < flows; ++q) longest = std::max(longest, nearly(q));
  const double rounding =
      4 * std::numeric_limits<double>::epsilon() * static_cast<double>(flows) * up_to.back();
  for (std::size_t q = 1; q * links < flows; ++q) {
    if (nearly(q) < longest - rounding) continue;
    poll_point(1 + static_cast<std::int64_t>(q) / 64);
    const auto end = leaf.bytes.begin() + static_cast<std::ptrdiff_t>(q * links + 1);
    most = std::max(most, std::accumulate(end - static_cast<std::ptrdiff_t>(q + 1), end, 0.0));
  }
  // With unequal links only the widest one gives a bound.
  return Seconds{most / *high};
}

/// What flows put on the links between switches.
class LinkLoads {
 public:
  explicit LinkLoads(const RoutingInstance& instance)
      : instance_(instance), loads_(instance.graph.links()) {}

  void add(std::size_t flow, std::int32_t choice, double bytes) {
    poll_point();
    if (choice == PathSets::kNone || instance_.is_local(flow)) return;
    for (const std::int32_t link : instance_.links(flow, choice)) {
      loads_[link].bytes += bytes;
      ++loads_[link].flows;
    }
  }

  FabricLoad most() const {
    const LinkGraph& graph = instance_.graph;
    FabricLoad load;
    for (std::int32_t link = 0; link < graph.links(); ++link) {
      const Load& of_link = loads_[link];
      if (of_link.flows == 0) continue;
      load.flows = std::max(load.flows, of_link.flows);
      load.bytes = max(load.bytes, Bytes{of_link.bytes});
      load.drain = max(load.drain, Bytes{of_link.bytes} / graph.capacity(link));
    }
    return load;
  }

 private:
  struct Load {
    double bytes = 0;
    std::int32_t flows = 0;
  };
  const RoutingInstance& instance_;
  std::vector<Load> loads_;
};

/// Demand of every switch with NICs: leaving flows by node, then entering flows by node.
std::vector<LeafDemand> leaf_demands(const RoutingInstance& instance) {
  const LinkGraph& graph = instance.graph;
  std::vector<LeafDemand> leaves(2 * static_cast<std::size_t>(graph.nodes()));
  for (std::size_t f = 0; f < instance.size(); ++f) {
    if (instance.paths_of(f) == 0 || instance.paths.host_up[f] == PathSets::kNone) continue;
    const std::int32_t from = graph.leaf_of(instance.flows.source[f]);
    const std::int32_t to = graph.leaf_of(instance.flows.destination[f]);
    leaves[from].bytes.push_back(instance.flows.bytes[f]);
    leaves[graph.nodes() + to].bytes.push_back(instance.flows.bytes[f]);
  }
  for (std::int32_t link = 0; link < graph.links(); ++link) {
    const std::int32_t from = graph.from(link), to = graph.to(link);
    if (!graph.alive(link) || graph.kind(from) == NodeKind::nic ||
        graph.kind(to) == NodeKind::nic) {
      continue;
    }
    const double capacity = graph.capacity(link).base();
    if (!leaves[from].bytes.empty()) leaves[from].capacity.push_back(capacity);
    LeafDemand& entered = leaves[graph.nodes() + to];
    if (!entered.bytes.empty()) entered.capacity.push_back(capacity);
  }
  return leaves;
}

/// NICs of a flow.
struct Ends {
  std::int32_t from, to;
};

/// Fetches what is stored of a flow's ends.
void fetch_ends(const RoutingInstance& instance, std::int32_t flow) {
  const auto f = static_cast<std::size_t>(flow);
  __builtin_prefetch(&instance.flows.job[f]);
  __builtin_prefetch(&instance.flows.source[f]);
  __builtin_prefetch(&instance.flows.destination[f]);
  __builtin_prefetch(&instance.flows.bytes[f]);
  __builtin_prefetch(&instance.paths.host_up[f]);
  __builtin_prefetch(&instance.paths.host_down[f]);
}

}  // namespace

double port_capacity(const RoutingInstance& instance, std::size_t flow, std::int32_t host_link) {
  return host_link == PathSets::kNone ? widest_path(instance, flow)
                                      : instance.graph.capacity(host_link).base();
}

std::vector<double> job_values(const Flows& flows, std::span<const double> rates) {
  std::vector<double> values(flows.jobs, kInfinity);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    values[flows.job[f]] = std::min(values[flows.job[f]], rates[f] / flows.bytes[f]);
  }
  return values;
}

std::vector<double> allocated_values(const RoutingInstance& instance, const Routing& routing,
                                     WaterFilling& filling) {
  const Incidence uses = job_links(instance, routing);
  std::vector<double> values(uses.size());
  filling.solve(instance.graph.capacities(), uses, values);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    if (!instance.is_local(f) && instance.paths_of(f) == 0) values[instance.flows.job[f]] = 0;
  }
  return values;
}

namespace {

/// Values of all jobs at once, flow after flow as they lie in memory.
std::vector<double> isolated_values_at_once(const RoutingInstance& instance) {
  struct Port {
    double capacity = 0, sent = 0, received = 0;
  };
  const Flows& flows = instance.flows;
  const auto nics = static_cast<std::size_t>(instance.graph.nics());
  std::vector<Port> ports(nics * static_cast<std::size_t>(flows.jobs));
  for (std::size_t f = 0; f < flows.size(); ++f) {
    Port* of_job = ports.data() + static_cast<std::size_t>(flows.job[f]) * nics;
    Port &from = of_job[flows.source[f]], &to = of_job[flows.destination[f]];
    from.sent += flows.bytes[f];
    to.received += flows.bytes[f];
    const PathSets& paths = instance.paths;
    from.capacity = std::max(from.capacity, port_capacity(instance, f, paths.host_up[f]));
    to.capacity = std::max(to.capacity, port_capacity(instance, f, paths.host_down[f]));
  }
  std::vector<double> values(flows.jobs, kInfinity);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const Port& port = ports[i];
    double& value = values[i / nics];
    if (port.sent > 0) value = std::min(value, port.capacity / port.sent);
    if (port.received > 0) value = std::min(value, port.capacity / port.received);
  }
  return values;
}

}  // namespace

std::vector<double> isolated_values(const RoutingInstance& instance) {
  if (fits_by_job(instance.flows, instance.graph.nics())) return isolated_values_at_once(instance);
  const Flows& flows = instance.flows;
  const LinkGraph& graph = instance.graph;
  // By NIC: capacity of its only link, or of the widest path of the job.
  std::vector<double> port(graph.nics(), 0.0);
  std::vector<double> sent(graph.nics(), 0.0), received(graph.nics(), 0.0);
  std::vector<double> values(flows.jobs, kInfinity);
  const std::vector<std::int32_t> order = flows_by_job(flows);
  // Flows of a job lie far apart: they are met once, and what is needed of them again is kept.
  std::vector<Ends> ends;
  for (std::size_t next = 0; next < order.size();) {
    const std::int32_t job = flows.job[order[next]];
    ends.clear();
    for (; next < order.size() && flows.job[order[next]] == job; ++next) {
      const auto f = static_cast<std::size_t>(order[next]);
      if (next + kFlowsAhead < order.size()) fetch_ends(instance, order[next + kFlowsAhead]);
      const std::int32_t from = flows.source[f], to = flows.destination[f];
      sent[from] += flows.bytes[f];
      received[to] += flows.bytes[f];
      port[from] = std::max(port[from], port_capacity(instance, f, instance.paths.host_up[f]));
      port[to] = std::max(port[to], port_capacity(instance, f, instance.paths.host_down[f]));
      ends.push_back({from, to});
    }
    for (const auto [from, to] : ends) {
      if (sent[from] > 0) values[job] = std::min(values[job], port[from] / sent[from]);
      if (received[to] > 0) values[job] = std::min(values[job], port[to] / received[to]);
      sent[from] = received[to] = 0;
    }
    for (const auto [from, to] : ends) port[from] = port[to] = 0;
  }
  return values;
}

std::weak_ordering compare_sorted(std::span<double> a, std::span<double> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i] || std::abs(a[i] - b[i]) <= kRounding * std::max(a[i], b[i])) continue;
    return a[i] < b[i] ? std::weak_ordering::less : std::weak_ordering::greater;
  }
  return a.size() <=> b.size();
}

std::vector<double> link_rates(const RoutingInstance& instance, const FairParts& parts) {
  const Incidence& uses = parts.uses;
  std::vector<double> carried(instance.graph.links(), 0.0);
  PollPoints points;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    points();
    for (std::int32_t k = uses.first[i]; k < uses.first[i + 1]; ++k) {
      carried[uses.link[k]] += (uses.weight.empty() ? 1.0 : uses.weight[k]) * parts.rate[i];
    }
  }
  return carried;
}

FabricLoad fabric_load(const RoutingInstance& instance, const Routing& routing) {
  LinkLoads loads(instance);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    for (std::int32_t part = routing.first[f]; part < routing.first[f + 1]; ++part) {
      loads.add(f, routing.choice[part], routing.share[part] * instance.flows.bytes[f]);
    }
  }
  return loads.most();
}

Seconds drain_of(const RoutingInstance& instance, const Choice& choice) {
  LinkLoads loads(instance);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    loads.add(f, choice[f], instance.flows.bytes[f]);
  }
  return loads.most().drain;
}

LoadBound load_bound(const RoutingInstance& instance) {
  LoadBound bound;
  std::vector<double> widest_of_set(instance.paths.path_first.size(), -1);
  PollPoints points;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    points();
    if (instance.is_local(f)) continue;
    double& of_set = widest_of_set[instance.paths.set[f]];
    if (of_set < 0) of_set = widest_path(instance, f);
    const BytesPerSecond widest{of_set};
    if (widest > BytesPerSecond{}) {
      bound.largest = max(bound.largest, Bytes{instance.flows.bytes[f]} / widest);
      bound.flows = std::max(bound.flows, 1);
    }
  }
  std::vector<LeafPacking> packings;
  for (LeafDemand& leaf : leaf_demands(instance)) {
    if (leaf.capacity.empty()) continue;
    const auto links = static_cast<std::int32_t>(leaf.capacity.size());
    const auto flows = static_cast<std::int32_t>(leaf.bytes.size());
    bound.flows = std::max(bound.flows, (flows + links - 1) / links);
    const double bytes = std::reduce(leaf.bytes.begin(), leaf.bytes.end());
    const double capacity = std::reduce(leaf.capacity.begin(), leaf.capacity.end());
    bound.spread = max(bound.spread, Seconds{bytes / capacity});
    bound.pigeonhole = max(bound.pigeonhole, pigeonhole_of(leaf));
    if (auto packing = leaf_packing(leaf)) packings.push_back(*std::move(packing));
  }
  if (!packings.empty()) bound.packing = Seconds{packing_bound(packings, bound.drain().base())};
  return bound;
}

}  // namespace scalemodel
