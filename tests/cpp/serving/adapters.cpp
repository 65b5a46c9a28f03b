#include "scalemodel/serving/adapters.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "serving_support.hpp"

namespace scalemodel::testing {
namespace {

Adapters adapters(int count, int rank, int slots = 0, LoraTargets targets = LoraTargets::all) {
  return {count, rank, targets, slots};
}

StepTimes times_of(const DecoderShape& shape, const Adapters& with,
                   const ServingLayout& layout = {}) {
  Engine engine = reference_engine();
  engine.adapters = with;
  return {make_decoder(shape), reference_cluster(8), engine, reference_kernels(), layout, 1};
}

StepWork decoded_with(double sequences) {
  StepWork work;
  work.sequences = sequences;
  work.context = 500;
  return work;
}

/// A step of one sequence beside `count` adapters, on accelerators of 100 multiprocessors.
Seconds one_sequence(Engine engine, int count) {
  engine.adapters = adapters(count, 16);
  Cluster cluster = reference_cluster(8);
  cluster.accelerator.multiprocessors = 100;
  const StepTimes times{
      make_decoder(dense_7b_shape()), cluster, engine, reference_kernels(), {}, 1};
  return times.total(decoded_with(1));
}

}  // namespace

TEST_CASE("by hand: bytes of an adapter of a model of seven billion parameters") {
  // Rank 16: queries, keys, values and output 4 x 16 (4096 + 4096), gate and up 2 x 16 (4096 +
  // 11008), down 16 (11008 + 4096), in 32 layers and 16 bits.
  const Model model = make_decoder(dense_7b_shape());
  const double attention = 4 * 16.0 * 8192, mlp = 3 * 16.0 * (4096 + 11008);
  CHECK(adapter_bytes(model, adapters(1, 16), {}).base() == Approx(2 * 32 * (attention + mlp)));
  const Adapters narrow = adapters(1, 16, 0, LoraTargets::attention);
  CHECK(adapter_bytes(model, narrow, {}).base() == Approx(2 * 32 * attention));
  CHECK(adapter_bytes(model, adapters(0, 16), {}) == Bytes{});
  // Over two ranks, columns of B of four matrices and rows of A of two are halved.
  const double two = 16.0 * (3 * (4096 + 2048) + 2048 + 4096 + 2 * (4096 + 5504) + 5504 + 4096);
  CHECK(adapter_bytes(model, adapters(1, 16), {2}).base() == Approx(2 * 32 * two));
}

TEST_CASE("requests meet as many adapters as there are, slots and chance allow") {
  CHECK(distinct_adapters(adapters(1, 16), 100) == 1);
  CHECK(distinct_adapters(adapters(8, 16), 1) == Approx(1));
  CHECK(distinct_adapters(adapters(8, 16), 2) == Approx(2 - 1.0 / 8));
  CHECK(distinct_adapters(adapters(8, 16), 1e4) == Approx(8));
  CHECK(distinct_adapters(adapters(64, 16, 8), 1e4) == 8);
}

TEST_CASE("by hand: thread blocks of the adapters of a GEMM") {
  // 67 of 67 tokens, three slices of at most 4096 columns: three tiles of rows, 64 parts of depth.
  const AdapterBlocks slot = adapter_blocks(67, 67, 16, 3, 4096, 4096);
  CHECK(slot.shrink == 3 * 64 * 3);
  CHECK(slot.expand == 3 * 2 * 32);
  CHECK(slot.shrink_passes == 1);  // 64 of 4096 at once
  // One of them: one tile each. Of many tokens the depth is split less, into eight parts of which
  // a block takes 32 at once; a rank of 24 takes two tiles.
  CHECK(adapter_blocks(1, 67, 16, 3, 4096, 4096).shrink == 3 * 64);
  CHECK(adapter_blocks(1, 67, 16, 3, 4096, 4096).expand == 3 * 32);
  CHECK(adapter_blocks(128, 128, 24, 1, 14336, 100).shrink == 8 * 4 * 2);
  CHECK(adapter_blocks(128, 128, 24, 1, 14336, 100).expand == 2);
  CHECK(adapter_blocks(128, 128, 24, 1, 14336, 100).shrink_passes == 56);
}

TEST_CASE("the widest slice is that of queries, or half of a gate and an up projection") {
  const Model model = make_decoder(dense_7b_shape());
  double widest = 0, columns = 0;
  for (const Unit& unit : model.kinds.front().units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind != OperatorKind::gemm || !op.is_gate_and_up()) continue;
      widest = widest_slice(op, 2);
      columns = op.local_columns(2);
    }
  }
  CHECK(widest == Approx(11008.0 / 2));
  CHECK(columns == Approx(11008.0));
}

