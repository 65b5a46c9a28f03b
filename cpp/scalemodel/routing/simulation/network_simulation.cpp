#include "scalemodel/routing/simulation/network_simulation.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

constexpr double kSameInstant = 1e-12;  ///< relative

bool is_due(double time, double now) { return time <= now * (1 + kSameInstant); }

/// A number that differs where any of the values differs, but for collisions of 64-bit hashes.
std::uint64_t hash_of(std::initializer_list<double> values) {
  std::uint64_t hash = 0;
  for (const double value : values) {
    hash = SplitMix(hash ^ std::bit_cast<std::uint64_t>(value)).next();
  }
  return hash;
}

}  // namespace

NetworkSimulation::NetworkSimulation(const RoutingInstance& instance, const Routing& routing,
                                     std::span<const JobSchedule> schedules, Seconds step_latency)
    : schedules_(schedules), latency_(step_latency.base()), uses_(flow_links(instance, routing)) {
  const Flows& flows = instance.flows;
  const std::vector<double> alone = isolated_values(instance);
  job_of_.resize(flows.groups);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const std::int32_t parts = routing.sprayed ? 1 : routing.first[f + 1] - routing.first[f];
    job_of_[flows.group[f]] = flows.job[f];
    for (std::int32_t p = 0; p < parts; ++p) {
      const double share = routing.sprayed ? 1.0 : routing.share[routing.first[f] + p];
      flow_.push_back(static_cast<std::int32_t>(f));
      group_.push_back(flows.group[f]);
      bytes_.push_back(share * flows.bytes[f]);
      isolated_.push_back(alone[flows.job[f]] * bytes_.back());
    }
  }
  for (std::int32_t g = 0; g < flows.groups; ++g) phase_of_.push_back(flows.phase_of(g));
  phased_ = !flows.phase.empty();
  jobs_.resize(flows.jobs);
  merge(instance.graph.capacities());
  run_.flows.resize(flows.size());
  run_.delivered_bytes.assign(flows.jobs, 0.0);
  run_.moved_bytes.assign(flows.jobs, 0.0);
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    jobs_[j].next_start = schedules_[j].start.base();
    if (jobs_[j].groups.empty()) continue;
    releases_.push({jobs_[j].next_start, static_cast<std::int32_t>(j), 0});
    collectives_ += static_cast<std::uint64_t>(schedules_[j].epochs);
  }
}

/// What the simulation knows about every part and group. Before the first merge: sizes and jobs.
FlowStates NetworkSimulation::states() const {
  FlowStates states{group_, {}, {}};
  for (std::size_t p = 0; p < group_.size(); ++p) {
    poll_point();
    std::uint64_t state = hash_of({bytes_[p], isolated_[p]});
    if (!parts_.empty()) {
      const Part& part = parts_[classes_.of_part[p]];
      if (!part.ended) state ^= hash_of({part.left, part.since, part.rate});
    }
    states.part_state.push_back(state);
  }
  for (std::size_t g = 0; g < job_of_.size(); ++g) {
    std::uint64_t state = hash_of({1.0 * job_of_[g], 1.0 * phase_of_[g]});
    if (!groups_.empty()) {
      const Group& group = groups_[classes_.of_group[g]];
      if (group.in_flight > 0) state ^= hash_of({1.0 * group.step, group.step_start});
    }
    states.group_state.push_back(state);
  }
  return states;
}

/// Merges the parts and groups into classes anew; every one keeps its state.
void NetworkSimulation::merge(std::span<const double> capacity) {
  FlowClasses next = flow_classes(uses_, capacity, states());
  std::vector<Part> parts;
  for (std::size_t c = 0; c < next.parts.size(); ++c) {
    const std::int32_t p = next.parts[c];
    Part part;
    part.group = next.of_group[group_[p]];
    part.members = next.size[c];
    part.bytes = bytes_[p];
    part.isolated_rate = isolated_[p];
    if (!parts_.empty()) {
      const Part& old = parts_[classes_.of_part[p]];
      part.left = old.left;
      part.since = old.since;
      part.rate = old.rate;
      part.ended = old.ended;
    }
    parts.push_back(part);
  }
  std::vector<Group> groups(next.groups.size());
  for (std::size_t c = 0; c < groups.size(); ++c) {
    const std::int32_t g = next.groups[c];
    if (!groups_.empty()) groups[c] = groups_[classes_.of_group[g]];
    groups[c].members = next.groups_size[c];
    groups[c].job = job_of_[g];
    groups[c].phase = phase_of_[g];
    groups[c].parts.clear();
    groups[c].in_flight = 0;
  }
  for (std::size_t c = 0; c < parts.size(); ++c) {
    Group& group = groups[parts[c].group];
    group.parts.push_back(static_cast<std::int32_t>(c));
    group.in_flight += parts[c].ended ? 0 : 1;
  }
  classes_ = std::move(next);
  parts_ = std::move(parts);
  groups_ = std::move(groups);
  fair_ = std::make_unique<FairUpdate>(classes_.capacity, classes_.uses);
  members_.assign(groups_.size(), {});
  for (std::size_t g = 0; g < job_of_.size(); ++g) {
    members_[classes_.of_group[g]].push_back(static_cast<std::int32_t>(g));
  }
  part_times_.start(parts_.size());
  step_times_.start(groups_.size());
  list_groups();
}

