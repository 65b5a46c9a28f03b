#include <algorithm>
#include <cmath>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/fleet/running_fleet.hpp"

namespace scalemodel {

void RunningFleet::expect_failures(Seconds now) {
  for (std::size_t i = 0; i < options_.outages.size(); ++i) {
    happenings_.push({options_.outages[i].begin, Happening::outage, i});
  }
  if (!(options_.failures.mtbf > Seconds{})) return;
  for (std::size_t i = 0; i < replicas_.size(); ++i) expect_failure(i, now);
}

void RunningFleet::expect_failure(std::size_t place, Seconds now) {
  const double gap = -std::log(1 - luck_[place].unit());
  happenings_.push({now + gap * options_.failures.mtbf, Happening::failure, place});
}

void RunningFleet::pass_events(Seconds until) {
  while (!happenings_.empty() && happenings_.top().time <= until) {
    const Event event = happenings_.top();
    happenings_.pop();
    poll_point();
    happen(event);
  }
}

void RunningFleet::happen(const Event& event) {
  switch (event.what) {
    case Happening::repaired:
      if (state_[event.which] != State::failed) return;
      if (event.time < until_[event.which]) return;  // Another outage came meanwhile.
      state_[event.which] = State::online;
      list_online(event.time);
      for (const std::size_t request : std::exchange(stranded_, {})) send(request, event.time);
      return;
    case Happening::failure:
      fail(event.which, event.time, event.time);
      expect_failure(event.which, event.time);
      return;
    case Happening::outage: {
      const Outage& outage = options_.outages[event.which];
      const auto first = static_cast<std::size_t>(outage.first);
      const std::size_t end =
          std::min(replicas_.size(), first + static_cast<std::size_t>(outage.count));
      for (std::size_t i = first; i < end; ++i) fail(i, event.time, max(outage.end, event.time));
      return;
    }
    case Happening::retry:
      --retrying_;
      send(event.which, event.time);
      return;
  }
}

void RunningFleet::fail(std::size_t place, Seconds now, Seconds end) {
  const Seconds back = end + options_.failures.restart;
  const auto repair = [&] {
    until_[place] = back;
    if (end < kNever) happenings_.push({back, Happening::repaired, place});
  };
  if (state_[place] == State::failed && until_[place] < back) repair();
  if (state_[place] != State::online && state_[place] != State::draining) return;
  if (in_order_) bring_all(now);
  bring(place, now);
  Replica& replica = replicas_[place];
  const std::vector<std::size_t> lost = replica.fail(now);
  index_.apply(place, replica.prefix_cache().changes());
  replica.prefix_cache().forget_changes();
  note(place);
  found_.failures += 1;
  if (state_[place] == State::draining) {
    state_[place] = State::off;
    found_.parts[place].online += now - since_[place];
  } else {
    state_[place] = State::failed;
    repair();
  }
  list_online(now);
  for (const std::size_t request : lost) {
    if (counts_sent_) {
      for (const BlockHash name : options_.caching.prefixes.of(request)) {
        index_.remove(name, place);
      }
    }
    lose(request, now);
  }
}

void RunningFleet::lose(std::size_t request, Seconds now) {
  Served& served = found_.served[request];
  const std::uint8_t retries = served.retries;
  served = {};
  served.retries = retries;
  if (retries >= options_.failures.max_retries) {
    refuse(request, now, NotServed::lost);
    return;
  }
  ++served.retries;
  ++retrying_;
  happenings_.push({now + options_.failures.retry_delay, Happening::retry, request});
}

void RunningFleet::refuse(std::size_t request, Seconds now, NotServed why) {
  Served& served = found_.served[request];
  served.refused = true;
  served.why = why;
  served.started = served.first_token = served.finished = now;
}

bool RunningFleet::shed(std::size_t request) {
  if (!options_.shedding || online_.empty()) return false;
  const std::int32_t own = options_.priority.empty() ? 0 : options_.priority[request];
  if (own < options_.shedding->priority) return false;
  const Seconds now = requests_[request].arrival;
  bring_all(now);
  double waiting = 0;
  for (const std::size_t i : online_) waiting += replicas_[i].requests_waiting();
  if (waiting <= options_.shedding->queue * static_cast<double>(online_.size())) return false;
  refuse(request, now, NotServed::shed);
  return true;
}

void RunningFleet::send(std::size_t request, Seconds now) {
  if (online_.empty()) {
    stranded_.push_back(request);
    return;
  }
  const std::size_t chosen = route(request, now);
  bring(chosen, now);
  hand_over(request, chosen, now);
}

void RunningFleet::drain() {
  while (!happenings_.empty()) {
    const Seconds next = happenings_.top().time;
    bring_all(next);
    if (!working()) break;
    pass_events(next);
  }
  if (in_order_) bring_in_order(Seconds{kInfinity});
  for (Replica& replica : replicas_) replica.advance(Seconds{kInfinity});
  const Seconds end = requests_.empty() ? Seconds{} : requests_.back().arrival;
  for (const std::size_t request : stranded_) refuse(request, end, NotServed::lost);
}

bool RunningFleet::working() const {
  if (!stranded_.empty() || retrying_ > 0) return true;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (state_[i] == State::draining || state_[i] == State::online) {
      if (replicas_[i].requests_in_system() > 0) return true;
    }
  }
  return false;
}

}  // namespace scalemodel
