#include "scalemodel/routing/instance.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

/// Calls `visit(link)` for every link of one part of a flow.
template <class Visit>
void for_each_link_of_path(const RoutingInstance& instance, std::size_t flow, std::int32_t choice,
                           const Visit& visit) {
  poll_point();
  if (!instance.is_local(flow) && choice == PathSets::kNone) return;
  const PathSets& paths = instance.paths;
  if (paths.host_up[flow] != PathSets::kNone) visit(paths.host_up[flow]);
  if (choice != PathSets::kNone) {
    for (const std::int32_t link : instance.links(flow, choice)) visit(link);
  }
  if (paths.host_down[flow] != PathSets::kNone) visit(paths.host_down[flow]);
}

bool is_host_down(const RoutingInstance& instance, std::size_t flow) {
  const auto down = [&](std::int32_t link) {
    return link != PathSets::kNone && !instance.graph.alive(link);
  };
  return down(instance.paths.host_up[flow]) || down(instance.paths.host_down[flow]);
}

/// Sums of weights per link, in the order in which the links were first added.
class LinkSums {
 public:
  explicit LinkSums(std::int32_t links) : sum_(links, 0.0) {}

  void add(std::int32_t link, double weight) {
    if (sum_[link] == 0.0) added_.push_back(link);
    sum_[link] += weight;
  }
  /// Appends the sums as the next entity and resets them.
  void close(Incidence& into) {
    for (const std::int32_t link : added_) {
      into.link.push_back(link);
      into.weight.push_back(std::exchange(sum_[link], 0.0));
    }
    into.first.push_back(static_cast<std::int32_t>(into.link.size()));
    added_.clear();
  }

 private:
  std::vector<double> sum_;
  std::vector<std::int32_t> added_;
};

}  // namespace

std::int32_t RoutingInstance::position_of_plane(std::size_t flow, std::int32_t plane) const {
  const std::int32_t set = paths.set[flow];
  const std::int32_t count = paths.paths(set);
  if (count == graph.two_tier().planes) return plane;
  const auto via = std::span(paths.via).subspan(paths.path_first[set], count);
  const auto found = std::ranges::lower_bound(via, plane);
  if (found == via.end() || *found != plane) return PathSets::kNone;
  return static_cast<std::int32_t>(found - via.begin());
}

std::size_t RoutingInstance::disconnected() const {
  std::size_t count = 0;
  for (std::size_t f = 0; f < size(); ++f) {
    count += (is_local(f) ? is_host_down(*this, f) : paths_of(f) == 0) ? 1 : 0;
  }
  return count;
}

/// Counts the flows of every job first: sorting millions of them would cost more per flow.
std::vector<std::int32_t> flows_by_job(const Flows& flows) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(flows.jobs) + 1, 0);
  for (const std::int32_t job : flows.job) ++next[job + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  auto order = large_vector<std::int32_t>(flows.size());
  PollPoints points;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    points();
    order[next[flows.job[f]]++] = static_cast<std::int32_t>(f);
  }
  return order;
}

Routing single_path(Choice choice) {
  Routing routing;
  resize_large(routing.first, choice.size() + 1);
  std::iota(routing.first.begin(), routing.first.end(), 0);
  reserve_large(routing.share, choice.size());
  routing.share.assign(choice.size(), 1.0);
  routing.choice = std::move(choice);
  return routing;
}

Incidence flow_links(const RoutingInstance& instance, const Choice& choice) {
  Incidence incidence;
  reserve_large(incidence.first, choice.size() + 1);
  reserve_large(incidence.link, 4 * choice.size());
  for (std::size_t f = 0; f < choice.size(); ++f) {
    for_each_link_of_path(instance, f, choice[f],
                          [&](std::int32_t link) { incidence.link.push_back(link); });
    incidence.first.push_back(static_cast<std::int32_t>(incidence.link.size()));
  }
  return incidence;
}

