#include "scalemodel/collectives/collectives.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;
using testing::about_equal;
using testing::at_most;

constexpr Collective kAll[] = {Collective::all_reduce, Collective::all_gather,
                               Collective::reduce_scatter, Collective::all_to_all};
constexpr double kSizes[] = {1, 1e3, 3e4, 1e6, 2e7, 1e9, 1e11};
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

TEST_CASE("no collective beats its wire") {
  for (const int ranks : kRanks) {
    for (const int stride : {1, 4, 8}) {
      const GroupShape group = group_shape(cluster(), ranks, stride);
      for (const double size : kSizes) {
        CAPTURE(ranks);
        CAPTURE(stride);
        CAPTURE(size);
        const Bytes share = ((ranks - 1.0) / ranks) * Bytes{size};
        const Seconds least = share / wire(group, cluster());
        CHECK(2 * least < time_of(Collective::all_reduce, size, ranks, stride));
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
      CHECK(about_equal(time_of(Collective::all_reduce, size, ranks, 1, ideal), halves));
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

static_assert(noexcept(collective_time(Collective::all_reduce, Bytes{}, GroupShape{}, Cluster{})));

}  // namespace
}  // namespace scalemodel
