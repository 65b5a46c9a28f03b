#include "scalemodel/schedule/pipeline.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;

constexpr Seconds kForward{0.010}, kBackward{0.021}, kWeight{0.009};

StageTimes equal_stages(int pp) {
  StageTimes times;
  times.slowest = kForward + kBackward;
  times.sum = pp * (kForward + kBackward);
  times.mean_backward = kBackward;
  times.mean_weight = kWeight;
  return times;
}

TEST_CASE("bubbles of equal stages equal the published closed forms") {
  const double f = kForward.base(), b = kBackward.base(), w = kWeight.base();
  for (const int p : {2, 4, 8, 16}) {
    CAPTURE(p);
    const StageTimes times = equal_stages(p);
    const auto bubble = [&](Schedule schedule, int v = 1) {
      return pipeline_bubble(schedule, p, v, times).base();
    };
    CHECK(bubble(Schedule::gpipe) == Approx((p - 1) * (f + b)));
    CHECK(bubble(Schedule::one_f_one_b) == Approx((p - 1) * (f + b)));
    for (const int v : {2, 3, 6}) {
      CHECK(bubble(Schedule::interleaved, v) == Approx((p - 1) * (f + b) / v));
    }
    CHECK(bubble(Schedule::zero_bubble) == Approx((p - 1) * (f + b - 2 * w)));
    CHECK(bubble(Schedule::dualpipe) == Approx((p / 2 - 1) * (f + b + b - 3 * w)));
  }
}

TEST_CASE("one stage has no bubble, and no bubble is negative") {
  StageTimes heavy_weights = equal_stages(8);
  heavy_weights.mean_weight = 2 * kBackward;
  for (std::size_t i = 0; i < EnumNames<Schedule>::names.size(); ++i) {
    const auto schedule = static_cast<Schedule>(i);
    CAPTURE(name_of(schedule));
    CHECK(pipeline_bubble(schedule, 1, 1, equal_stages(1)) == Seconds{});
    CHECK(pipeline_bubble(schedule, 8, 2, heavy_weights) >= Seconds{});
  }
}

TEST_CASE("zero-bubble and DualPipe idle less than 1F1B") {
  for (const int p : {4, 8, 16}) {
    const StageTimes times = equal_stages(p);
    const Seconds plain = pipeline_bubble(Schedule::one_f_one_b, p, 1, times);
    CHECK(pipeline_bubble(Schedule::zero_bubble, p, 1, times) < plain);
    CHECK(pipeline_bubble(Schedule::dualpipe, p, 1, times) <
          pipeline_bubble(Schedule::zero_bubble, p, 1, times));
  }
}

TEST_CASE("unequal stages idle for the others: the slowest paces, the rest is its bubble") {
  StageTimes times = equal_stages(4);
  times.slowest = 2 * times.slowest;
  times.sum = times.sum + 0.5 * times.slowest;
  CHECK(pipeline_bubble(Schedule::one_f_one_b, 4, 1, times) == times.sum - times.slowest);
}

TEST_CASE("micro-batches in flight equal the published closed forms") {
  for (const int p : {1, 2, 4, 8}) {
    for (const double m : {1.0, 2.0, 4.0, 64.0}) {
      for (int i = 0; i < p; ++i) {
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(i);
        CHECK(in_flight(Schedule::gpipe, p, 1, i, m) == m);
        CHECK(in_flight(Schedule::one_f_one_b, p, 1, i, m) == std::min<double>(p - i, m));
        CHECK(in_flight(Schedule::zero_bubble, p, 1, i, m) ==
              in_flight(Schedule::one_f_one_b, p, 1, i, m));
        for (const int v : {1, 2, 4}) {
          CHECK(in_flight(Schedule::interleaved, p, v, i, m) <= m);
        }
      }
    }
  }
  // Interleaving holds 1 + (p-1)/(p v) times what 1F1B holds on the first stage.
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 3, 8}) {
      CHECK(in_flight(Schedule::interleaved, p, v, 0, 1e6) ==
            Approx(p * (1 + (p - 1.0) / (p * v))));
    }
    // DualPipe holds p + 1 over half of its doubled stage.
    CHECK(2 * in_flight(Schedule::dualpipe, p, 1, 0, 1e6) == p + 1);
  }
}

