#include "scalemodel/routing/policies/annealing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

/// Loads of links with the number of links at each load, so a move updates the energy locally.
class Loads {
 public:
  explicit Loads(std::int32_t links, std::size_t flows) : load_(links, 0), count_(flows + 2, 0) {
    count_[0] = links;
  }

  void change(std::int32_t link, std::int32_t by) {
    --count_[load_[link]];
    load_[link] += by;
    ++count_[load_[link]];
    largest_ = std::max(largest_, load_[link]);
    while (largest_ > 0 && count_[largest_] == 0) --largest_;
  }
  double energy() const { return static_cast<double>(largest_) * count_[largest_]; }

 private:
  Numbers load_;   ///< by link
  Numbers count_;  ///< by load: links
  std::int32_t largest_ = 0;
};

class State {
 public:
  explicit State(const RoutingInstance& instance)
      : instance_(instance), loads_(instance.graph.links(), instance.size()) {
    const LinkGraph& graph = instance.graph;
    first_.assign(graph.nics() + 1, 0);
    for (std::size_t f = 0; f < instance.size(); ++f) {
      if (instance.paths_of(f) > 0) ++first_[instance.flows.destination[f] + 1];
    }
    for (std::int32_t nic = 0; nic < graph.nics(); ++nic) {
      if (first_[nic + 1] > 0) destinations_.push_back(nic);
      first_[nic + 1] += first_[nic];
    }
    flows_.resize(first_.back());
    Numbers next(first_.begin(), first_.end() - 1);
    for (std::size_t f = 0; f < instance.size(); ++f) {
      if (instance.paths_of(f) > 0) {
        flows_[next[instance.flows.destination[f]]++] = static_cast<std::int32_t>(f);
      }
    }
    start();
  }

  double energy() const { return loads_.energy(); }
  std::int32_t destinations() const { return static_cast<std::int32_t>(destinations_.size()); }
  /// Leaves with two destinations or more, as ranges [begin, end) of the list of destinations.
  const std::vector<std::pair<std::int32_t, std::int32_t>>& leaves() const { return leaves_; }

  void exchange(std::int32_t a, std::int32_t b) {
    const std::int32_t nic_a = destinations_[a], nic_b = destinations_[b];
    move(nic_a, -1);
    move(nic_b, -1);
    std::swap(plane_[nic_a], plane_[nic_b]);
    move(nic_a, 1);
    move(nic_b, 1);
  }

  Choice choice() const {
    Choice choice(instance_.size(), PathSets::kNone);
    for (const std::int32_t f : flows_) choice[f] = path(f);
    return choice;
  }

 private:
  void start() {
    const LinkGraph& graph = instance_.graph;
    Numbers numbered(graph.nodes(), 0);  // NICs of every switch so far
    plane_.resize(graph.nics());
    Numbers leaf(graph.nics());
    std::int32_t most = 1;
    for (const std::int32_t f : flows_) most = std::max(most, instance_.paths_of(f));
    for (std::int32_t nic = 0; nic < graph.nics(); ++nic) {
      leaf[nic] = graph.end_switch(nic);
      plane_[nic] = numbered[leaf[nic]]++ % most;
    }
    std::ranges::stable_sort(destinations_, {}, [&](std::int32_t nic) { return leaf[nic]; });
    for (std::int32_t begin = 0, end = 0; begin < destinations(); begin = end) {
      while (end < destinations() && leaf[destinations_[end]] == leaf[destinations_[begin]]) ++end;
      if (end - begin > 1) leaves_.emplace_back(begin, end);
    }
    for (const std::int32_t nic : destinations_) move(nic, 1);
  }
  std::int32_t path(std::int32_t flow) const {
    return plane_[instance_.flows.destination[flow]] % instance_.paths_of(flow);
  }
  void move(std::int32_t nic, std::int32_t by) {
    for (std::int32_t i = first_[nic]; i < first_[nic + 1]; ++i) {
      poll_point();
      for (const std::int32_t link : instance_.links(flows_[i], path(flows_[i]))) {
        loads_.change(link, by);
      }
    }
  }

  const RoutingInstance& instance_;
  Loads loads_;
  Numbers first_, flows_, destinations_, plane_;
  std::vector<std::pair<std::int32_t, std::int32_t>> leaves_;
};

}  // namespace

Choice annealing(const RoutingInstance& instance, const Annealing& parameters, std::uint64_t seed) {
  State state(instance);
  if (state.destinations() < 2) return state.choice();
  SplitMix random(seed);
  double energy = state.energy(), least = energy;
  Choice best;
  if (parameters.keep_best) best = state.choice();
  for (double t = parameters.start; t > parameters.end; t *= parameters.cooling) {
    std::int32_t begin = 0, end = state.destinations();
    if (random.unit() >= 0.5 && !state.leaves().empty()) {
      const auto leaves = static_cast<std::int32_t>(state.leaves().size());
      std::tie(begin, end) = state.leaves()[random.below(leaves)];
    }
    const std::int32_t a = begin + random.below(end - begin);
    std::int32_t b = begin + random.below(end - begin - 1);
    b += b >= a ? 1 : 0;
    state.exchange(a, b);
    const double now = state.energy();
    if (now > energy && random.unit() >= std::exp((energy - now) / t)) {
      state.exchange(a, b);
      continue;
    }
    energy = now;
    if (parameters.keep_best && energy < least) {
      least = energy;
      best = state.choice();
    }
  }
  return parameters.keep_best ? best : state.choice();
}

}  // namespace scalemodel
