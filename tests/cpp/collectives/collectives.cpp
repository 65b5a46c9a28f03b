#include "scalemodel/collectives/collectives.hpp"

#include <cmath>
#include <utility>

#include "scalemodel/collectives/custom_all_reduce.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;

constexpr Collective kAll[] = {Collective::all_reduce, Collective::all_gather,
                               Collective::reduce_scatter, Collective::all_to_all};
constexpr double kSizes[] = {1, 1e3, 3e4, 1e6, 2e7, 1e9, 1e11};
constexpr InSwitchFit kSwitch{60 * unit::us, 0.69, 2 * unit::us};
constexpr int kRanks[] = {2, 3, 4, 7, 8, 16, 64, 512, 4096};

const Cluster& cluster() {
  static const Cluster reference = testing::reference_cluster(8192);
  return reference;
}

Seconds time_of(Collective op, double size, int ranks, int stride = 1,
                const Cluster& on = cluster()) {
  return collective_time(op, Bytes{size}, group_shape(on, ranks, stride), on);
}

/// Fastest one rank's data can move: its link inside a domain, or the ports of its domain together.
BytesPerSecond wire(const GroupShape& group, const Cluster& on) {
  if (group.domains == 1) return on.scale_up.bandwidth;
  const BytesPerSecond ports = group.per_domain * fabric_bandwidth(on.fabric, group);
  return group.per_domain == 1 ? ports : min(ports, on.scale_up.bandwidth);
}

TEST_CASE("one rank costs nothing, and neither does an empty buffer") {
  for (const Collective op : kAll) {
    CHECK(time_of(op, 1e9, 1) == Seconds{});
    CHECK(time_of(op, 0, 64) == Seconds{});
  }
  CHECK(p2p_time(1 * unit::GB, group_shape(cluster(), 1, 1), cluster()) == Seconds{});
  CHECK(p2p_time(Bytes{}, group_shape(cluster(), 2, 1), cluster()) == Seconds{});
}

TEST_CASE("no ring beats its wire") {
  for (const int ranks : kRanks) {
    for (const int stride : {1, 4, 8}) {
      const GroupShape group = group_shape(cluster(), ranks, stride);
      for (const double size : kSizes) {
        CAPTURE(ranks);
        CAPTURE(stride);
        CAPTURE(size);
        const Bytes share = ((ranks - 1.0) / ranks) * Bytes{size};
        const Seconds least = share / wire(group, cluster());
        CHECK(2 * least < collective_time(Collective::all_reduce, Bytes{size}, group, cluster(),
                                          Algorithm::ring));
        // Trees over two domains exchange halves of the buffer; no algorithm sends less.
        const double rounds = 2.0 * (group.domains - 1) / group.domains;
        const Seconds through_ports =
            (rounds * Bytes{size}) / (group.per_domain * fabric_bandwidth(cluster().fabric, group));
        CHECK(through_ports < time_of(Collective::all_reduce, size, ranks, stride));
        CHECK(least < time_of(Collective::all_gather, size, ranks, stride));
        CHECK(least < time_of(Collective::reduce_scatter, size, ranks, stride));
        // An all-to-all also uses its own link for what stays in the domain.
        const double outside = static_cast<double>(ranks - group.per_domain) / ranks * size;
        const Seconds through_port = Bytes{outside} / fabric_bandwidth(cluster().fabric, group);
        CHECK(through_port < time_of(Collective::all_to_all, size, ranks, stride));
      }
    }
  }
}

TEST_CASE("time never falls with size") {
  for (const Collective op : kAll) {
    for (const int ranks : kRanks) {
      Seconds before;
      for (double size = 1; size < 1e12; size *= 1.7) {
        CAPTURE(name_of(op));
        CAPTURE(ranks);
        CAPTURE(size);
        const Seconds now = time_of(op, size, ranks);
        CHECK(at_most(before, now));
        before = now;
      }
    }
  }
}

TEST_CASE("time never falls with ranks inside a domain or over whole domains") {
  for (const Collective op : kAll) {
    for (const double size : kSizes) {
      Seconds before;
      for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 64, 128, 1024, 8192}) {
        CAPTURE(name_of(op));
        CAPTURE(size);
        CAPTURE(ranks);
        const Seconds now = time_of(op, size, ranks);
        CHECK(at_most(before, now));
        before = now;
      }
    }
  }
}

