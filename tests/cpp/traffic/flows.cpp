#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/traffic/patterns.hpp"
#include "scalemodel/traffic/ring_jobs.hpp"

namespace scalemodel {
namespace {

using testing::paper_fabric;

std::vector<std::int32_t> members(int count) {
  std::vector<std::int32_t> all(count);
  std::iota(all.begin(), all.end(), 10);
  return all;
}

std::map<std::int32_t, double> bytes_by(const std::vector<std::int32_t>& end, const Flows& flows) {
  std::map<std::int32_t, double> sum;
  for (std::size_t f = 0; f < flows.size(); ++f) sum[end[f]] += flows.bytes[f];
  return sum;
}

TEST_CASE("all members of a ring send and receive the same bytes") {
  for (const int count : {1, 2, 5, 64}) {
    Flows flows;
    open_job(flows);
    add_pattern(flows, TrafficPattern::ring, members(count), Bytes{100.0 * count});
    CHECK(flows.size() == (count > 1 ? count : 0));
    const auto sent = bytes_by(flows.source, flows);
    CHECK(sent == bytes_by(flows.destination, flows));
    for (const auto& [nic, bytes] : sent) CHECK(bytes == 100);
  }
  CHECK(pattern_steps(TrafficPattern::ring, 4) == 6);
  CHECK(pattern_steps(TrafficPattern::all_to_all, 4) == 1);
}

TEST_CASE("an all-to-all has every ordered pair once") {
  Flows flows;
  open_job(flows);
  add_all_to_all(flows, members(6), 1 * unit::KB);
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    CHECK(flows.source[f] != flows.destination[f]);
    pairs.emplace(flows.source[f], flows.destination[f]);
  }
  CHECK(flows.size() == 30);
  CHECK(pairs.size() == 30);
  CHECK(flows.groups == 1);
}

TEST_CASE("a chain is one group per pair of neighbours") {
  Flows flows;
  open_job(flows);
  add_chain(flows, members(4), 1 * unit::KB, true);
  CHECK(flows.groups == 3);
  CHECK(flows.size() == 6);
  CHECK(bytes_by(flows.source, flows) == bytes_by(flows.destination, flows));
}

TEST_CASE("a double binary tree reaches every member twice and overloads none") {
  for (const int count : {2, 3, 4, 7, 8, 33, 64}) {
    CAPTURE(count);
    Flows flows;
    open_job(flows);
    add_double_binary_tree(flows, members(count), Bytes{2});
    // Two trees of count - 1 edges, both directions.
    CHECK(flows.size() == 4 * static_cast<std::size_t>(count - 1));
    const auto sent = bytes_by(flows.source, flows);
    CHECK(sent.size() == static_cast<std::size_t>(count));
    // Up: to the parent in both trees; down: to at most two children in one, or one each.
    for (const auto& [nic, bytes] : sent) CHECK(bytes <= 2 * 2 + 1);
    CHECK(sent == bytes_by(flows.destination, flows));
  }
}

TEST_CASE("decomposed rings send what one ring sends, and less of it beyond the inner ones") {
  for (const std::vector<std::int32_t>& shape :
       {std::vector<std::int32_t>{8}, {8, 4}, {2, 3, 5}, {1, 6}, {1, 1}}) {
    std::int32_t count = 1;
    for (const std::int32_t extent : shape) count *= extent;
    Flows flows;
    open_job(flows);
    add_decomposed_rings(flows, members(count), shape, 1 * unit::GB);
    const auto sent = bytes_by(flows.source, flows);
    double beyond = 0;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const bool leaves = std::abs(flows.source[f] - flows.destination[f]) >= shape[0];
      beyond += leaves ? flows.bytes[f] : 0.0;
    }
    const double whole = 2e9 * (count - 1) / count;
    for (const auto& [nic, bytes] : sent) CHECK(bytes == testing::Approx(whole));
    CHECK(sent.size() == (count > 1 ? static_cast<std::size_t>(count) : 0));
    CHECK(sent == bytes_by(flows.destination, flows));
    const double outer = static_cast<double>(count) / shape[0];
    CHECK(beyond / count == testing::Approx(2e9 * (outer - 1) / outer / shape[0]));
  }
  Flows flows;
  open_job(flows);
  const std::vector<std::int32_t> shape{4, 2}, none{0};
  CHECK_THROWS_AS(add_decomposed_rings(flows, members(9), shape, 1 * unit::GB), MalformedQuestion);
  CHECK_THROWS_AS(add_decomposed_rings(flows, members(1), none, 1 * unit::GB), MalformedQuestion);
}