TEST_CASE("earlier stages never hold less") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                                  Schedule::zero_bubble, Schedule::dualpipe}) {
    for (int i = 1; i < 8; ++i) {
      CHECK(in_flight(schedule, 8, 2, i - 1, 32) >= in_flight(schedule, 8, 2, i, 32));
    }
  }
}

TEST_CASE("interleaving turns 1F1B into its interleaved form, and nothing else") {
  CHECK(effective_schedule(Schedule::one_f_one_b, 1) == Schedule::one_f_one_b);
  CHECK(effective_schedule(Schedule::one_f_one_b, 2) == Schedule::interleaved);
  CHECK(effective_schedule(Schedule::gpipe, 2) == Schedule::gpipe);
}

int layers_of(const StageLayout& layout) {
  int total = 0;
  for (const StageClass& stage : layout.classes) total += stage.count * stage.total_layers();
  return total;
}

TEST_CASE("stages hold every layer once, one embedding and one head") {
  for (const DecoderShape& shape :
       {testing::gpt3_shape(), testing::latent_experts_shape(), testing::window_shape()}) {
    const Model model = make_decoder(shape);
    for (const int pp : {1, 2, 4, 7, 8}) {
      for (const int vpp : {1, 2, 3}) {
        if (pp * vpp > model.layers()) continue;
        CAPTURE(pp);
        CAPTURE(vpp);
        const StageLayout layout = make_stage_layout(model, pp, vpp, false);
        CHECK(layers_of(layout) == model.layers() + model.mtp_layers);
        std::array<int, kMaxLayerKinds> held{}, wanted{};
        int stages = 0, embeddings = 0, heads = 0;
        for (const StageClass& stage : layout.classes) {
          stages += stage.count;
          embeddings += stage.embedding ? stage.count : 0;
          heads += stage.head ? stage.count : 0;
          for (std::size_t k = 0; k < kMaxLayerKinds; ++k) held[k] += stage.count * stage.layers[k];
        }
        for (const std::uint8_t kind : model.layer_kind) ++wanted[kind];
        wanted[model.layer_kind.back()] += model.mtp_layers;
        CHECK(held == wanted);
        CHECK(stages == pp);
        CHECK(embeddings == 1);
        CHECK(heads == 1);
        CHECK(layout.classes.front().first_index == 0);
      }
    }
  }
}

TEST_CASE("chunks differ by at most one layer") {
  DecoderShape shape = testing::dense_7b_shape();
  for (const int layers : {8, 30, 61, 96}) {
    shape.layers = layers;
    const Model model = make_decoder(shape);
    for (const int pp : {1, 2, 4, 8}) {
      const StageLayout layout = make_stage_layout(model, pp, 1, false);
      for (const StageClass& stage : layout.classes) {
        CHECK(stage.total_layers() >= layers / pp);
        CHECK(stage.total_layers() <= (layers + pp - 1) / pp);
      }
    }
  }
}

TEST_CASE("a remainder of layers spares the ends, which also hold embedding and head") {
  DecoderShape shape = testing::dense_7b_shape();
  shape.layers = 30;
  const StageLayout layout = make_stage_layout(make_decoder(shape), 4, 1, false);
  for (const StageClass& stage : layout.classes) {
    CHECK(stage.total_layers() == (stage.embedding || stage.head ? 7 : 8));
  }
}

TEST_CASE("DualPipe holds everything twice, stage i with stage pp - 1 - i") {
  for (const int pp : {2, 4, 8}) {
    const Model model = make_decoder(testing::gpt3_shape());
    const StageLayout layout = make_stage_layout(model, pp, 1, true);
    CHECK(layers_of(layout) == 2 * model.layers());
    int ends = 0;
    for (const StageClass& stage : layout.classes) {
      CHECK(stage.embedding == stage.head);
      ends += stage.head ? stage.count : 0;
    }
    CHECK(ends == 2);
  }
}

}  // namespace
}  // namespace scalemodel