TEST_CASE("an all-reduce takes at least its reduce-scatter and its all-gather") {
  // Inside a domain at every size; across domains where bandwidth decides, because small
  // all-reduces take a tree there and the other two a ring.
  for (const int ranks : kRanks) {
    const bool inside = group_shape(cluster(), ranks, 1).domains == 1;
    for (const double size : kSizes) {
      if (!inside && size < 1e8 * ranks) continue;
      CAPTURE(ranks);
      CAPTURE(size);
      const Seconds whole = time_of(Collective::all_reduce, size, ranks);
      CHECK(whole >= time_of(Collective::reduce_scatter, size, ranks));
      CHECK(whole >= time_of(Collective::all_gather, size, ranks));
    }
  }
}

TEST_CASE("without latency a ring all-reduce is a reduce-scatter followed by an all-gather") {
  const Cluster ideal = testing::without_latency(cluster());
  for (const int ranks : {2, 4, 8, 16, 64}) {
    for (const double size : {1e3, 1e7, 1e11}) {
      CAPTURE(ranks);
      CAPTURE(size);
      const Seconds halves = time_of(Collective::reduce_scatter, size, ranks, 1, ideal) +
                             time_of(Collective::all_gather, size, ranks, 1, ideal);
      CHECK(about_equal(collective_time(Collective::all_reduce, Bytes{size},
                                        group_shape(ideal, ranks, 1), ideal, Algorithm::ring),
                        halves));
    }
  }
}

TEST_CASE("infinite bandwidth leaves latency: time no longer depends on size") {
  Cluster endless = cluster();
  endless.scale_up.bandwidth = 1e12 * endless.scale_up.bandwidth;
  endless.fabric.bandwidth = 1e12 * endless.fabric.bandwidth;
  for (const Collective op : kAll) {
    for (const int ranks : {8, 64}) {
      CAPTURE(name_of(op));
      CAPTURE(ranks);
      const Seconds small = time_of(op, 1, ranks, 1, endless);
      CHECK(small > Seconds{});
      CHECK(about_equal(small, time_of(op, 1e9, ranks, 1, endless), 1e-3));
    }
  }
}

TEST_CASE("without latency, twice the bandwidth is half the time and twice the size double") {
  const Cluster ideal = testing::without_latency(cluster());
  Cluster faster = ideal;
  faster.scale_up.bandwidth = 2 * faster.scale_up.bandwidth;
  faster.fabric.bandwidth = 2 * faster.fabric.bandwidth;
  for (const Collective op : kAll) {
    for (const int ranks : {8, 64}) {
      const Seconds time = time_of(op, 1e8, ranks, 1, ideal);
      CHECK(about_equal(time, 2 * time_of(op, 1e8, ranks, 1, faster)));
      CHECK(about_equal(2 * time, time_of(op, 2e8, ranks, 1, ideal)));
    }
  }
}

TEST_CASE("equal links inside and outside make domains disappear") {
  Cluster flat = testing::without_latency(cluster()), whole = flat;
  // One rank per domain, so that no port is shared, against one domain of the same bandwidth.
  flat.scale_up.domain = 1;
  flat.fabric.bandwidth = flat.scale_up.bandwidth;
  flat.fabric.bandwidth_fraction = flat.scale_up.all_reduce.bandwidth_fraction2;
  flat.fabric.all_to_all_fraction = flat.fabric.bandwidth_fraction;
  whole.scale_up.domain = 8192;
  for (const Collective op : kAll) {
    for (const int ranks : {2, 8, 64}) {
      CAPTURE(name_of(op));
      CAPTURE(ranks);
      CHECK(about_equal(time_of(op, 1e9, ranks, 1, flat), time_of(op, 1e9, ranks, 1, whole)));
    }
  }
}

TEST_CASE("more bandwidth or less latency anywhere never costs time") {
  using Change = void (*)(Cluster&);
  const Change changes[] = {
      [](Cluster& c) { c.scale_up.bandwidth = 2 * c.scale_up.bandwidth; },
      [](Cluster& c) { c.fabric.bandwidth = 2 * c.fabric.bandwidth; },
      [](Cluster& c) { c.fabric.latency_factor *= 0.5; },
      [](Cluster& c) { c.fabric.oversubscription = 1; },
      [](Cluster& c) { c.fabric.in_network_reduction = true; },
      [](Cluster& c) { c.scale_up.in_switch = kSwitch; },
      [](Cluster& c) { c.scale_up.all_reduce.start1 = Seconds{}; },
  };
  Cluster base = cluster();
  base.fabric.pod = 1024;
  base.fabric.oversubscription = 3;
  for (const Change change : changes) {
    Cluster better = base;
    change(better);
    for (const Collective op : kAll) {
      for (const int ranks : kRanks) {
        for (const double size : kSizes) {
          CHECK(at_most(time_of(op, size, ranks, 1, better), time_of(op, size, ranks, 1, base)));
        }
      }
    }
  }
}

