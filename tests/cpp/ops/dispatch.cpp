#include "scalemodel/ops/dispatch.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::at_most;

DispatchKernel fitted_dispatch_kernel() {
  DispatchKernel kernel;
  kernel.launch = 30 * unit::us;
  kernel.doubling = 25 * unit::us;
  kernel.choice = 0.1 * unit::us;
  kernel.sender = 2 * unit::us;
  kernel.value_bytes = 1.03;
  kernel.block_rate = 13 * (unit::GB / unit::s);
  kernel.domain_rate = 400 * (unit::GB / unit::s);
  kernel.network_rate = 48 * (unit::GB / unit::s);
  kernel.blend = 2;
  kernel.spine_nodes = 4;
  kernel.spine_fraction = 0.46;
  return kernel;
}

template <class Visit>
void for_works(Visit&& visit) {
  for (const bool once : {true, false}) {
    DispatchKernel kernel = fitted_dispatch_kernel();
    kernel.copies_once = once;
    for (const double tokens : {1.0, 128.0, 65536.0}) {
      for (const double topk : {1.0, 2.0, 8.0}) {
        for (const double nodes : {1.0, 2.0, 8.0}) {
          for (const double blocks : {0.0, 4.0, 24.0}) {
            visit(DispatchWork{tokens, 7168, topk, 256, 8 * nodes, nodes, blocks, 132}, kernel);
          }
        }
      }
    }
  }
}

TEST_CASE("choices reach at most as many places as there are, or as they are many") {
  for (const double places : {1.0, 2.0, 8.0, 1e6}) {
    for (const double topk : {1.0, 2.0, 22.0}) {
      const double distinct = distinct_places(places, topk);
      CHECK(distinct >= 1 - 1e-9);
      CHECK(distinct <= std::min(places, topk) * (1 + 1e-9));
    }
  }
  CHECK(distinct_places(1e9, 8) == Approx(8).epsilon(1e-6));
}

TEST_CASE("a rank on its own sends nothing") {
  DispatchKernel slow = fitted_dispatch_kernel();
  slow.domain_rate = slow.network_rate = 1e-3 * (unit::GB / unit::s);
  const DispatchWork alone{4096, 7168, 8, 256, 1, 1, 0, 132};
  CHECK(dispatch_time(alone, slow) == dispatch_time(alone, fitted_dispatch_kernel()));
}

TEST_CASE("nothing is faster than its bytes over the rate of the wire") {
  for_works([](const DispatchWork& work, const DispatchKernel& kernel) {
    if (work.nodes == 1) return;
    const double places = kernel.copies_once ? distinct_places(work.nodes, work.topk) : work.topk;
    const Bytes sent{work.tokens * work.hidden * kernel.value_bytes * places * (work.nodes - 1) /
                     work.nodes};
    CHECK(dispatch_time(work, kernel) > sent / kernel.network_rate);
  });
}

TEST_CASE("more tokens, width or choices never make a dispatch faster") {
  for_works([](const DispatchWork& work, const DispatchKernel& kernel) {
    const Seconds time = dispatch_time(work, kernel);
    DispatchWork tokens = work, width = work, choices = work;
    tokens.tokens *= 2;
    width.hidden *= 2;
    choices.topk *= 2;
    CHECK(at_most(time, dispatch_time(tokens, kernel)));
    CHECK(at_most(time, dispatch_time(width, kernel)));
    CHECK(at_most(time, dispatch_time(choices, kernel)));
  });
}

TEST_CASE("higher rates, more blocks or more senders never make a dispatch slower") {
  for_works([](const DispatchWork& work, const DispatchKernel& kernel) {
    const Seconds time = dispatch_time(work, kernel);
    DispatchKernel domain = kernel, network = kernel, block = kernel;
    domain.domain_rate = 2 * domain.domain_rate;
    network.network_rate = 2 * network.network_rate;
    block.block_rate = 2 * block.block_rate;
    DispatchWork blocks = work, senders = work;
    blocks.communication_blocks *= 2;
    senders.experts *= 2;
    senders.sending_blocks *= 2;
    CHECK(at_most(dispatch_time(work, domain), time));
    CHECK(at_most(dispatch_time(work, network), time));
    CHECK(at_most(dispatch_time(work, block), time));
    CHECK(at_most(dispatch_time(blocks, kernel), time));
    CHECK(at_most(dispatch_time(senders, kernel), time));
  });
}

TEST_CASE("few experts send slowly: one block each") {
  DispatchKernel kernel = fitted_dispatch_kernel();
  kernel.copies_once = false;
  const DispatchWork few{1024, 4096, 2, 8, 8, 1, 0, 132}, many{1024, 4096, 2, 128, 8, 1, 0, 132};
  const Seconds difference = dispatch_time(few, kernel) - dispatch_time(many, kernel);
  CHECK(difference.base() == Approx(1024.0 * (1.0 / 8 - 1.0 / 128) * kernel.sender.base()));
}

}  // namespace
}  // namespace scalemodel
