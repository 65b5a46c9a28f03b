#include "scalemodel/routing/simulation/network_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

constexpr double kSameInstant = 1e-12;  ///< relative

bool is_due(double time, double now) { return time <= now * (1 + kSameInstant); }

}  // namespace

NetworkSimulation::NetworkSimulation(const RoutingInstance& instance, const Routing& routing,
                                     std::span<const JobSchedule> schedules, Seconds step_latency)
    : schedules_(schedules), latency_(step_latency.base()), uses_(flow_links(instance, routing)) {
  fair_ = std::make_unique<FairUpdate>(instance.graph.capacities(), uses_);
  const Flows& flows = instance.flows;
  const std::vector<double> alone = isolated_values(instance);
  const bool whole = routing.sprayed;
  groups_.resize(flows.groups);
  jobs_.resize(flows.jobs);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const std::int32_t parts = whole ? 1 : routing.first[f + 1] - routing.first[f];
    Group& group = groups_[flows.group[f]];
    if (group.parts == 0) {
      group.first = static_cast<std::int32_t>(parts_.size());
      group.job = flows.job[f];
      group.phase = flows.phase_of(flows.group[f]);
      jobs_[group.job].groups.push_back(flows.group[f]);
    }
    group.parts += parts;
    for (std::int32_t p = 0; p < parts; ++p) {
      const double share = whole ? 1.0 : routing.share[routing.first[f] + p];
      const double bytes = share * flows.bytes[f];
      parts_.push_back({flows.group[f], bytes, alone[flows.job[f]] * bytes});
    }
  }
  phased_ = !flows.phase.empty();
  for (Job& job : jobs_) {
    std::ranges::stable_sort(job.groups, {}, [&](std::int32_t g) { return groups_[g].phase; });
  }
  run_.delivered_bytes.assign(flows.jobs, 0.0);
  run_.moved_bytes.assign(flows.jobs, 0.0);
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    jobs_[j].next_start = schedules_[j].start.base();
    if (jobs_[j].groups.empty()) continue;
    releases_.push({jobs_[j].next_start, static_cast<std::int32_t>(j), 0});
  }
}

bool NetworkSimulation::is_unfinished(std::int32_t job) const {
  return !jobs_[job].groups.empty() && jobs_[job].epoch < schedules_[job].epochs;
}

void NetworkSimulation::run_until(double time) {
  while (has_events() && is_due(next_time(), time)) {
    const double now = next_time();
    ++run_.events;
    advance(now);
    end_parts(now);
    release_jobs(now);
    update_rates(now);
  }
}

void NetworkSimulation::reroute(Incidence uses, std::span<const double> capacity, double now) {
  solved_before_ += fair_->solved();
  uses_ = std::move(uses);
  fair_ = std::make_unique<FairUpdate>(capacity, uses_);
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(parts_.size()); ++p) {
    if (!parts_[p].ended) fair_->start(p);
  }
  advance(now);
  update_rates(now);
}

NetworkSimulation::Progress NetworkSimulation::progress(double now) {
  advance(now);
  Progress progress{0, isolated_bytes_};
  for (const double bytes : run_.moved_bytes) progress.moved += bytes;
  for (const Part& part : parts_) {
    if (!part.ended && now > part.since) progress.moved += part.rate * (now - part.since);
  }
  return progress;
}

NetworkRun NetworkSimulation::finish() {
  run_.solved_flows = solved_before_ + fair_->solved();
  for (const Part& part : parts_) run_.stalled_flows += part.ended ? 0 : 1;
  return std::move(run_);
}

void NetworkSimulation::advance(double now) {
  isolated_bytes_ += isolated_rate_ * (now - now_);
  now_ = now;
}

bool NetworkSimulation::drop_stale_ends() {
  while (!ends_.empty() && ends_.top().version != parts_[ends_.top().id].version) ends_.pop();
  return !ends_.empty();
}

double NetworkSimulation::next_time() const {
  if (ends_.empty()) return releases_.top().time;
  if (releases_.empty()) return ends_.top().time;
  return std::min(ends_.top().time, releases_.top().time);
}

