#include "scalemodel/routing/policies/hedera.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr std::int32_t kSmallNetwork = 16;  ///< NICs
constexpr double kSmallFactor = 0.5, kLargeFactor = 1000;

/// Cores of destinations, and the demands that they put on links.
class CoreAssignment {
 public:
  explicit CoreAssignment(const RoutingInstance& instance)
      : instance_(instance),
        demand_(natural_demands(instance)),
        load_(instance.graph.links(), 0.0) {
    const Flows& flows = instance.flows;
    const std::int32_t nics = instance.graph.nics();
    first_.assign(nics + 1, 0);
    for (std::size_t f = 0; f < instance.size(); ++f) {
      cores_ = std::max(cores_, instance.paths_of(f));
      if (instance.paths_of(f) > 0) ++first_[flows.destination[f] + 1];
    }
    for (std::int32_t nic = 0; nic < nics; ++nic) {
      if (first_[nic + 1] > 0) destinations_.push_back(nic);
      first_[nic + 1] += first_[nic];
    }
    flows_.resize(first_.back());
    Numbers next(first_.begin(), first_.end() - 1);
    for (std::size_t f = 0; f < instance.size(); ++f) {
      if (instance.paths_of(f) == 0) continue;
      flows_[next[flows.destination[f]]++] = static_cast<std::int32_t>(f);
      port_ = std::max(port_, port_capacity(instance, f, instance.paths.host_down[f]));
    }
    // The last pod has all cores too; those of missing NICs are free.
    const std::int32_t pods = (nics + cores_ - 1) / cores_;
    core_.resize(static_cast<std::size_t>(pods) * static_cast<std::size_t>(cores_));
    for (std::size_t slot = 0; slot < core_.size(); ++slot) {
      core_[slot] = static_cast<std::int32_t>(slot) % cores_;
    }
    for (const std::int32_t nic : destinations_) change(nic, 1);
  }

  /// Excess of demands over capacities, in capacities of a port.
  double energy() const { return std::max(excess_, 0.0) / port_; }
  bool has_choice() const { return !destinations_.empty() && cores_ > 1; }

  /// A random destination and another place in its pod.
  std::pair<std::int32_t, std::int32_t> random_pair(SplitMix& random) const {
    const std::int32_t own =
        destinations_[random.below(static_cast<std::int32_t>(destinations_.size()))];
    std::int32_t other = random.below(cores_ - 1);
    other += other >= own % cores_ ? 1 : 0;
    return {own, own / cores_ * cores_ + other};
  }

  void exchange(std::int32_t a, std::int32_t b) {
    change(a, -1);
    change(b, -1);
    std::swap(core_[a], core_[b]);
    change(a, 1);
    change(b, 1);
  }

  Choice choice() const {
    Choice choice(instance_.size(), PathSets::kNone);
    for (const std::int32_t f : flows_) choice[f] = path(f);
    return choice;
  }

 private:
  std::int32_t path(std::int32_t flow) const {
    const std::int64_t core = core_[instance_.flows.destination[flow]];
    return static_cast<std::int32_t>(core * instance_.paths_of(flow) / cores_);
  }
  void change(std::int32_t slot, int sign) {
    if (slot >= instance_.graph.nics()) return;
    for (std::int32_t i = first_[slot]; i < first_[slot + 1]; ++i) {
      const std::int32_t f = flows_[i];
      poll_point();
      for (const std::int32_t link : instance_.links(f, path(f))) {
        const double capacity = instance_.graph.capacity(link).base();
        const double before = std::max(load_[link] - capacity, 0.0);
        load_[link] += sign * demand_[f];
        excess_ += std::max(load_[link] - capacity, 0.0) - before;
      }
    }
  }

  const RoutingInstance& instance_;
  std::vector<double> demand_;
  double excess_ = 0, port_ = 0;
  std::vector<double> load_;  ///< by link, bytes/s
  std::int32_t cores_ = 1;
  Numbers first_, flows_;  ///< flows, by destination
  Numbers destinations_, core_;
};

}  // namespace

std::vector<double> natural_demands(const RoutingInstance& instance) {
  const std::int32_t nics = instance.graph.nics();
  std::vector<double> port(2 * static_cast<std::size_t>(nics), 0.0);
  Incidence uses;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    const std::int32_t from = instance.flows.source[f];
    const std::int32_t to = nics + instance.flows.destination[f];
    if (instance.is_local(f) || instance.paths_of(f) > 0) {
      port[from] = std::max(port[from], port_capacity(instance, f, instance.paths.host_up[f]));
      port[to] = std::max(port[to], port_capacity(instance, f, instance.paths.host_down[f]));
    }
    uses.link.push_back(from);
    uses.link.push_back(to);
    uses.first.push_back(static_cast<std::int32_t>(uses.link.size()));
  }
  std::vector<double> demand(instance.size());
  WaterFilling().solve(port, uses, demand);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    if (!instance.is_local(f) && instance.paths_of(f) == 0) demand[f] = 0;
  }
  return demand;
}

Choice hedera(const RoutingInstance& instance, const HederaAnnealing& parameters,
              std::uint64_t seed) {
  CoreAssignment state(instance);
  if (!state.has_choice()) return state.choice();
  const bool is_small = instance.graph.nics() <= kSmallNetwork;
  const double start = 1.0 * parameters.iterations_per_nic * instance.graph.nics();
  const double c = (is_small ? kSmallFactor : kLargeFactor) * start;
  SplitMix random(seed);
  double energy = state.energy();
  for (double temperature = start; temperature > 0 && energy > kRounding; --temperature) {
    poll_point();
    const auto [a, b] = state.random_pair(random);
    state.exchange(a, b);
    const double now = state.energy();
    if (now > energy && random.unit() >= std::exp(c * (energy - now) / temperature)) {
      state.exchange(a, b);
    } else {
      energy = now;
    }
  }
  return state.choice();
}

}  // namespace scalemodel
