// Times of collectives worked out by hand on round numbers. Each would change with one factor of
// its formula, which laws of size, ranks and bandwidth cannot see.
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/collectives/custom_all_reduce.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// Links of 450 GB/s inside a domain of eight, ports of 46.5 GB/s between domains.
Cluster round_cluster() {
  Cluster c = testing::without_latency(testing::reference_cluster(64));
  c.fabric.bandwidth = 50 * (unit::GB / unit::s);
  c.fabric.bandwidth_fraction = 0.93;
  return c;
}

double us(Seconds time) { return time / unit::us; }

TEST_CASE("by hand: a switch that reduces takes a buffer and multicasts a share of the sum") {
  // S + S/n through each link: 450 MB (1 + 1/8) / (0.5 x 450 GB/s) = 2,250 us, and 10 us of start.
  // Source: the in-switch all-reduce of NVIDIA's NVLS (Klenk et al., ISCA 2020).
  Cluster c = round_cluster();
  c.scale_up.in_switch = {10 * unit::us, 0.5, Seconds{}};
  const auto time = [&](int ranks) {
    return us(collective_time(Collective::all_reduce, 450 * unit::MB, group_shape(c, ranks, 1), c,
                              Algorithm::nvls));
  };
  CHECK(time(8) == Approx(2260));
  CHECK(time(2) == Approx(3010));
}

TEST_CASE("by hand: two binary trees over three domains send a buffer and a half") {
  // In-order trees of half a buffer each: one has its middle domain for a root, the other the last.
  // That domain sends both edges of its own tree and one of the other: 3 x S/2. Two domains send S,
  // four or more 2 S. Source: Sanders, Speck and Traff, Parallel Computing 35 (2009) 581.
  const auto buffers = [](int domains) {
    const GroupShape group{.ranks = 8 * domains, .per_domain = 8, .domains = domains};
    return domain_bytes(Collective::all_reduce, Algorithm::tree, 1 * unit::GB, group) / unit::GB;
  };
  CHECK(buffers(2) == 1);
  CHECK(buffers(3) == 1.5);
  CHECK(buffers(4) == 2);
}

TEST_CASE("by hand: LL between nodes is capped at 0.06 of the link inside them") {
  // Two nodes of one rank each, links and ports of 450 GB/s: a gather of 540 kB puts 270 kB on the
  // wire. LL takes 6.6 + 2.7 us and 270 kB / (0.06 x 450 GB/s) = 10 us, where flags alone (twice
  // the bytes) would take 1.2 us. Source of the latencies: NCCL, src/graph/tuning.cc.
  Cluster c = round_cluster();
  c.fabric.bandwidth = c.scale_up.bandwidth;
  c.fabric.bandwidth_fraction = c.fabric.latency_factor = 1;
  c.fabric.ring_hop_ll128 = c.fabric.ring_hop_simple = 1 * unit::ms;
  const GroupShape pair{.ranks = 2, .per_domain = 1, .domains = 2};
  const Bytes size = 540e3 * unit::B;
  CHECK(us(collective_time(Collective::all_gather, size, pair, c, Algorithm::ring)) ==
        Approx(19.3));
}

TEST_CASE("by hand: switches between domains that reduce take a buffer once") {
  // 465 MB through ports of 46.5 GB/s; a ring of four would take 2 x 3/4 of that.
  const Cluster c = round_cluster();
  const GroupShape rail{.ranks = 4, .per_domain = 1, .domains = 4};
  const auto time = [&](Algorithm algorithm) {
    return us(collective_time(Collective::all_reduce, 465 * unit::MB, rail, c, algorithm));
  };
  CHECK(time(Algorithm::sharp) == Approx(10000));
  CHECK(time(Algorithm::ring) == Approx(15000));
}

TEST_CASE("by hand: PAT takes a logarithm of steps, and a time for every rank") {
  // Eight ranks: 8 + 4 x 3 + 2.8 x 8 = 42.4 us, and 7/8 of 46.5 MB at 0.75 of 46.5 GB/s: 1,166.7.
  Cluster c = round_cluster();
  c.fabric.latency_factor = 1;
  const GroupShape rail{.ranks = 8, .per_domain = 1, .domains = 8};
  CHECK(us(collective_time(Collective::all_gather, 46.5 * unit::MB, rail, c, Algorithm::pat)) ==
        Approx(42.4 + 7000.0 / 6));
}