void NetworkSimulation::end_parts(double now) {
  ended_.clear();
  while (drop_stale_ends() && is_due(ends_.top().time, now)) {
    const std::int32_t p = ends_.top().id;
    ends_.pop();
    Part& part = parts_[p];
    ++part.version;
    part.ended = true;
    isolated_rate_ -= part.isolated_rate;
    ended_.push_back(p);
    Group& group = groups_[part.group];
    run_.delivered_bytes[group.job] += part.bytes;
    run_.moved_bytes[group.job] += part.rate * (now - part.since);
    if (--group.in_flight == 0) end_step(part.group, now);
  }
  for (const std::int32_t p : ended_) {
    if (parts_[p].ended) {
      parts_[p].rate = 0;
      fair_->stop(p);
    }
  }
}

void NetworkSimulation::end_step(std::int32_t number, double now) {
  Group& group = groups_[number];
  Job& job = jobs_[group.job];
  if (++group.step < schedules_[group.job].steps) {
    start_step(group, now);
  } else if (--job.active_groups == 0) {
    if (phased_) {
      run_.phase_job.push_back(group.job);
      run_.phase_epoch.push_back(job.epoch);
      run_.phase.push_back(group.phase);
      run_.phase_start.push_back(job.phase_start);
      run_.phase_end.push_back(now);
    }
    if (job.next_group < static_cast<std::int32_t>(job.groups.size())) {
      start_phase(job, now);
      return;
    }
    run_.job.push_back(group.job);
    run_.start.push_back(job.start);
    run_.end.push_back(now);
    if (++job.epoch < schedules_[group.job].epochs) {
      job.next_start = now + schedules_[group.job].compute.base();
      releases_.push({job.next_start, group.job, 0});
    }
  }
}

/// A part whose end and start coincide is still active in the fair rates and keeps its share.
void NetworkSimulation::start_step(Group& group, double now) {
  group.in_flight = group.parts;
  for (std::int32_t p = group.first; p < group.first + group.parts; ++p) {
    Part& part = parts_[p];
    part.ended = false;
    isolated_rate_ += part.isolated_rate;
    part.left = part.bytes;
    part.since = now + latency_;
    if (fair_->active(p)) {
      predict_end(p, part.since);
    } else {
      part.rate = 0;
      fair_->start(p);
    }
  }
}

/// Starts the groups of the next phase of the job.
void NetworkSimulation::start_phase(Job& job, double now) {
  job.phase_start = now;
  const std::int32_t phase = groups_[job.groups[job.next_group]].phase;
  for (; job.next_group < static_cast<std::int32_t>(job.groups.size()); ++job.next_group) {
    Group& group = groups_[job.groups[job.next_group]];
    if (group.phase != phase) return;
    ++job.active_groups;
    group.step = 0;
    start_step(group, now);
  }
}

void NetworkSimulation::release_jobs(double now) {
  while (!releases_.empty() && is_due(releases_.top().time, now)) {
    const std::int32_t number = releases_.top().id;
    releases_.pop();
    Job& job = jobs_[number];
    job.start = now;
    job.next_start = kInfinity;
    job.next_group = 0;
    start_phase(job, now);
  }
}

void NetworkSimulation::update_rates(double now) {
  for (const std::int32_t p : fair_->solve()) {
    Part& part = parts_[p];
    const double rate = fair_->rate(p);
    if (rate == part.rate) continue;
    if (now > part.since) {
      const double moved = part.rate * (now - part.since);
      run_.moved_bytes[groups_[part.group].job] += moved;
      part.left -= moved;
      part.since = now;
    }
    part.rate = rate;
    predict_end(p, part.since);
  }
}

void NetworkSimulation::predict_end(std::int32_t p, double from) {
  Part& part = parts_[p];
  ++part.version;
  if (part.rate > 0) ends_.push({from + part.left / part.rate, p, part.version});
}

}  // namespace scalemodel
