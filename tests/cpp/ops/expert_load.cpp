#include "scalemodel/ops/expert_load.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

template <class Visit>
void for_routings(Visit&& visit) {
  for (const double skew : {0.0, 1.0, 1.01, 1.2, 2.0}) {
    for (const double tokens : {1.0, 3.0, 64.0, 1000.0, 16384.0}) {
      for (const auto& [experts, topk] : {std::pair{8, 2}, {60, 4}, {128, 1}, {256, 8}}) {
        for (const int ranks : {1, 4, experts})
          visit(ExpertRouting{tokens, experts, topk, ranks, skew});
      }
    }
  }
}

TEST_CASE("the busiest rank holds at least its share and no more than exists") {
  for_routings([](const ExpertRouting& routing) {
    CAPTURE(routing.tokens);
    CAPTURE(routing.experts);
    CAPTURE(routing.ranks);
    CAPTURE(routing.skew);
    const ExpertLoad load = expert_load(routing);
    const double local = routing.experts / routing.ranks;
    const double all = routing.tokens * routing.topk;
    const double slack = 1 + 1e-9;
    CHECK(load.pairs * slack >= all / routing.ranks);
    CHECK(load.pairs <= slack * std::min(all, routing.tokens * local));
    CHECK(load.touched <= slack * std::min(routing.tokens, load.pairs));
    CHECK(load.touched * slack >= load.pairs / std::min<double>(local, routing.topk));
    CHECK(load.active <= slack * std::min(local, load.pairs));
    CHECK(load.active > 0);
  });
}

TEST_CASE("one rank receives everything") {
  for_routings([](ExpertRouting routing) {
    routing.ranks = 1;
    const ExpertLoad load = expert_load(routing);
    CHECK(load.pairs == Approx(routing.tokens * routing.topk));
    CHECK(load.touched == Approx(routing.tokens));
  });
}

TEST_CASE("balanced experts share evenly wherever the numbers allow it") {
  for (const int ranks : {1, 2, 8, 64}) {
    const ExpertLoad load = expert_load({64 * 100, 64, 8, ranks, 0});
    CHECK(load.pairs == Approx(64.0 * 100 * 8 / ranks));
    CHECK(load.active == Approx(64.0 / ranks));
  }
}

TEST_CASE("a steeper law loads the busiest rank more, and the balanced one least") {
  for (const int ranks : {2, 8, 32}) {
    double lighter = 0;
    for (const double skew : {0.0, 0.3, 1.0, 2.0}) {
      const double pairs = expert_load({8192, 128, 8, ranks, skew}).pairs;
      CHECK(pairs >= lighter);
      lighter = pairs;
    }
  }
}

TEST_CASE("more tokens bring more pairs, and in the limit in proportion") {
  double fewer = 0;
  for (double tokens = 1; tokens <= 65536; tokens *= 2) {
    const double pairs = expert_load({tokens, 256, 8, 16, 1.01}).pairs;
    CHECK(pairs >= fewer);
    fewer = pairs;
  }
  const double once = expert_load({1 << 16, 64, 4, 8, 0.5}).pairs;
  const double twice = expert_load({1 << 17, 64, 4, 8, 0.5}).pairs;
  CHECK(twice / once == Approx(2).epsilon(0.01));
}

TEST_CASE("no tokens, no load; a remembered load is the computed one") {
  CHECK(expert_load({0, 8, 2, 1, 1.2}) == ExpertLoad{});
  ExpertLoads known;
  for_routings([&](const ExpertRouting& routing) {
    const ExpertLoad load = expert_load(routing);
    CHECK(known.of(routing) == load);
    CHECK(known.of(routing) == load);
  });
}

}  // namespace
}  // namespace scalemodel
