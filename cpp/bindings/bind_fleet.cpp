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
#include "scalemodel/fleet/tier_reach.hpp"
#include "scalemodel/serving/simulation.hpp"

namespace scalemodel::bindings {
namespace {

constexpr double kMaxReplicas = 1e5, kMaxStoreTokens = 1e15;
constexpr py::ssize_t kFleetColumns = 7, kFateColumns = 3;
constexpr double kMaxTiers = 8;

using PriorityColumn = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;

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

/// Of each request: why it was refused, the deepest tier it loaded from, how often it was retried.
/// Empty where nothing of that can be.
py::array_t<std::uint8_t> fates_of(const FleetResult& result, bool plain) {
  const std::size_t count = plain ? 0 : result.served.size();
  py::array_t<std::uint8_t> rows(
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(count), kFateColumns});
  std::uint8_t* out = rows.mutable_data();
  for (std::size_t i = 0; i < count; ++i) {
    const Served& each = result.served[i];
    const std::array<std::uint8_t, kFateColumns> row{static_cast<std::uint8_t>(each.why), each.tier,
                                                     each.retries};
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
                           const std::vector<CacheTier>& tiers, const PriorityColumn& priority,
                           const Failures& failures, const std::vector<Outage>& outages,
                           const std::optional<Shedding>& shedding, const py::object& progress) {
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
  if (priority.size() != 0 && static_cast<std::size_t>(priority.size()) != requests.size()) {
    throw MalformedQuestion("priority: must be as long as arrival_s");
  }
  checked("tiers", static_cast<double>(tiers.size()), 0, kMaxTiers);
  options.tiers = tiers;
  options.priority = {priority.data(), static_cast<std::size_t>(priority.size())};
  options.failures = failures;
  options.outages = outages;
  options.shedding = shedding;
  const FleetResult result = listening(progress, [&] {
    return simulate_fleet(kinds.kinds, requests,
                          {sessions.data(), static_cast<std::size_t>(sessions.size())}, options);
  });
  const bool plain = tiers.empty() && outages.empty() && !shedding && !(failures.mtbf > Seconds{});
  return py::make_tuple(rows_of(result), result.parts, result.totals, events_of(result),
                        fates_of(result, plain), result.tiers, result.failures);
}

py::array_t<double> columns_alone(const Instance& instance, const RequestMix& mix,
                                  const NumberColumn& input, const NumberColumn& output) {
  NumberColumn arrivals(std::vector<py::ssize_t>{input.size()});
  std::fill_n(arrivals.mutable_data(), input.size(), 0.0);
  const std::vector<Request> requests = stream_of(arrivals, input, output, mix.prefilled);
  const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
  const std::vector<Seconds> found = listening(py::none(), [&] {
    return latencies_alone({instance.times, instance.blocks, capacity, mix}, requests);
  });
  py::array_t<double> rows(std::vector<py::ssize_t>{static_cast<py::ssize_t>(found.size())});
  std::transform(found.begin(), found.end(), rows.mutable_data(),
                 [](Seconds each) { return each.base(); });
  return rows;
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
  bind_record<CacheTier>(m, R"(A tier of prefixes below the KV cache of a replica.

Examples
--------
>>> CacheTier(capacity_bytes=1e12, read_bytes_per_s=40e9, write_bytes_per_s=40e9).writes
'write_through')");
  bind_record<TierReach>(m, R"(What lies between the ranks of a replica and a tier.

Examples
--------
>>> reach = TierReach(ranks=2, link_bytes_per_s=50e9, reached_fraction=0.8)
>>> reached_tier(CacheTier(capacity_bytes=1e12), reach).read_bytes_per_s
80000000000.0)");
  bind_record<TierTotals>(m, "What a tier did.");
  bind_record<PrefixTimes>(m, "To load a prefix from a tier, and to compute it.");
  bind_record<StartUp>(m, R"(How a replica comes up.

Examples
--------
>>> StartUp(read_bytes_per_s=5e9, warm_up_s=60).warm_up_s
60.0)");
  bind_record<Failures>(m, R"(How replicas fail, and what becomes of their requests.

Examples
--------
>>> Failures(mtbf_s=86400.0, restart_s=120.0).max_retries
3)");
  bind_record<Outage>(m, R"(Replicas that are down for a time.

Examples
--------
>>> Outage(begin_s=600.0, end_s=1200.0, first=0, count=8).count
8)");
  bind_record<Shedding>(m, R"(When requests are turned away.

Examples
--------
>>> Shedding(queue=10.0, priority=1).queue
10.0)");
  bind_record<ReplicaTotals>(m, "What one replica of a fleet did.");
  m.def(
      "simulate_fleet", &simulate_columns, py::arg("instances"), py::arg("mixes"),
      py::arg("counts"), py::arg("arrival_s"), py::arg("input_tokens"), py::arg("output_tokens"),
      py::kw_only(), py::arg("session"), py::arg("block_offsets"), py::arg("block_ids"),
      py::arg("block_tokens"), py::arg("policy"), py::arg("seed"), py::arg("store_tokens"),
      py::arg("autoscaler") = py::none(), py::arg("tiers"), py::arg("priority"),
      py::arg("failures"), py::arg("outages"), py::arg("shedding") = py::none(),
      py::arg("progress") = py::none(),
      "Per request: started, first token, finished, preemptions, refused, cached tokens, replica; "
      "totals of each replica and of all, events of the autoscaler; per request why it was refused "
      "(1 too long, 2 shed, 3 lost), the deepest tier it loaded from and retries, or nothing where "
      "none of these can be; totals of each tier, failures of replicas.");
  m.def("latencies_alone_s", &columns_alone, py::arg("instance"), py::arg("mix"),
        py::arg("input_tokens"), py::arg("output_tokens"),
        "Latency of each request on an instance that serves it alone.");
  m.def(
      "prefix_times",
      [](const Instance& instance, const RequestMix& mix, const CacheTier& tier, double prefix,
         double suffix) {
        const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
        return prefix_times({instance.times, instance.blocks, capacity, mix}, tier,
                            checked("prefix_tokens", prefix, 0, kMany),
                            checked("suffix_tokens", suffix, 1, kMany));
      },
      py::arg("instance"), py::arg("mix"), py::arg("tier"), py::arg("prefix_tokens"),
      py::arg("suffix_tokens"), "To load a prefix from a tier, and to compute it.");
  m.def(
      "cache_token_bytes", [](const Instance& each) { return each.blocks.token().base(); },
      py::arg("instance"), "Keys and values of a token in all layers, once.");
  m.def(
      "startup_s",
      [](const StartUp& start, double weights) {
        return startup_time(start, Bytes{checked("weight_bytes", weights, 0, 1e18)}).base();
      },
      py::arg("start"), py::arg("weight_bytes"),
      R"(Time until a replica takes requests.

Examples
--------
>>> startup_s(StartUp(schedule_s=10, read_bytes_per_s=5e9, warm_up_s=30), 700e9)
180.0)");
  m.def("reached_tier", &reached_tier, py::arg("settings"), py::arg("reach"),
        R"(A tier with the bandwidths, and where its capacity is 0 the size, that a replica finds.

Examples
--------
>>> reach = TierReach(ranks=4, node_accelerators=8, node_read_bytes_per_s=40e9,
...                   node_write_bytes_per_s=20e9, rank_capacity_bytes=1e12)
>>> tier = reached_tier(CacheTier(capacity_bytes=0.0), reach)
>>> tier.read_bytes_per_s, tier.write_bytes_per_s, tier.capacity_bytes
(20000000000.0, 10000000000.0, 4000000000000.0))");
  m.def(
      "weights_bytes_per_s", [](const TierReach& reach) { return weights_bandwidth(reach).base(); },
      py::arg("reach"),
      R"(Bandwidth at which all ranks of a replica read their weights.

Examples
--------
>>> weights_bytes_per_s(TierReach(ranks=16, node_accelerators=8, node_read_bytes_per_s=5e9))
10000000000.0)");
  m.def(
      "mean_power_w",
      [](const ReplicaTotals& part, double span, double working, double idle) {
        return mean_power(part, Seconds{checked("span_s", span, 1e-9, 1e12)},
                          Watts{checked("working_w", working, 0, 1e9)},
                          Watts{checked("idle_w", idle, 0, 1e9)})
            .base();
      },
      py::arg("part"), py::arg("span_s"), py::arg("working_w"), py::arg("idle_w"),
      "Mean watts of a replica: working in its steps, idle while it is online, none while off.");
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
