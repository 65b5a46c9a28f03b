#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "bindings/scheduler_calls.hpp"
#include "bindings/serving_instance.hpp"
#include "scalemodel/fleet/fleet.hpp"

namespace scalemodel::bindings {
namespace {

constexpr double kMaxReplicas = 1e5, kMaxStoreTokens = 1e15;
constexpr py::ssize_t kFleetColumns = 7;

/// Replicas as Python holds them; what a replica refers to lies here.
struct Kinds {
  std::vector<CacheCapacity> capacities;
  std::vector<FleetKind> kinds;

  Kinds(const std::vector<const Instance*>& instances, const std::vector<RequestMix>& mixes,
        const std::vector<int>& counts) {
    if (instances.empty() || instances.size() != mixes.size() ||
        instances.size() != counts.size()) {
      throw MalformedQuestion(
          "instances, mixes, counts: must be equally long, of one kind at least");
    }
    capacities.reserve(instances.size());
    double replicas = 0;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      capacities.push_back(instances[i]->capacity(mixes[i].input, mixes[i].output));
      checked("counts", counts[i], 0, kMaxReplicas);
      replicas += counts[i];
      kinds.push_back(
          {{instances[i]->times, instances[i]->blocks, capacities.back(), mixes[i]}, counts[i]});
    }
    checked("replicas", replicas, 1, kMaxReplicas);
  }
};

PrefixColumns prefixes_of(const CountColumn& offsets, const NameColumn& names, double block_tokens,
                          std::size_t requests) {
  if (offsets.size() == 0) return {};
  checked("block_tokens", block_tokens, 1, 1e6);
  const std::int64_t* at = offsets.data();
  if (static_cast<std::size_t>(offsets.size()) != requests + 1 || at[0] != 0 ||
      at[requests] != names.size() || !std::is_sorted(at, at + requests + 1)) {
    throw MalformedQuestion(
        "block_offsets: must ascend from 0 to the number of block_ids, one more than requests");
  }
  return {{at, requests + 1}, {names.data(), static_cast<std::size_t>(names.size())}, block_tokens};
}

py::array_t<double> rows_of(const FleetResult& result) {
  py::array_t<double> rows(
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(result.served.size()), kFleetColumns});
  double* out = rows.mutable_data();
  for (std::size_t i = 0; i < result.served.size(); ++i) {
    const Served& each = result.served[i];
    const std::array<double, kFleetColumns> row{each.started.base(),
                                                each.first_token.base(),
                                                each.finished.base(),
                                                static_cast<double>(each.preemptions),
                                                each.refused ? 1.0 : 0.0,
                                                each.cached_tokens,
                                                static_cast<double>(result.replicas[i])};
    out = std::copy(row.begin(), row.end(), out);
  }
  return rows;
}

py::array_t<double> events_of(const FleetResult& result) {
  constexpr py::ssize_t kColumns = 3;
  py::array_t<double> rows(
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(result.events.size()), kColumns});
  double* out = rows.mutable_data();
  for (const ScaleEvent& event : result.events) {
    const std::array<double, kColumns> row{event.time.base(), event.online, event.starting};
    out = std::copy(row.begin(), row.end(), out);
  }
  return rows;
}

py::tuple simulate_columns(const std::vector<const Instance*>& instances,
                           const std::vector<RequestMix>& mixes, const std::vector<int>& counts,
                           const NumberColumn& arrivals, const NumberColumn& input,
                           const NumberColumn& output, const CountColumn& sessions,
                           const CountColumn& offsets, const NameColumn& names, double block_tokens,
                           const RouterPolicy& policy, std::uint64_t seed, double store_tokens,
                           const std::optional<Autoscaler>& autoscaler,
                           const py::object& progress) {
  const Kinds kinds(instances, mixes, counts);
  // A decode pool's replicas take prompts that were computed elsewhere.
  const bool prefilled = mixes.front().prefilled;
  const std::vector<Request> requests = stream_of(arrivals, input, output, prefilled);
  if (sessions.size() != 0 && static_cast<std::size_t>(sessions.size()) != requests.size()) {
    throw MalformedQuestion("session: must be as long as arrival_s");
  }
  FleetOptions options;
  options.policy = policy;
  options.seed = seed;
  options.autoscaler = autoscaler;
  options.caching.prefixes = prefixes_of(offsets, names, block_tokens, requests.size());
  options.caching.store_tokens = checked("store_tokens", store_tokens, 0, kMaxStoreTokens);
  const FleetResult result = listening(progress, [&] {
    return simulate_fleet(kinds.kinds, requests,
                          {sessions.data(), static_cast<std::size_t>(sessions.size())}, options);
  });
  return py::make_tuple(rows_of(result), result.parts, result.totals, events_of(result));
}

}  // namespace

void bind_fleet(py::module_& m) {
  bind_record<RouterPolicy>(m, R"(A router and its settings.

Examples
--------
>>> RouterPolicy(router="prefix_aware", cache_threshold=0.5)
RouterPolicy(router='prefix_aware', cache_threshold=0.5))");
  bind_record<Autoscaler>(
      m, R"(How many replicas of a fleet run: desired = ceil(sum of the signal/target).

Examples
--------
>>> Autoscaler(signal="queue", target=4.0).interval_s
15.0)");
  bind_record<ReplicaTotals>(m, "What one replica of a fleet did.");
  m.def(
      "simulate_fleet", &simulate_columns, py::arg("instances"), py::arg("mixes"),
      py::arg("counts"), py::arg("arrival_s"), py::arg("input_tokens"), py::arg("output_tokens"),
      py::kw_only(), py::arg("session"), py::arg("block_offsets"), py::arg("block_ids"),
      py::arg("block_tokens"), py::arg("policy"), py::arg("seed"), py::arg("store_tokens"),
      py::arg("autoscaler") = py::none(), py::arg("progress") = py::none(),
      "Per request: started, first token, finished, preemptions, refused, cached tokens, replica; "
      "totals of each replica and of all, events of the autoscaler.");
  m.def(
      "jain_index",
      [](const NumberColumn& shares) {
        return jain_index({shares.data(), static_cast<std::size_t>(shares.size())});
      },
      py::arg("shares"),
      R"(Fairness of shares: 1 where all are equal, 1/n where one of n has everything.

Examples
--------
>>> jain_index([2.0, 2.0]), jain_index([1.0, 0.0])
(1.0, 0.5))");
}

}  // namespace scalemodel::bindings