TEST_CASE("leaving the domain or the pod is never faster") {
  Cluster pods = cluster();
  pods.fabric.pod = 64;
  pods.fabric.oversubscription = 4;
  for (const Collective op : kAll) {
    for (const double size : kSizes) {
      CAPTURE(name_of(op));
      CAPTURE(size);
      CHECK(at_most(time_of(op, size, 8, 1), time_of(op, size, 8, 8)));
      CHECK(at_most(time_of(op, size, 16, 8), time_of(op, size, 16, 8, pods)));
    }
  }
}

TEST_CASE("a transfer between neighbours costs its latency and its bytes") {
  for (const int stride : {1, 8}) {
    const GroupShape pair = group_shape(cluster(), 2, stride);
    const Seconds empty = p2p_time(Bytes{1}, pair, cluster());
    const Seconds one = p2p_time(1 * unit::GB, pair, cluster());
    const Seconds two = p2p_time(2 * unit::GB, pair, cluster());
    CHECK(empty > Seconds{});
    CHECK((two - one).base() == Approx((one - empty).base()).epsilon(1e-6));
    CHECK(one >
          1 * unit::GB / (stride == 1 ? cluster().scale_up.bandwidth : cluster().fabric.bandwidth));
  }
}

TEST_CASE("best is the fastest legal algorithm, and hardware decides what is legal") {
  Cluster able = cluster();
  able.scale_up.in_switch = kSwitch;
  able.fabric.in_network_reduction = true;
  for (const Cluster& on : {cluster(), able}) {
    for (const Collective op : kAll) {
      for (const int ranks : kRanks) {
        for (const int stride : {1, 4, 8}) {
          const GroupShape group = group_shape(on, ranks, stride);
          for (const double size : kSizes) {
            CAPTURE(name_of(op));
            CAPTURE(ranks);
            CAPTURE(stride);
            CAPTURE(size);
            const Algorithm best = best_algorithm(op, Bytes{size}, group, on);
            const Seconds least = collective_time(op, Bytes{size}, group, on);
            REQUIRE(is_legal(op, best, group, on));
            CHECK(collective_time(op, Bytes{size}, group, on, best) == least);
            for (std::size_t i = 1; i < EnumNames<Algorithm>::names.size(); ++i) {
              const auto other = static_cast<Algorithm>(i);
              if (other == Algorithm::hierarchical || !is_legal(op, other, group, on)) continue;
              CHECK(least <= collective_time(op, Bytes{size}, group, on, other));
            }
          }
        }
      }
    }
  }
  const GroupShape inside = group_shape(able, 8, 1), across = group_shape(able, 64, 1),
                   rails = group_shape(able, 8, 8);
  const auto legal = [&](Collective op, Algorithm algorithm, const GroupShape& group) {
    return is_legal(op, algorithm, group, able);
  };
  CHECK(legal(Collective::all_reduce, Algorithm::nvls, inside));
  CHECK(!is_legal(Collective::all_reduce, Algorithm::nvls, inside, cluster()));
  CHECK(!legal(Collective::all_reduce, Algorithm::nvls, across));
  CHECK(legal(Collective::all_reduce, Algorithm::nvls_tree, across));
  CHECK(!legal(Collective::all_reduce, Algorithm::nvls_tree, rails));
  CHECK(!legal(Collective::all_gather, Algorithm::tree, across));
  CHECK(legal(Collective::all_gather, Algorithm::pat, rails));
  CHECK(!legal(Collective::all_gather, Algorithm::pat, across));
  CHECK(!legal(Collective::all_reduce, Algorithm::pat, rails));
  CHECK(!is_legal(Collective::all_reduce, Algorithm::sharp, across, cluster()));
  CHECK(!legal(Collective::all_to_all, Algorithm::ring, across));
  CHECK(legal(Collective::all_to_all, Algorithm::direct, across));
  CHECK(!legal(Collective::all_reduce, Algorithm::direct, inside));
}

TEST_CASE("rings grow linearly with domains, trees with their logarithm") {
  const auto time = [&](Algorithm algorithm, int ranks) {
    return collective_time(Collective::all_reduce, Bytes{1}, group_shape(cluster(), ranks, 1),
                           cluster(), algorithm);
  };
  const Seconds tree_step = time(Algorithm::tree, 128) - time(Algorithm::tree, 64);
  CHECK(about_equal(tree_step, time(Algorithm::tree, 512) - time(Algorithm::tree, 256), 1e-3));
  const Seconds ring_step = time(Algorithm::ring, 128) - time(Algorithm::ring, 64);
  CHECK(about_equal(4 * ring_step, time(Algorithm::ring, 512) - time(Algorithm::ring, 256), 1e-3));
}

