#include "scalemodel/fabric/levels.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

TEST_CASE("every rank of a group is counted once: domains hold them all, none is empty") {
  const Cluster cluster = testing::reference_cluster(4096);
  for (const int degree : {1, 2, 3, 4, 8, 12, 16, 512}) {
    for (const int stride : {1, 2, 4, 8, 16, 64}) {
      CAPTURE(degree);
      CAPTURE(stride);
      const GroupShape group = group_shape(cluster, degree, stride);
      CHECK(group.ranks == degree);
      CHECK(group.per_domain >= 1);
      CHECK(group.per_domain * stride <= std::max(stride, cluster.scale_up.domain));
      CHECK(group.per_domain * group.domains >= degree);
      CHECK(group.per_domain * (group.domains - 1) < degree);
    }
  }
}

TEST_CASE("a group stays inside its domain exactly when its span fits") {
  const Cluster cluster = testing::reference_cluster(1024);
  CHECK(group_shape(cluster, 8, 1).domains == 1);
  CHECK(group_shape(cluster, 4, 2).domains == 1);
  CHECK(group_shape(cluster, 16, 1).domains == 2);
  CHECK(group_shape(cluster, 8, 2).domains == 2);
  CHECK(group_shape(cluster, 2, 8).domains == 2);
}

TEST_CASE("a wider domain changes only groups that now fit better") {
  Cluster narrow = testing::reference_cluster(1024), wide = narrow;
  wide.scale_up.domain = 72;
  for (const int degree : {2, 4, 8}) {
    CHECK(group_shape(narrow, degree, 1) == group_shape(wide, degree, 1));
  }
  CHECK(group_shape(narrow, 64, 1).domains == 8);
  CHECK(group_shape(wide, 64, 1).domains == 1);
  CHECK(group_shape(wide, 16, 72) == group_shape(narrow, 16, 72));
}

TEST_CASE("a job smaller than the domain is no wider than itself") {
  Cluster cluster = testing::reference_cluster(4);
  cluster.scale_up.domain = 72;
  CHECK(group_shape(cluster, 4, 1).domains == 1);
}

TEST_CASE("bandwidth shrinks by the oversubscription beyond a pod, and only there") {
  Cluster cluster = testing::reference_cluster(1024);
  cluster.fabric.pod = 256;
  cluster.fabric.oversubscription = 7;
  const GroupShape inside = group_shape(cluster, 32, 8), outside = group_shape(cluster, 64, 8);
  CHECK(!inside.leaves_pod);
  CHECK(outside.leaves_pod);
  CHECK(fabric_bandwidth(cluster.fabric, inside) == cluster.fabric.bandwidth);
  CHECK(fabric_bandwidth(cluster.fabric, outside) == cluster.fabric.bandwidth / 7);
  cluster.fabric.pod = 0;
  CHECK(!group_shape(cluster, 64, 8).leaves_pod);
}

}  // namespace
}  // namespace scalemodel