TEST_CASE("an in-network reduction sends each buffer once") {
  Flows flows;
  open_job(flows);
  add_pattern(flows, TrafficPattern::in_network, members(8), 1 * unit::GB);
  CHECK(flows.size() == 8);
  CHECK(flows.groups == 1);
  CHECK(pattern_steps(TrafficPattern::in_network, 8) == 1);
  for (const double bytes : flows.bytes) CHECK(bytes == 1e9);
}

TEST_CASE("steps of the paper's jobs carry its bytes and last its times") {
  // Bytes of a step and seconds of an all-reduce at 100 Gbit/s for rings of 2, 4 and 8.
  struct Row {
    RingJob job;
    double step_gbytes, all_reduce;
  };
  for (const Row& row :
       {Row{testing::gpt3_job(2), 5.4688, 0.875}, Row{testing::gpt3_job(4), 2.7344, 1.3125},
        Row{testing::bloom_job(8), 1.8333, 2.0533}, Row{testing::llama70_job(4), 0.5469, 0.2625}}) {
    CHECK(ring_step_bytes(row.job).base() == testing::Approx(row.step_gbytes * 1e9).epsilon(1e-4));
    const Seconds time = ring_steps(row.job) * (ring_step_bytes(row.job) / testing::kPort);
    CHECK(time.base() == testing::Approx(row.all_reduce).epsilon(1e-4));
  }
  const FlopPerSecond a100{312e12}, h100{1979e12};
  CHECK(scaled_compute_time(testing::gpt3_job(2), a100).base() ==
        testing::Approx(1.0096).epsilon(1e-4));
  CHECK(scaled_compute_time(testing::bloom_job(2), h100).base() ==
        testing::Approx(0.1953).epsilon(1e-3));
  CHECK(scaled_compute_time(testing::llama70_job(2), a100).base() ==
        testing::Approx(2.6923).epsilon(1e-4));
}

TEST_CASE("the paper's mixes have its numbers of flows") {
  const LinkGraph graph = paper_fabric();
  struct Row {
    int jobs, ring, flows;
  };
  for (const Row& row :
       {Row{2, 2, 352}, Row{2, 4, 704}, Row{2, 8, 896}, Row{3, 2, 608}, Row{3, 4, 960},
        Row{3, 8, 1920}, Row{4, 2, 704}, Row{4, 4, 1472}, Row{5, 2, 832}, Row{5, 4, 1728}}) {
    const auto jobs = testing::paper_mix(row.jobs, row.ring);
    const auto nics = place_jobs(graph, jobs, JobPlacement::random_leaves, 8, 1);
    CHECK(ring_flows(graph, jobs, nics, true).size() == static_cast<std::size_t>(row.flows));
  }
}

TEST_CASE("placements use every NIC once, repeat, and random ones differ by seed") {
  const LinkGraph graph = paper_fabric();
  const auto jobs = testing::paper_mix(5, 4);
  for (const JobPlacement how :
       {JobPlacement::random_leaves, JobPlacement::packed, JobPlacement::random_servers}) {
    const auto nics = place_jobs(graph, jobs, how, 8, 7);
    CHECK(nics == place_jobs(graph, jobs, how, 8, 7));
    CHECK((nics == place_jobs(graph, jobs, how, 8, 8)) == (how == JobPlacement::packed));
    std::set<std::int32_t> used;
    std::size_t count = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      CHECK(nics[j].size() == static_cast<std::size_t>(jobs[j].copy * jobs[j].copies));
      used.insert(nics[j].begin(), nics[j].end());
      count += nics[j].size();
    }
    CHECK(used.size() == count);
    if (how == JobPlacement::random_servers) {  // the place within a server is kept
      for (std::size_t i = 0; i < nics[0].size(); ++i) {
        CHECK(nics[0][i] % 8 == static_cast<std::int32_t>(i % 8));
      }
    }
  }
  const std::vector<RingJob> too_many(5, testing::llama70_job(8));
  CHECK_THROWS_AS(place_jobs(graph, too_many, JobPlacement::packed, 8, 1), MalformedQuestion);
}

TEST_CASE("a job under one leaf needs no network") {
  const LinkGraph graph = testing::clos(4, 2, 32);
  const std::vector<RingJob> jobs{{1e9, 1e9, 8, 2}, {1e9, 1e9, 16, 4}};
  const auto nics = place_jobs(graph, jobs, JobPlacement::packed, 8, 1);
  CHECK(ring_flows(graph, jobs, nics, true).size() == 64);
  CHECK(ring_flows(graph, jobs, nics, false).size() == 64 + 16);
}

}  // namespace
}  // namespace scalemodel