TEST_CASE("halves of an all-reduce inside domains and along rails make the whole") {
  const GroupShape group = group_shape(cluster(), 64, 1), rail = group_shape(cluster(), 8, 8);
  for (const double size : kSizes) {
    const auto inside = [&](Collective op) { return time_of(op, size, 8); };
    const auto along = [&](Collective op, Algorithm algorithm) {
      return collective_time(op, Bytes{size} / 8.0, rail, cluster(), algorithm);
    };
    const auto whole = [&](Collective op) {
      return collective_time(op, Bytes{size}, group, cluster(), Algorithm::hierarchical);
    };
    CHECK(about_equal(whole(Collective::all_reduce),
                      inside(Collective::reduce_scatter) + inside(Collective::all_gather) +
                          min(along(Collective::all_reduce, Algorithm::ring),
                              along(Collective::all_reduce, Algorithm::tree))));
    CHECK(about_equal(
        whole(Collective::all_gather),
        inside(Collective::all_gather) + along(Collective::all_gather, Algorithm::ring)));
  }
}

TEST_CASE("a rail-aligned all-to-all wins small messages among many ranks") {
  const GroupShape group = group_shape(cluster(), 4096, 1);
  const auto with = [&](double size, Algorithm algorithm) {
    return collective_time(Collective::all_to_all, Bytes{size}, group, cluster(), algorithm);
  };
  CHECK(with(1e3, Algorithm::hierarchical) < with(1e3, Algorithm::direct));
  CHECK(with(1e10, Algorithm::hierarchical) > with(1e10, Algorithm::direct));
}

TEST_CASE("with a switch that reduces, an all-reduce takes at least either half") {
  Cluster able = cluster();
  able.scale_up.in_switch = kSwitch;
  able.scale_up.domain = 72;
  for (const int ranks : {2, 4, 8, 36, 72}) {
    for (const double size : kSizes) {
      const Seconds whole = time_of(Collective::all_reduce, size, ranks, 1, able);
      CHECK(whole >= time_of(Collective::reduce_scatter, size, ranks, 1, able));
      CHECK(whole >= time_of(Collective::all_gather, size, ranks, 1, able));
    }
  }
}

TEST_CASE("adapters that share the links make an all-to-all over servers at least one server's") {
  Cluster host = cluster();
  host.scale_up.carries_fabric = true;
  host.scale_up.all_to_all.host_share = 1.5;
  for (const double size : kSizes) {
    CHECK(at_most(time_of(Collective::all_to_all, size, 8, 1, host),
                  time_of(Collective::all_to_all, size, 16, 1, host)));
  }
}

TEST_CASE("a measured curve passes through its points and keeps its bandwidth beyond them") {
  Cluster timed = cluster();
  MeasuredCurve& curve = timed.measured[0];
  curve.op = Collective::all_gather;
  curve.ranks = 16;
  curve.domains = 2;
  curve.size = {1 * unit::MB, 10 * unit::MB, 1000 * unit::MB};
  curve.time = {50 * unit::us, 100 * unit::us, 4 * unit::ms};
  const auto at = [&](double size) { return time_of(Collective::all_gather, size, 16, 1, timed); };
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(about_equal(at(curve.size[i].base()), curve.time[i]));
  }
  CHECK(at(1) == curve.time[0]);
  CHECK(about_equal(at(4e9), 16 * unit::ms));
  CHECK(about_equal(at(1e8), Seconds{std::sqrt(1e-4 * 4e-3)}));
  Seconds before;
  for (double size = 1; size < 1e11; size *= 1.3) {
    CHECK(at_most(before, at(size)));
    before = at(size);
  }
  CHECK(time_of(Collective::all_gather, 1e8, 32, 1, timed) ==
        time_of(Collective::all_gather, 1e8, 32));
  CHECK(time_of(Collective::all_reduce, 1e8, 16, 1, timed) ==
        time_of(Collective::all_reduce, 1e8, 16));
}

TEST_CASE("a full table of curves is searched to its end") {
  Cluster timed = cluster();
  for (std::size_t i = 0; i < timed.measured.size(); ++i) {
    timed.measured[i].ranks = static_cast<int>(i) + 2;
    timed.measured[i].size[0] = 1 * unit::MB;
    timed.measured[i].time[0] = Seconds{1.0 + static_cast<double>(i)};
  }
  CHECK(time_of(Collective::all_reduce, 1e6, 8, 1, timed) == Seconds{7.0});
  CHECK(time_of(Collective::all_gather, 1e6, 8, 1, timed) ==
        time_of(Collective::all_gather, 1e6, 8));
}

