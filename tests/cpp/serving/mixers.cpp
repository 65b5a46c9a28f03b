// Recurrent mixers and residual streams of served models.
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

/// State spaces alone: 32 heads of 64 values, a state of 128.
DecoderShape scans() {
  DecoderShape s = dense_7b_shape();
  s.layers = 4;
  s.mixers = "R";
  s.recurrence = Recurrence::mamba2;
  s.scan_heads = 32;
  s.scan_groups = 8;
  s.scan_key_dim = 128;
  s.scan_value_dim = 64;
  s.scan_chunk = 128;
  s.conv_width = 4;
  return s;
}

StepWork work_of(double sequences, double prompt_tokens) {
  StepWork work;
  work.sequences = sequences;
  work.context = 1000;
  work.prompts = prompt_tokens > 0 ? 1 : 0;
  work.prompt_tokens = work.prompt_keys = prompt_tokens;
  return work;
}

StepTime time_of(const DecoderShape& shape, const ServingLayout& layout, const StepWork& work) {
  Cluster cluster = without_latency(reference_cluster(layout.ranks()));
  cluster.accelerator.scan = {1, 0.15, Seconds{}, Seconds{}, 2.5};
  cluster.accelerator.elementwise.launch = Seconds{};
  const Model model = make_decoder(shape);
  return StepTimes(model, cluster, reference_engine(), reference_kernels(), layout, 1).of(work);
}

}  // namespace

TEST_CASE("ranks of one prompt scan all of its tokens, each a share of the heads") {
  const ServingLayout one{1, 1, 1, 1, 1}, heads{4, 1, 1, 1, 1}, sequence{1, 1, 1, 1, 4};
  for (const StepWork& work : {work_of(0, 8192), work_of(64, 0)}) {
    const auto scan = [&](const ServingLayout& layout) {
      const StepTime time = time_of(scans(), layout, work);
      return (time.prefill_attention + time.decode_attention).base();
    };
    CHECK(scan(sequence) == scan(heads));
    CHECK(scan(sequence) < 0.4 * scan(one));
  }
}

TEST_CASE("by hand: tokens go to the heads of their scan and come back") {
  // 2 x 2048 + 2 x 1024 + 32 values before, 2048 behind it, of each rank's own quarter, 3/4 of
  // which leave it at 0.8 of 450 GB/s; running sequences gather 2048 values.
  const ServingLayout sequence{1, 1, 1, 1, 4};
  const double wire = 0.8 * 450e9, width = 2 * 2048 + 2 * 1024 + 32 + 2048;
  CHECK(about_equal(time_of(scans(), sequence, work_of(0, 8192)).cp,
                    Seconds{4 * 0.75 * (8192 / 4) * width * 2 / wire}));
  CHECK(about_equal(time_of(scans(), sequence, work_of(64, 0)).cp,
                    Seconds{4 * 0.75 * 64 * 2048 * 2 / wire}));
}

TEST_CASE("ranks of a sequence hold its state together") {
  const auto block = [](const ServingLayout& layout) {
    return CacheBlocks(make_decoder(scans()), reference_engine(), reference_kernels(), layout)
        .block();
  };
  CHECK(block({1, 1, 1, 1, 4}) == block({4, 1, 1, 1, 1}));
  CHECK(block({1, 1, 1, 1, 4}) < block({1, 1, 1, 1, 1}));
}

TEST_CASE("stages pass on every residual stream") {
  DecoderShape shape = dense_7b_shape();
  const ServingLayout stages{1, 2, 1, 1, 1};
  const Seconds one = time_of(shape, stages, work_of(64, 0)).pp;
  CHECK(one.base() > 0);
  shape.residual_streams = 4;
  CHECK(about_equal(time_of(shape, stages, work_of(64, 0)).pp, 4 * one));
}

}  // namespace scalemodel::testing
