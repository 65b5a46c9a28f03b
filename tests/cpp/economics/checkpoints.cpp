#include "scalemodel/economics/checkpoints.hpp"

#include "scalemodel/economics/data_loading.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::Random;

constexpr BytesPerSecond kWrittenRate{1e9};

// 64 ranks on 8 nodes write 960 GB.
CheckpointWrite written_to_storage() {
  CheckpointWrite write;
  write.all = Bytes{960e9};
  write.rank = Bytes{15e9};
  write.node = Bytes{120e9};
  write.host_link = 40 * kWrittenRate;
  write.peer_network = 200 * kWrittenRate;
  write.node_storage = 4 * kWrittenRate;
  write.planning = Seconds{1};
  return write;
}

TEST_CASE("a checkpoint blocks for its write or for its copy to the host") {
  CheckpointWrite write = written_to_storage();
  CHECK(staging_time(write).base() == Approx(0.375));
  CHECK(blocking_time(write, false) == Seconds{31});
  CHECK(background_time(write, false) == Seconds{});
  CHECK(blocking_time(write, true).base() == Approx(1.375));
  CHECK(background_time(write, true) == Seconds{30});
  CHECK(checkpoint_host_memory(write, true) == write.node);
  CHECK(checkpoint_host_memory(write, false) == Bytes{});
  write.shared = 20 * kWrittenRate;  // below the 32 GB/s of eight nodes
  CHECK(background_time(write, true) == Seconds{48});
}

TEST_CASE("copies of peers cross the network and need room") {
  CheckpointWrite write = written_to_storage();
  write.copies = 2;
  CHECK(background_time(write, true) == Seconds{90});
  write.node_storage = {};
  CHECK(background_time(write, true).base() == Approx(1.2));
  for (const bool asynchronous : {false, true}) {
    CHECK(checkpoint_host_memory(write, asynchronous) == 6 * write.node);
  }
}

TEST_CASE("an asynchronous checkpoint never blocks for longer, nor counts earlier") {
  Random random(11);
  for (int i = 0; i < 500; ++i) {
    CheckpointWrite write = written_to_storage();
    write.copies = random.below(4);
    write.node_storage = random.between(0.1, 100) * kWrittenRate;
    write.shared = random.between(0, 100) * kWrittenRate;
    write.host_link = random.between(1, 400) * kWrittenRate;
    CHECK(blocking_time(write, true) <= blocking_time(write, false));
    CHECK(blocking_time(write, true) + background_time(write, true) >= blocking_time(write, false));
    CheckpointWrite slower = write;
    slower.node_storage = 0.5 * write.node_storage;
    CHECK(background_time(slower, true) >= background_time(write, true));
  }
}

FailingJob job_with_write(double write, double background) {
  FailingJob job;
  job.nodes = 1000;
  job.node_rate = Hertz{4e-8};
  job.restart = Seconds{300};
  job.write = Seconds{write};
  job.background = Seconds{background};
  return job;
}

TEST_CASE("two levels become one at either end") {
  const FailingJob local = job_with_write(1, 0), remote = job_with_write(2, 600);
  const Seconds often{300}, never{1e30}, seldom{3600};
  CHECK(two_level_ettr(local, often, remote, never, 0) == Approx(first_order_ettr(local, often)));
  CHECK(two_level_ettr(local, never, remote, seldom, 1) ==
        Approx(first_order_ettr(remote, seldom)));
  // By hand: rate 4e-5; 0.9 of (300 + 150), 0.1 of (300 + 600 + 1800); writes 1/300 + 2/3600.
  CHECK(two_level_ettr(local, often, remote, seldom, 0.1) ==
        Approx((1 - 4e-5 * (405 + 270)) / (1 + 1.0 / 300 + 1.0 / 1800)));
  FailingJob hopeless = local;
  hopeless.node_rate = Hertz{1};
  CHECK(two_level_ettr(hopeless, often, hopeless, seldom, 0.1) == 0);
}

DataPath four_nodes() {
  DataPath path;
  path.nodes = 4;
  path.devices = 32;
  path.cores = 112;
  path.node_storage = 8 * kWrittenRate;
  path.host_link = 40 * kWrittenRate;
  return path;
}

TEST_CASE("the slowest part of a data path decides") {
  const StoredSample image{Bytes{150e3}, Bytes{600e3}, Seconds{5e-3}};
  DataPath path = four_nodes();
  CHECK(storage_rate(image, path).base() == Approx(32e9 / 150e3));
  CHECK(network_rate(image, path).base() == kInfinity);
  CHECK(decode_rate(image, path).base() == Approx(4 * 112 / 5e-3));
  CHECK(host_link_rate(image, path).base() == Approx(32 * 40e9 / 600e3));
  CHECK(loading_rate(image, path) == decode_rate(image, path));
  path.shared = kWrittenRate;
  CHECK(loading_rate(image, path).base() == Approx(1e9 / 150e3));
  path.node_network = 0.1 * kWrittenRate;
  CHECK(loading_rate(image, path).base() == Approx(0.4e9 / 150e3));
  const StoredSample text{Bytes{16e3}, Bytes{32e3}, {}};
  CHECK(decode_rate(text, path).base() == kInfinity);
}

TEST_CASE("loading is exposed where it is longer than the step, or not ahead of it") {
  const Seconds step{2};
  CHECK(exposed_loading(100, Hertz{50}, step, true) == Seconds{});
  CHECK(exposed_loading(100, Hertz{40}, step, true) == Seconds{0.5});
  CHECK(exposed_loading(100, Hertz{40}, step, false) == Seconds{2.5});
  const StoredSample image{Bytes{150e3}, Bytes{600e3}, Seconds{5e-3}};
  CHECK(cores_needed(image, Hertz{8000}, 4) == Approx(10));
}

}  // namespace
}  // namespace scalemodel