Incidence flow_links(const RoutingInstance& instance, const Routing& routing) {
  if (!routing.sprayed && routing.choice.size() == instance.size()) {
    return flow_links(instance, routing.choice);
  }
  Incidence incidence;
  LinkSums sums(routing.sprayed ? instance.graph.links() : 0);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    for (std::int32_t part = routing.first[f]; part < routing.first[f + 1]; ++part) {
      for_each_link_of_path(instance, f, routing.choice[part], [&](std::int32_t link) {
        if (routing.sprayed) {
          sums.add(link, routing.share[part]);
        } else {
          incidence.link.push_back(link);
        }
      });
      if (!routing.sprayed) {
        incidence.first.push_back(static_cast<std::int32_t>(incidence.link.size()));
      }
    }
    if (routing.sprayed) sums.close(incidence);
  }
  return incidence;
}

namespace {

/// Sums of all jobs at once, flow after flow as they lie in memory; each adds up in the order of
/// its flows all the same.
Incidence job_links_at_once(const RoutingInstance& instance, const Routing& routing) {
  const Flows& flows = instance.flows;
  const auto links = static_cast<std::size_t>(instance.graph.links());
  std::vector<double> sums(links * static_cast<std::size_t>(flows.jobs), 0.0);
  std::vector<std::vector<std::int32_t>> added(static_cast<std::size_t>(flows.jobs));
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const auto job = static_cast<std::size_t>(flows.job[f]);
    double* sum = sums.data() + job * links;
    for (std::int32_t part = routing.first[f]; part < routing.first[f + 1]; ++part) {
      const double bytes = routing.share[part] * flows.bytes[f];
      for_each_link_of_path(instance, f, routing.choice[part], [&](std::int32_t link) {
        if (sum[link] == 0.0) added[job].push_back(link);
        sum[link] += bytes;
      });
    }
  }
  Incidence incidence;
  for (std::size_t job = 0; job < added.size(); ++job) {
    for (const std::int32_t link : added[job]) {
      incidence.link.push_back(link);
      incidence.weight.push_back(std::exchange(sums[job * links + link], 0.0));
    }
    incidence.first.push_back(static_cast<std::int32_t>(incidence.link.size()));
  }
  return incidence;
}

}  // namespace

bool fits_by_job(const Flows& flows, std::int32_t places) {
  constexpr std::size_t kMaxSums = std::size_t{1} << 20;
  const std::size_t sums = static_cast<std::size_t>(flows.jobs) * static_cast<std::size_t>(places);
  return sums <= std::min(kMaxSums, flows.size());
}

Incidence job_links(const RoutingInstance& instance, const Routing& routing) {
  const Flows& flows = instance.flows;
  if (fits_by_job(flows, instance.graph.links())) return job_links_at_once(instance, routing);
  Incidence incidence;
  LinkSums sums(instance.graph.links());
  const std::vector<std::int32_t> order = flows_by_job(flows);
  std::size_t next = 0;
  for (std::int32_t job = 0; job < flows.jobs; ++job) {
    for (; next < order.size() && flows.job[order[next]] == job; ++next) {
      const std::int32_t f = order[next];
      for (std::int32_t part = routing.first[f]; part < routing.first[f + 1]; ++part) {
        const double bytes = routing.share[part] * flows.bytes[f];
        for_each_link_of_path(instance, f, routing.choice[part],
                              [&](std::int32_t link) { sums.add(link, bytes); });
      }
    }
    sums.close(incidence);
  }
  return incidence;
}

std::vector<double> link_bytes(const RoutingInstance& instance, const Routing& routing) {
  std::vector<double> bytes(instance.graph.links(), 0.0);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    for (std::int32_t part = routing.first[f]; part < routing.first[f + 1]; ++part) {
      const double of_part = routing.share[part] * instance.flows.bytes[f];
      for_each_link_of_path(instance, f, routing.choice[part],
                            [&](std::int32_t link) { bytes[link] += of_part; });
    }
  }
  return bytes;
}

}  // namespace scalemodel
