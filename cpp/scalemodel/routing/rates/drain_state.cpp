#include "scalemodel/routing/rates/drain_state.hpp"

#include <cstddef>
#include <utility>

namespace scalemodel {

DrainState::DrainState(const RoutingInstance& instance, Choice choice, double target)
    : instance_(instance), choice_(std::move(choice)), target_(target) {
  const LinkGraph& graph = instance.graph;
  per_byte_.resize(graph.links(), 0.0);
  for (std::int32_t link = 0; link < graph.links(); ++link) {
    if (graph.alive(link)) per_byte_[link] = 1 / graph.capacity(link).base();
  }
  time_.resize(graph.links(), 0.0);
  users_.resize(graph.links());
  overloaded_place_.resize(graph.links(), PathSets::kNone);
  place_first_.assign(1, 0);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    std::size_t longest = 0;
    for (std::int32_t p = 0; p < instance.paths_of(f); ++p) {
      longest = std::max(longest, instance.links(f, p).size());
    }
    place_first_.push_back(place_first_.back() + static_cast<std::int32_t>(longest));
  }
  place_.resize(place_first_.back());
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(choice_.size()); ++f) {
    if (choice_[f] != PathSets::kNone) add(f);
  }
}

double DrainState::longest() const {
  return time_.empty() ? 0.0 : *std::ranges::max_element(time_);
}

void DrainState::move(std::int32_t flow, std::int32_t to) {
  remove(flow);
  choice_[flow] = to;
  add(flow);
}

void DrainState::gather(std::int32_t flow, std::int32_t to) {
  const double bytes = instance_.flows.bytes[flow];
  const auto add = [&](std::int32_t link, double by) {
    for (TimeChange& changed : changes_) {
      if (changed.link != link) continue;
      changed.time += by;
      return;
    }
    changes_.push_back({link, by});
  };
  for (const std::int32_t link : links(flow)) add(link, -bytes * per_byte_[link]);
  for (const std::int32_t link : instance_.links(static_cast<std::size_t>(flow), to)) {
    add(link, bytes * per_byte_[link]);
  }
}

double DrainState::change_of(std::int32_t flow, std::int32_t to, std::int32_t other,
                             std::int32_t other_to) {
  changes_.clear();
  gather(flow, to);
  if (other != PathSets::kNone) gather(other, other_to);
  double change = 0;
  for (const TimeChange& changed : changes_) {
    const double before = std::max(time_[changed.link] - target_, 0.0);
    const double after = std::max(time_[changed.link] + changed.time - target_, 0.0);
    change += after * after - before * before;
  }
  return change;
}

void DrainState::remove(std::int32_t flow) {
  std::int32_t place = place_first_[flow];
  for (const std::int32_t link : links(flow)) {
    std::vector<std::int32_t>& users = users_[link];
    const std::int32_t at = place_[place++];
    const std::int32_t last = users.back();
    users[at] = last;
    users.pop_back();
    if (last != flow) {  // the last user takes the position of the flow
      std::int32_t of_last = place_first_[last];
      for (const std::int32_t other : links(last)) {
        if (other == link) place_[of_last] = at;
        ++of_last;
      }
    }
    change_load(link, -instance_.flows.bytes[flow]);
  }
}

void DrainState::add(std::int32_t flow) {
  std::int32_t place = place_first_[flow];
  for (const std::int32_t link : links(flow)) {
    place_[place++] = static_cast<std::int32_t>(users_[link].size());
    users_[link].push_back(flow);
    change_load(link, instance_.flows.bytes[flow]);
  }
}

void DrainState::change_load(std::int32_t link, double bytes) {
  const auto over = [&](double time) { return std::max(time - target_, 0.0); };
  const double before = over(time_[link]);
  time_[link] += bytes * per_byte_[link];
  const double after = over(time_[link]);
  if (before == 0 && after > 0) {
    overloaded_place_[link] = static_cast<std::int32_t>(overloaded_.size());
    overloaded_.push_back(link);
  } else if (before > 0 && after == 0) {
    const std::int32_t last = overloaded_.back();
    overloaded_[overloaded_place_[link]] = last;
    overloaded_place_[last] = overloaded_place_[link];
    overloaded_.pop_back();
  }
}

}  // namespace scalemodel