TEST_CASE("blocks without tokens cost time with the slots, and only where they are launched") {
  const auto step = [](int slots, Seconds idle) {
    Engine engine = reference_engine();
    engine.idle_adapter_block = idle;
    return one_sequence(engine, slots);
  };
  const Seconds few = step(8, 1 * unit::us) - step(8, Seconds{});
  const Seconds many = step(64, 1 * unit::us) - step(64, Seconds{});
  CHECK(few > Seconds{});
  CHECK(many / few == Approx(63.0 / 7));  // all but the one that is asked for
}

TEST_CASE(
    "slots are filled before the cache; the load of an absent adapter crosses the host link") {
  const Model model = make_decoder(dense_7b_shape());
  const Cluster cluster = reference_cluster(1);
  Engine engine = reference_engine();
  const auto weights = [&](const Adapters& with) {
    engine.adapters = with;
    return cache_capacity(model, cluster, engine, reference_kernels(), {}, {1000, 100}).weights;
  };
  const Bytes one = adapter_bytes(model, adapters(1, 16), {});
  const Bytes none = weights({});
  CHECK((weights(adapters(8, 16)) - none) / one == Approx(8));
  CHECK((weights(adapters(64, 16, 8)) - none) / one == Approx(8));
  CHECK((weights(adapters(8, 16, 64)) - none) / one == Approx(64));  // empty ones are allocated too
  const BytesPerSecond link = 32 * unit::GB / unit::s;
  CHECK(adapter_load_time(model, adapters(8, 16), {}, link, Seconds{}) == Seconds{});
  const Seconds bytes_alone = adapter_load_time(model, adapters(32, 16, 8), {}, link, Seconds{});
  CHECK(bytes_alone / (one / link) == Approx(0.75));
  // A and B of seven matrices in 32 layers: copies that take longer to start than to run.
  CHECK(adapter_matrices(model, adapters(8, 16), {}) == Approx(2 * 7 * 32));
  const Seconds started = adapter_load_time(model, adapters(32, 16, 8), {}, link, 20 * unit::us);
  CHECK(started / unit::us == Approx(0.75 * 2 * 7 * 32 * 20));
}

TEST_CASE("by hand: kernels of adapters whose thread blocks are counted") {
  const auto step = [](Seconds launch, Seconds block, Seconds pass) {
    Engine engine = reference_engine();
    engine.adapter_kernel = 1 * unit::us;
    engine.adapter_launch = launch;
    engine.adapter_block = block;
    engine.adapter_pass = pass;
    return one_sequence(engine, 1);
  };
  const Seconds block = 1 * unit::ms, launch = 5 * unit::us;  // longer than any GEMM
  const Seconds plain = step(launch, block, Seconds{});
  // Two kernels each of queries, keys and values, of the output, of gate and up, and of down.
  const Seconds later = step(launch + launch, block, Seconds{});
  CHECK((later - plain) / unit::us == Approx(32 * 8 * 5));
  // One token: 64 parts of each depth and, of the widths, 3 x 32, 32, 2 x 86 and 32 parts; a pass.
  const double blocks = 64 * (3 + 1 + 2 + 1) + (3 * 32 + 32 + 2 * 86 + 32);
  const Seconds passed = step(launch, block, 10 * unit::us);
  CHECK((passed - plain) / unit::us == Approx(32 * blocks * 10 / 100));
}

TEST_CASE("without adapters a step is the same to the last bit, with any it takes longer") {
  for (const DecoderShape& shape : {dense_7b_shape(), experts_8x7b_shape()}) {
    const StepTimes none = times_of(shape, adapters(0, 64, 4));
    const StepTimes plain(make_decoder(shape), reference_cluster(8), reference_engine(),
                          reference_kernels(), {}, 1);
    for (const double sequences : {1.0, 7.0, 64.0, 1000.0}) {
      const StepWork work = decoded_with(sequences);
      CHECK(none.total(work) == plain.total(work));
      Seconds last = plain.total(work);
      for (const int count : {1, 4, 64}) {
        const Seconds now = times_of(shape, adapters(count, 16)).total(work);
        CHECK(now >= last * (1 - 1e-12));
        last = now;
      }
      CHECK(last > plain.total(work));
      CHECK(times_of(shape, adapters(64, 64)).total(work) > last);
      CHECK(times_of(shape, adapters(64, 16, 0, LoraTargets::attention)).total(work) < last);
    }
  }
}

TEST_CASE("the causes of a step with adapters still sum to its time") {
  const StepTimes times = times_of(experts_8x7b_shape(), adapters(32, 16, 8), {2, 1, 4, 2, 1});
  StepWork work = decoded_with(100);
  work.prompts = 2;
  work.prompt_tokens = work.prompt_keys = 1000;
  const StepTime t = times.of(work);
  const Seconds sum = t.linear + t.experts + t.elementwise + t.prefill_attention +
                      t.decode_attention + t.head + t.draft + t.tp + t.ep + t.cp + t.pp + t.host;
  CHECK(sum / t.total == Approx(1));
}

}  // namespace scalemodel::testing
