#include "scalemodel/schedule/asynchronous.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

TEST_CASE("asynchronous pipelines: a version for every micro-batch in flight, or two") {
  for (const int stages : {1, 2, 4, 16}) {
    for (int stage = 0; stage < stages; ++stage) {
      CHECK(weight_versions(stages, stage, false) == stages - stage);
      CHECK(weight_versions(stages, stage, true) == (stage + 1 == stages ? 1 : 2));
    }
  }
}

TEST_CASE("asynchronous pipelines: the first stage keeps as many weights as the whole model has") {
  const Bytes model = 16 * unit::GB, activations = 1 * unit::GB;
  for (const int stages : {1, 2, 8}) {
    const Bytes own = model / stages;
    CHECK(asynchronous_stage_bytes(stages, 0, own, {}, {}, false) == model);
    const Bytes last = asynchronous_stage_bytes(stages, stages - 1, own, own, activations, false);
    CHECK(last == 2 * own + activations);
  }
}

TEST_CASE("asynchronous pipelines: nothing but the slowest stage") {
  CHECK(asynchronous_time(0.5 * unit::s, 8) == 4 * unit::s);
  CHECK(asynchronous_time(0.5 * unit::s, 0) == Seconds{});
}

}  // namespace
}  // namespace scalemodel