/// Lists the classes of groups of every job; the phases that have started stay started.
void NetworkSimulation::list_groups() {
  in_collective_ = 0;
  for (Job& job : jobs_) {
    job.groups.clear();
    job.active_groups = 0;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Job& job = jobs_[groups_[g].job];
    if (groups_[g].parts.empty()) continue;
    job.groups.push_back(static_cast<std::int32_t>(g));
    if (groups_[g].in_flight == 0) continue;
    ++job.active_groups;
    ++in_collective_;
  }
  for (Job& job : jobs_) {
    std::ranges::stable_sort(job.groups, {}, [&](std::int32_t g) { return groups_[g].phase; });
    const auto waits = [&](std::int32_t g) { return groups_[g].phase >= job.next_phase; };
    job.next_group =
        static_cast<std::int32_t>(std::ranges::find_if(job.groups, waits) - job.groups.begin());
  }
}

bool NetworkSimulation::is_unfinished(std::int32_t job) const {
  return !jobs_[job].groups.empty() && jobs_[job].epoch < schedules_[job].epochs;
}

void NetworkSimulation::run_until(double time) {
  while (has_events() && is_due(next_time(), time)) {
    const double now = next_time();
    report_progress(run_.job.size(), collectives_);
    poll_point(8);
    ++run_.events;
    started_ = 0;
    advance(now);
    end_parts(now);
    release_jobs(now);
    update_rates(now);
    if (in_collective_ > 0 && started_ == in_collective_) repeat_steps(now, time);
  }
}

void NetworkSimulation::reroute(Incidence uses, std::span<const double> capacity, double now) {
  solved_before_ += fair_->solved();
  close_classes();
  uses_ = std::move(uses);
  merge(capacity);
  advance(now);
  ends_ = {};
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(parts_.size()); ++p) {
    if (parts_[p].ended) continue;
    fair_->start(p);
    predict_end(p, parts_[p].since);
  }
  update_rates(now);
}

NetworkSimulation::Progress NetworkSimulation::progress(double now) {
  advance(now);
  Progress progress{0, isolated_bytes_};
  for (const double bytes : run_.moved_bytes) progress.moved += bytes;
  for (const Part& part : parts_) {
    if (part.ended || now <= part.since) continue;
    progress.moved += part.members * part.rate * (now - part.since);
  }
  return progress;
}

NetworkRun NetworkSimulation::finish() {
  run_.solved_flows = solved_before_ + fair_->solved();
  for (const Part& part : parts_) run_.stalled_flows += part.ended ? 0 : part.members;
  close_classes();
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
    poll_point();
    ++part.version;
    part.ended = true;
    isolated_rate_ -= part.members * part.isolated_rate;
    ended_.push_back(p);
    Group& group = groups_[part.group];
    run_.moved_bytes[group.job] += part.members * part.rate * (now - part.since);
    common_.parts.push_back({p, now - group.step_start});
    count_part(common_.parts.back(), 1);
    if (--group.in_flight == 0) end_step(part.group, now);
  }
  for (const std::int32_t p : ended_) {
    if (parts_[p].ended) {
      parts_[p].rate = 0;
      fair_->stop(p);
    }
  }
}

void NetworkSimulation::count_part(const End& end, std::int64_t times) {
  Part& part = parts_[end.id];
  const std::int32_t job = groups_[part.group].job;
  run_.delivered_bytes[job] += static_cast<double>(times * part.members) * part.bytes;
  part.completions.add(end.time, times);
  part_times_.add(end.id, job, end.time, times * part.members, run_.flow_times);
}

void NetworkSimulation::count_step(const End& end, std::int64_t times) {
  const Group& group = groups_[end.id];
  step_times_.add(end.id, group.job, end.time, times * group.members, run_.step_times);
}

