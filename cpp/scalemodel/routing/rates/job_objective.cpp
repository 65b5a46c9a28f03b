#include "scalemodel/routing/rates/job_objective.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/large_memory.hpp"

namespace scalemodel {

JobObjective::JobObjective(const RoutingInstance& instance, RateModel model)
    : instance_(instance), model_(model), dense_(instance.graph.links(), PathSets::kNone) {
  const auto keep = [&](std::int32_t link) {
    if (link == PathSets::kNone || dense_[link] != PathSets::kNone) return;
    dense_[link] = static_cast<std::int32_t>(capacity_.size());
    capacity_.push_back(instance.graph.capacity(link).base());
  };
  std::ranges::for_each(instance.paths.host_up, keep);
  std::ranges::for_each(instance.paths.host_down, keep);
  std::ranges::for_each(instance.paths.link, keep);
  resize_large(rates_, instance.size());
  values_.resize(instance.flows.jobs);
  bytes_.assign(capacity_.size(), 0.0);
}

void JobObjective::set_flow_links(std::span<const std::int32_t> choice) {
  const PathSets& paths = instance_.paths;
  reserve_large(flows_.first, choice.size() + 1);
  reserve_large(flows_.link, 4 * choice.size());
  flows_.first.assign(1, 0);
  flows_.link.clear();
  const auto add = [&](std::int32_t link) {
    if (link != PathSets::kNone) flows_.link.push_back(dense_[link]);
  };
  for (std::size_t f = 0; f < choice.size(); ++f) {
    if (instance_.is_local(f) || choice[f] != PathSets::kNone) {
      add(paths.host_up[f]);
      if (choice[f] != PathSets::kNone) {
        std::ranges::for_each(instance_.links(f, choice[f]), add);
      }
      add(paths.host_down[f]);
    }
    flows_.first.push_back(static_cast<std::int32_t>(flows_.link.size()));
  }
}

void JobObjective::set_job_links() {
  const Flows& flows = instance_.flows;
  if (by_job_.size() != flows.size()) by_job_ = flows_by_job(flows);
  jobs_.first.assign(1, 0);
  jobs_.link.clear();
  jobs_.weight.clear();
  std::size_t next = 0;
  for (std::int32_t job = 0; job < flows.jobs; ++job) {
    const std::size_t begin = jobs_.link.size();
    for (; next < by_job_.size() && flows.job[by_job_[next]] == job; ++next) {
      const std::int32_t f = by_job_[next];
      for (std::int32_t k = flows_.first[f]; k < flows_.first[f + 1]; ++k) {
        const std::int32_t link = flows_.link[k];
        if (bytes_[link] == 0.0) jobs_.link.push_back(link);
        bytes_[link] += flows.bytes[f];
      }
    }
    for (std::size_t k = begin; k < jobs_.link.size(); ++k) {
      jobs_.weight.push_back(std::exchange(bytes_[jobs_.link[k]], 0.0));
    }
    jobs_.first.push_back(static_cast<std::int32_t>(jobs_.link.size()));
  }
}

std::span<double> JobObjective::sorted_values(std::span<const std::int32_t> choice) {
  const Flows& flows = instance_.flows;
  set_flow_links(choice);
  switch (model_) {
    case RateModel::fair_share:
      filling_.solve(capacity_, flows_, rates_);
      std::ranges::fill(values_, kInfinity);
      for (std::size_t f = 0; f < flows.size(); ++f) {
        double& value = values_[flows.job[f]];
        value = std::min(value, rates_[f] / flows.bytes[f]);
      }
      break;
    case RateModel::allocated:
      set_job_links();
      filling_.solve(capacity_, jobs_, values_);
      break;
  }
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (!instance_.is_local(f) && choice[f] == PathSets::kNone) values_[flows.job[f]] = 0;
  }
  std::ranges::sort(values_);
  return values_;
}

}  // namespace scalemodel
