#include "scalemodel/routing/rates/completion.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/rates/fair_update.hpp"

namespace scalemodel {
namespace {

/// A flow with the bytes that are left at a time, and its rate from then on.
struct Left {
  double bytes, since = 0, rate = 0;
  int version = 0;
};

/// The predicted end of a flow; older versions of the prediction are stale.
struct End {
  double time;
  std::int32_t flow;
  int version;
  bool operator>(const End& other) const {
    return std::tie(time, flow) > std::tie(other.time, other.flow);
  }
};

}  // namespace

std::vector<double> step_completions(const RoutingInstance& instance, const Choice& choice) {
  const Flows& flows = instance.flows;
  const Incidence uses = flow_links(instance, choice);
  FairUpdate fair(instance.graph.capacities(), uses);
  std::vector<double> completion(flows.jobs, 0.0);
  std::vector<Left> left;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    left.push_back({flows.bytes[f]});
    const bool connected = instance.is_local(f) || choice[f] != PathSets::kNone;
    if (connected) fair.start(static_cast<std::int32_t>(f));
    if (!connected) completion[flows.job[f]] = kInfinity;
  }
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  const auto update = [&](double now) {
    for (const std::int32_t f : fair.solve()) {
      Left& flow = left[f];
      if (fair.rate(f) == flow.rate) continue;
      flow.bytes -= flow.rate * (now - flow.since);
      flow.since = now;
      flow.rate = fair.rate(f);
      ++flow.version;
      if (flow.rate > 0) ends.push({now + flow.bytes / flow.rate, f, flow.version});
    }
  };
  update(0);
  while (!ends.empty()) {
    const double now = ends.top().time;
    while (!ends.empty() && ends.top().time <= now * (1 + kRounding)) {
      const End end = ends.top();
      ends.pop();
      poll_point();
      if (end.version != left[end.flow].version || !fair.active(end.flow)) continue;
      fair.stop(end.flow);
      double& of_job = completion[flows.job[end.flow]];
      of_job = std::max(of_job, end.time);
    }
    update(now);
  }
  return completion;
}

}  // namespace scalemodel
