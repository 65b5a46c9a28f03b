#include <algorithm>

#include "scalemodel/fleet/running_fleet.hpp"

namespace scalemodel {

void RunningFleet::begin(Seconds now) {
  std::size_t running = replicas_.size();
  if (options_.autoscaler) {
    rule_.emplace(*options_.autoscaler);
    running = std::min(running, static_cast<std::size_t>(options_.autoscaler->min_replicas));
    next_look_ = now + options_.autoscaler->interval;
  }
  state_.assign(replicas_.size(), State::off);
  since_.assign(replicas_.size(), now);
  until_.assign(replicas_.size(), now);
  for (std::size_t i = 0; i < running; ++i) state_[i] = State::online;
  list_online(now);
}

void RunningFleet::list_online(Seconds now) {
  online_.clear();
  ScaleEvent event{now};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (state_[i] == State::online) online_.push_back(i);
    event.starting += state_[i] == State::starting ? 1 : 0;
  }
  event.online = static_cast<double>(online_.size());
  if (!found_.events.empty()) {
    const ScaleEvent& last = found_.events.back();
    if (last.online == event.online && last.starting == event.starting) return;
  }
  found_.events.push_back(event);
}

void RunningFleet::scale(Seconds until) {
  for (; next_look_ <= until; next_look_ += options_.autoscaler->interval) {
    pass_events(next_look_);
    finish_starts(next_look_);
    look(next_look_);
  }
  finish_starts(until);
}

void RunningFleet::finish_starts(Seconds now) {
  if (starts_.empty() || now < starts_.front()) return;
  while (!starts_.empty() && starts_.front() <= now) {
    const Seconds ready = starts_.front();
    starts_.pop_front();
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (state_[i] == State::starting && until_[i] == ready) state_[i] = State::online;
    }
    list_online(ready);
  }
}

void RunningFleet::look(Seconds now) {
  bring_all(now);
  double sum = 0, current = static_cast<double>(online_.size());
  for (const std::size_t i : online_) sum += signal_of(replicas_[i]);
  for (const State state : state_) current += state == State::starting ? 1 : 0;
  const double wanted =
      std::min(rule_->desired(now, current, sum), static_cast<double>(replicas_.size()));
  for (double more = wanted - current; more > 0; --more) start_one(now);
  for (double less = current - wanted; less > 0; --less) stop_one(now);
  list_online(now);
}

double RunningFleet::signal_of(const Replica& replica) const {
  switch (options_.autoscaler->signal) {
    case ScaleSignal::requests:
      return replica.requests_in_system();
    case ScaleSignal::queue:
      return replica.requests_waiting();
    case ScaleSignal::kv_cache:
      return replica.cache_utilisation();
  }
  return 0;
}

void RunningFleet::start_one(Seconds now) {
  std::size_t chosen = replicas_.size();
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (state_[i] == State::draining) close(i, now);
    if (state_[i] == State::draining) {
      state_[i] = State::online;
      return;
    }
    if (state_[i] == State::off && chosen == replicas_.size()) chosen = i;
  }
  if (chosen == replicas_.size()) return;
  state_[chosen] = State::starting;
  since_[chosen] = now;
  until_[chosen] = now + options_.autoscaler->startup;
  if (starts_.empty() || starts_.back() < until_[chosen]) starts_.push_back(until_[chosen]);
}

void RunningFleet::stop_one(Seconds now) {
  for (const State from : {State::starting, State::online}) {
    for (std::size_t i = replicas_.size(); i-- > 0;) {
      if (state_[i] != from) continue;
      until_[i] = now;
      state_[i] = from == State::starting ? State::off : State::draining;
      if (from == State::starting) found_.parts[i].online += now - since_[i];
      return;
    }
  }
}

void RunningFleet::close(std::size_t place, Seconds now) {
  bring(place, now);
  if (load_[place] > 0) return;
  Replica& replica = replicas_[place];
  state_[place] = State::off;
  found_.parts[place].online += max(until_[place], replica.now()) - since_[place];
  while (replica.prefix_cache().idle_tokens() > 0) replica.prefix_cache().forget_oldest();
  index_.apply(place, replica.prefix_cache().changes());
  replica.prefix_cache().forget_changes();
}

}  // namespace scalemodel