TEST_CASE("an engine's all-reduce is one-shot when small and two-shot when large") {
  const BytesPerSecond link = 450 * (unit::GB / unit::s);
  ScaleUp links;
  links.bandwidth = link;
  const auto in_domain = [](int ranks) { return GroupShape{.ranks = ranks, .per_domain = ranks}; };
  CustomAllReduce kernel;
  kernel.start1 = 3 * unit::us;
  kernel.per_rank1 = 0.1 * unit::us;
  kernel.bandwidth_fraction1 = 0.6;
  kernel.start2 = 8 * unit::us;
  kernel.per_rank2 = 0.3 * unit::us;
  kernel.bandwidth_fraction2 = 0.7;
  CustomAllReduce eager = kernel;
  eager.host_floor = 30 * unit::us;
  CustomAllReduce crossing = kernel;
  crossing.host_share = 0.7;
  CHECK(custom_all_reduce_time(1 * unit::GB, in_domain(1), links, kernel) == Seconds{});
  for (const int ranks : {2, 4, 8}) {
    Seconds before;
    for (double size = 1; size < 1e10; size *= 1.7) {
      const GroupShape group = in_domain(ranks);
      const Seconds now = custom_all_reduce_time(Bytes{size}, group, links, kernel);
      CHECK(at_most(before, now));
      CHECK(now >= (2.0 * (ranks - 1) / ranks * Bytes{size}) / link);
      const Seconds slow = custom_all_reduce_time(Bytes{size}, group, links, crossing);
      CHECK((ranks == 2 ? about_equal(slow, now) : slow > now));
      CHECK(custom_all_reduce_time(Bytes{size}, group, links, eager) == max(now, eager.host_floor));
      before = now;
    }
  }
}

TEST_CASE("half of the fabric takes longer, and never more than twice as long") {
  Cluster curved = cluster();
  MeasuredCurve& curve = curved.measured.front();
  curve.op = Collective::all_gather;
  curve.ranks = 64;
  curve.domains = 8;
  curve.size = {Bytes{1e3}, Bytes{1e9}};
  curve.time = {Seconds{1e-4}, Seconds{1e-2}};
  for (const Cluster* on : {&cluster(), &std::as_const(curved)}) {
    for (const Collective op : kAll) {
      for (const int ranks : kRanks) {
        for (const double size : kSizes) {
          CAPTURE(ranks);
          CAPTURE(size);
          const GroupShape whole = group_shape(*on, ranks, 1),
                           half = group_shape(*on, ranks, 1, 0.5);
          const Seconds ideal = collective_time(op, Bytes{size}, whole, *on);
          const Seconds shared = collective_time(op, Bytes{size}, half, *on);
          CHECK(at_most(ideal, shared));
          CHECK(at_most(shared, 2 * ideal));
          if (whole.domains == 1) CHECK(shared == ideal);
        }
      }
    }
  }
}

TEST_CASE("what leaves a domain is what its ports take at their bandwidth") {
  const GroupShape across = group_shape(cluster(), 64, 1), inside = group_shape(cluster(), 8, 1);
  const Bytes size = 64 * unit::GB;
  CHECK(domain_bytes(Collective::all_reduce, Algorithm::ring, size, across) == 126 * unit::GB);
  CHECK(domain_bytes(Collective::all_gather, Algorithm::ring, size, across) == 63 * unit::GB);
  CHECK(domain_bytes(Collective::all_reduce, Algorithm::tree, size, across) == 128 * unit::GB);
  CHECK(domain_bytes(Collective::all_reduce, Algorithm::sharp, size, across) == size);
  CHECK(domain_bytes(Collective::all_to_all, Algorithm::direct, size, across) == 8 * 56 * unit::GB);
  CHECK(domain_bytes(Collective::all_reduce, Algorithm::ring, size, inside) == Bytes{});
  const BytesPerSecond ports = across.per_domain * fabric_bandwidth(cluster().fabric, across);
  for (const Collective op : kAll) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::direct}) {
      if (!is_legal(op, algorithm, across, cluster())) continue;
      CHECK(at_most(domain_bytes(op, algorithm, size, across) / ports,
                    collective_time(op, size, across, cluster(), algorithm)));
    }
  }
}

static_assert(noexcept(collective_time(Collective::all_reduce, Bytes{}, GroupShape{}, Cluster{})));

}  // namespace
}  // namespace scalemodel