TEST_CASE("by hand: a transfer takes its latency and its bytes, inside a domain and beyond") {
  // 337.5 MB at 0.75 x 450 GB/s and 35 MB at 0.7 x 50 GB/s take a millisecond each.
  Cluster c = round_cluster();
  c.scale_up.p2p_latency = 10 * unit::us;
  c.fabric.p2p_latency = 15 * unit::us;
  c.scale_up.p2p_fraction = 0.75;
  c.fabric.p2p_fraction = 0.7;
  CHECK(us(p2p_time(337.5 * unit::MB, group_shape(c, 2, 1), c)) == Approx(1010));
  CHECK(us(p2p_time(35 * unit::MB, group_shape(c, 2, 8), c)) == Approx(1015));
}

TEST_CASE("by hand: two ranks cross the host at full rate, every further one slows the ring") {
  // 720 MB: half of it at 0.8 x 450 GB/s is 1 ms; two thirds, half as fast again, 2 ms.
  Cluster c = round_cluster();
  c.scale_up.all_gather.host_share = 0.5;
  const auto time = [&](int ranks) {
    return us(collective_time(Collective::all_gather, 720 * unit::MB, group_shape(c, ranks, 1), c));
  };
  CHECK(time(2) == Approx(1000));
  CHECK(time(3) == Approx(2000));
}

TEST_CASE("by hand: a two-shot all-reduce moves a share of every buffer twice") {
  // 10 us, 7 x 1 us, and 2 x 7/8 x 90 MB at half of 450 GB/s: 700 us.
  CustomAllReduce kernel;
  kernel.start1 = Seconds{1};
  kernel.start2 = 10 * unit::us;
  kernel.per_rank2 = 1 * unit::us;
  kernel.bandwidth_fraction2 = 0.5;
  ScaleUp links;
  links.bandwidth = 450 * (unit::GB / unit::s);
  const GroupShape eight{.ranks = 8, .per_domain = 8};
  CHECK(us(custom_all_reduce_time(90 * unit::MB, eight, links, kernel)) == Approx(717));
}

TEST_CASE("by hand: a ring in a host of two sockets goes at the pace of what joins them") {
  // Two switches of two cards in each of two sockets: 5 GB/s between switches, 2 between sockets.
  Cluster c = round_cluster();
  c.scale_up.in_switch = {};
  c.scale_up.p2p_latency = Seconds{};
  c.scale_up.levels = {.switched = 2,
                       .beyond_switch = 5 * (unit::GB / unit::s),
                       .socket = 4,
                       .beyond_socket = 2 * (unit::GB / unit::s)};
  const auto crossing = [&](int ranks, int stride) {
    return crossing_bandwidth(c.scale_up, group_shape(c, ranks, stride)) / (unit::GB / unit::s);
  };
  CHECK(crossing(2, 1) == 0);
  CHECK(crossing(3, 1) == 5);
  CHECK(crossing(8, 1) == 2);
  // Pairs of neighbours' neighbours: two of them cross at once. Pairs across sockets: four.
  CHECK(crossing(2, 2) == 2.5);
  CHECK(crossing(2, 4) == 0.5);
  const auto time = [&](Collective op, Bytes size, int ranks) {
    return us(collective_time(op, size, group_shape(c, ranks, 1), c));
  };
  // All-gather of 800 MB on 4 ranks: 600 MB cross at 5 GB/s. All-reduce of 80 MB on 8: 140 MB at 2.
  CHECK(time(Collective::all_gather, 800 * unit::MB, 4) == Approx(120'000));
  CHECK(time(Collective::all_reduce, 80 * unit::MB, 8) == Approx(70'000));
  // One transfer across sockets, and the engines' own kernel: 2 x 7/8 x 80 MB at 2 GB/s.
  CHECK(us(p2p_time(2 * unit::MB, group_shape(c, 8, 1), c)) == Approx(1000));
  CustomAllReduce kernel;
  kernel.start1 = Seconds{1};
  const GroupShape eight = group_shape(c, 8, 1);
  CHECK(us(custom_all_reduce_time(80 * unit::MB, eight, c.scale_up, kernel)) == Approx(70'000));
}

}  // namespace
}  // namespace scalemodel