/// Hands the completions of all classes on to their flows and to the run.
void NetworkSimulation::close_classes() {
  for (std::size_t p = 0; p < flow_.size(); ++p) {
    run_.flows[flow_[p]].add(parts_[classes_.of_part[p]].completions);
  }
  part_times_.flush(run_.flow_times);
  step_times_.flush(run_.step_times);
  common_ = {};
}

void NetworkSimulation::end_step(std::int32_t number, double now) {
  Group& group = groups_[number];
  common_.groups.push_back({number, now - group.step_start});
  count_step(common_.groups.back(), 1);
  if (++group.step < schedules_[group.job].steps) {
    start_step(group, now);
  } else {
    end_group(number, now);
  }
}

/// Ends the collective of a group, and what ends with it: a phase, the collective of the job.
void NetworkSimulation::end_group(std::int32_t number, double now) {
  const Group& group = groups_[number];
  Job& job = jobs_[group.job];
  --in_collective_;
  common_.time = -1;
  for (const std::int32_t ring : members_[number]) {
    run_.ring.push_back(ring);
    run_.ring_epoch.push_back(job.epoch);
    run_.ring_start.push_back(job.phase_start);
    run_.ring_end.push_back(now);
  }
  if (--job.active_groups > 0) return;
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
  job.next_phase = std::numeric_limits<std::int32_t>::min();
  if (++job.epoch < schedules_[group.job].epochs) {
    job.next_start = now + schedules_[group.job].compute.base();
    releases_.push({job.next_start, group.job, 0});
  }
}

/// A part whose end and start coincide is still active in the fair rates and keeps its share.
void NetworkSimulation::start_step(Group& group, double now) {
  group.in_flight = static_cast<std::int32_t>(group.parts.size());
  group.step_start = now;
  ++started_;
  for (const std::int32_t p : group.parts) {
    Part& part = parts_[p];
    part.ended = false;
    isolated_rate_ += part.members * part.isolated_rate;
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
  job.next_phase = phase + 1;
  common_.time = -1;
  for (; job.next_group < static_cast<std::int32_t>(job.groups.size()); ++job.next_group) {
    Group& group = groups_[job.groups[job.next_group]];
    if (group.phase != phase) return;
    ++job.active_groups;
    ++in_collective_;
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
      run_.moved_bytes[groups_[part.group].job] += part.members * moved;
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

/// Called where all groups in flight start a step at one instant. If they did so before with
/// nothing else in between, what happened since then repeats: rates depend only on the flows in
/// flight. Repetitions that end before `until` and before any group has its last step are counted
/// at once.
void NetworkSimulation::repeat_steps(double now, double until) {
  if (common_.time >= 0) {
    const double period = now - common_.time;
    const std::int64_t times = repeats(period, until);
    if (times > 0) {
      for (const End& end : common_.parts) {
        count_part(end, times);
        const Part& part = parts_[end.id];
        run_.moved_bytes[groups_[part.group].job] +=
            static_cast<double>(times * part.members) * part.bytes;
      }
      for (const End& end : common_.groups) count_step(end, times);
      const double shift = static_cast<double>(times) * period;
      isolated_bytes_ += static_cast<double>(times) * (isolated_bytes_ - common_.isolated_bytes);
      run_.events += times * (run_.events - common_.events);
      now_ += shift;
      for (const auto& [g, step] : common_.steps) {
        Group& group = groups_[g];
        group.step += static_cast<std::int32_t>(times * (group.step - step));
        group.step_start += shift;
        for (const std::int32_t p : group.parts) {
          parts_[p].since += shift;
          predict_end(p, parts_[p].since);
        }
      }
    }
  }
  common_ = {now_, isolated_bytes_, run_.events, {}, {}, {}};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].in_flight == 0) continue;
    common_.steps.emplace_back(static_cast<std::int32_t>(g), groups_[g].step);
  }
}

/// How often the steps since the last common start repeat before the last step of a group begins,
/// a collective starts, or `until`.
std::int64_t NetworkSimulation::repeats(double period, double until) const {
  double end = until;
  if (!releases_.empty()) end = std::min(end, releases_.top().time);
  std::int64_t times = std::numeric_limits<std::int32_t>::max();
  if (end < kInfinity && period > 0) {
    times = std::min(times, static_cast<std::int64_t>(std::min((end - now_) / period, 1e9)) - 1);
  }
  for (const auto& [g, step] : common_.steps) {
    const std::int32_t left = schedules_[groups_[g].job].steps - 1 - groups_[g].step;
    times = std::min<std::int64_t>(times, left / (groups_[g].step - step));
  }
  return times;
}

}  // namespace scalemodel
