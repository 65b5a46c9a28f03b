// Answers that follow a grammar: masks before the step or beside it, and their grammars.
#include "scalemodel/serving/guided.hpp"

#include <doctest/doctest.h>

#include "serving_support.hpp"

namespace scalemodel::testing {
namespace {

constexpr Seconds kMask = 40 * unit::us;

Engine guided_engine(double fraction, bool overlaps, Seconds mask = kMask) {
  Engine engine = reference_engine();
  engine.guided = {fraction, mask, {}, {}, {}};
  engine.overlaps_masks = engine.overlaps_draft_masks = overlaps;
  return engine;
}

StepTimes times_of(const Engine& engine, const ServingLayout& layout = {}) {
  return {
      make_decoder(dense_7b_shape()), reference_cluster(8), engine, reference_kernels(), layout, 1};
}

StepWork decoded(double sequences) {
  StepWork work;
  work.sequences = sequences;
  work.context = 500;
  return work;
}

/// What the same step takes on the accelerator alone, masks applied.
Seconds device(const StepTimes& times, const StepWork& work) {
  const StepTime time = times.of(work);
  return time.total - time.host;
}

}  // namespace

TEST_CASE("without guided requests a step is the same to the last bit") {
  for (const bool overlaps : {false, true}) {
    const StepTimes none = times_of(guided_engine(0, overlaps)),
                    plain = times_of(reference_engine());
    for (const double sequences : {1.0, 7.0, 64.0, 1000.0}) {
      CHECK(none.total(decoded(sequences)) == plain.total(decoded(sequences)));
    }
    CHECK(none.is_plain());
    CHECK_FALSE(times_of(guided_engine(0.1, overlaps)).is_plain());
  }
}

TEST_CASE("by hand: masks before a step, one for every guided sequence, and their way there") {
  const double sequences = 100, vocab = dense_7b_shape().vocab;
  const Seconds copy = Bytes{vocab / 8} / reference_accelerator().host_bandwidth;
  for (const double fraction : {0.25, 1.0}) {
    const StepTimes guided = times_of(guided_engine(fraction, false));
    const StepTimes plain = times_of(reference_engine());
    const Seconds more = guided.of(decoded(sequences)).host - plain.of(decoded(sequences)).host;
    CHECK(more / (fraction * sequences * (kMask + copy)) == Approx(1));
    // On the accelerator: 4 bytes of a logit read and written, and a bit.
    const Seconds applied = device(guided, decoded(sequences)) - device(plain, decoded(sequences));
    const double bytes = fraction * sequences * vocab * (8 + 1 / 8.0);
    CHECK(applied > Bytes{bytes} / reference_accelerator().memory_bandwidth);
    CHECK(applied < 2 * (Bytes{bytes} / reference_accelerator().memory_bandwidth) + 10 * unit::us);
  }
}

TEST_CASE("masks beside a step show as far as they take longer than it") {
  const StepTimes plain = times_of(reference_engine());
  for (const double sequences : {1.0, 64.0, 1000.0}) {
    const StepWork work = decoded(sequences);
    const StepTimes hidden = times_of(guided_engine(1, true, 1 * unit::us));
    CHECK(hidden.of(work).host / plain.of(work).host == Approx(1));
    const StepTimes longer = times_of(guided_engine(1, true, 1 * unit::ms));
    const Seconds left = longer.of(work).host - plain.of(work).host;
    const Seconds masks =
        times_of(guided_engine(1, false, 1 * unit::ms)).of(work).host - plain.of(work).host;
    const Seconds shown = max(Seconds{}, masks - device(longer, work));
    CHECK(left / unit::us == Approx(shown / unit::us));
  }
}

TEST_CASE("tokens are taken in before the next step, where it is not on its way") {
  const StepWork work = decoded(64);
  const Seconds plain = times_of(reference_engine()).of(work).host;
  for (const bool overlaps : {false, true}) {
    Engine engine = guided_engine(0.5, overlaps, 1 * unit::us);
    const Seconds before = times_of(engine).of(work).host;
    engine.guided.advance = 0.75 * unit::us;
    const Seconds after = times_of(engine).of(work).host;
    CHECK((after - before) / unit::us == Approx(overlaps ? 32 * 0.75 : 0));
    CHECK(after >= plain);
  }
}

TEST_CASE("where the step hides its CPU overhead, masks take part of the room") {
  Engine engine = guided_engine(1, true);
  engine.guided.advance = 10 * unit::us;
  engine.overlaps_host = true;
  const StepWork work = decoded(64);
  const StepTimes beside = times_of(engine);
  CHECK(beside.of(work).host / (64 * engine.sequence_host) == Approx(1));
  engine.step_host = device(beside, work);  // nothing is left of the room
  const double copies =
      64 * (mask_bytes(dense_7b_shape().vocab) / reference_accelerator().host_bandwidth / unit::us);
  CHECK((times_of(engine).of(work).host - 64 * engine.sequence_host) / unit::us ==
        Approx(64 * 40 + copies));
}

TEST_CASE("masks of steps that are scheduled ahead may wait for the tokens of all sequences") {
  Engine engine = guided_engine(0.01, true, 1 * unit::us);
  engine.overlaps_host = true;
  engine.step_host = Seconds{};
  engine.sequence_host = 1 * unit::ms;  // the accelerator has no lead
  const StepWork work = decoded(64);
  const Seconds before = times_of(engine).of(work).host;
  engine.guided.update = 10 * unit::us;
  CHECK((times_of(engine).of(work).host - before) / unit::us == Approx(640));
  engine.sequence_host = Seconds{};  // and here all that it needs
  CHECK(times_of(engine).of(work).host == Seconds{});
  engine.overlaps_host = false;
  CHECK(times_of(engine).of(work).host / unit::us == Approx(0));
}

TEST_CASE("drafts have masks of their own, ranks of data-parallel attention share them") {
  StepWork work = decoded(64);
  const Seconds plain = times_of(reference_engine()).of(work).host;
  const Seconds one = times_of(guided_engine(1, false)).of(work).host - plain;
  const Seconds shared = times_of(guided_engine(1, false), {1, 1, 1, 4}).of(work).host -
                         times_of(reference_engine(), {1, 1, 1, 4}).of(work).host;
  CHECK(shared / one == Approx(0.25));
  work.query_tokens = 3;
  work.draft_tokens = 2;
  CHECK((times_of(guided_engine(1, false)).of(work).host - plain) / one == Approx(3));
}

TEST_CASE("a grammar that is compiled makes its request wait, or the step that takes it in") {
  Engine engine = guided_engine(0.5, true);
  engine.guided.compile = 100 * unit::ms;
  CHECK((times_of(engine).engine().request_host - engine.request_host) / unit::ms == Approx(50));
  StepWork work = decoded(8);
  work.prompts = 1;
  work.prompt_tokens = work.prompt_keys = 500;
  const Seconds apart = times_of(engine).total(work);
  engine.compiles_apart = false;
  CHECK(times_of(engine).engine().request_host == engine.request_host);
  CHECK((times_of(engine).total(work) - apart) / unit::ms == Approx(50));
}

}  // namespace scalemodel::testing
