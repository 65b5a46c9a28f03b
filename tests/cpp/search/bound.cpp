// A lower bound is one: pruning rests on nothing else.
#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/space.hpp"
#include "support.hpp"

namespace scalemodel::testing {
namespace {

void check_bounded(const Estimate& bound, const Estimate& e) {
  CHECK(bound.step_time <= e.step_time);
  CHECK(bound.memory <= e.memory);
  CHECK(bound.energy <= e.energy);
  CHECK(bound.cost <= e.cost);
  CHECK(bound.tokens_per_s >= e.tokens_per_s);
  CHECK(bound.mfu_fraction >= e.mfu_fraction);
}

Freedom freedom_of(const std::vector<Strategy>& members) {
  Freedom freedom;
  for (const Strategy& s : members) {
    const bool gathers = gathers_parameters(s.sharding);
    freedom.shards_weights |= gathers;
    freedom.shards_gradients |= gathers || s.sharding == Sharding::zero2;
    freedom.offloads_weights |= s.offload_weights;
    freedom.offloads_activations |= s.offload_activations;
    freedom.offloads_optimizer |= s.offload_optimizer;
  }
  return freedom;
}

/// A strategy and others that differ from it in what `Freedom` speaks of.
std::vector<Strategy> siblings_of(const Strategy& first, Random& random) {
  std::vector<Strategy> members{first};
  for (int k = 0; k < 5; ++k) {
    Strategy s = first;
    s.sharding = random.pick_enum<Sharding>();
    s.shard_degree = static_cast<std::uint16_t>(random.pick({0, 1, 2, 4}));
    s.overlap_grad_reduce = random.pick_enum<OrDefault<OnOff>>();
    s.overlap_param_gather = random.pick_enum<OrDefault<OnOff>>();
    s.offload_weights = random.flip();
    s.offload_activations = random.flip();
    s.offload_optimizer = random.flip();
    members.push_back(s);
  }
  return members;
}

TEST_CASE("no strategy of a group beats the group's lower bound") {
  Random random(20);
  int checked = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 300; ++i) {
      const Strategy first = random_strategy(random);
      const std::vector<Strategy> members = siblings_of(first, random);
      q.tables.tabulate(first);
      const Degrees d = resolve_degrees(first, q.tables.cluster(), q.tables.task());
      if (is_illegal(evaluate(q.tables, first).verdict)) continue;
      const auto bound_by = [&](PipelineBound pipeline) {
        return lower_bound(q.tables, first, d, *q.tables.find_cell(first, d),
                           *q.tables.find_stages(first, d), freedom_of(members), pipeline);
      };
      const Estimate bound = bound_by(PipelineBound::critical_paths);
      const Estimate loose = bound_by(PipelineBound::one_stage);
      const Estimate loosest = bound_by(PipelineBound::busiest_stage);
      CHECK(loosest.step_time > Seconds{});
      CHECK(loosest.step_time <= (1 + 1e-12) * loose.step_time);
      CHECK(loose.step_time <= (1 + 1e-12) * bound.step_time);
      for (const Strategy& s : members) {
        const Estimate e = evaluate(q.tables, s);
        if (is_illegal(e.verdict) && e.verdict != Reason::offload) continue;
        INFO(q.name);
        check_bounded(bound, e);
        check_bounded(loose, e);
        check_bounded(loosest, e);
        ++checked;
      }
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("groups bounded one after the other are bounded as alone, and roughly no closer") {
  Random random(25);
  GroupBounds bounds;
  int checked = 0, near = 0, closer = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 100; ++i) {
      const Strategy point = random_strategy(random);
      q.tables.tabulate(point);
      if (is_illegal(evaluate(q.tables, point).verdict)) continue;
      const Degrees d = resolve_degrees(point, q.tables.cluster(), q.tables.task());
      bounds.start(q.tables, point, d);
      for (int k = 0; k < 4; ++k) {
        Strategy leader = joined(point, random_strategy(random));
        q.tables.tabulate(leader);
        if (is_illegal(evaluate(q.tables, leader).verdict)) continue;
        const Tabulated at = q.tables.tabulate(leader, d);
        bounds.set_cell(leader, *at.cell, *at.stages);
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          leader.recompute = recompute;
          const Freedom freedom = freedom_of(siblings_of(leader, random));
          bounds.set_group(leader, freedom);
          const Estimate rough = bounds.rough();
          INFO(q.name);
          for (const PipelineBound pipeline :
               {PipelineBound::critical_paths, PipelineBound::one_stage}) {
            const Estimate close = bounds.close(pipeline, Asked::all);
            Estimate alone =
                lower_bound(q.tables, leader, d, *at.cell, *at.stages, freedom, pipeline);
            alone.hfu_fraction = close.hfu_fraction;  // means nothing in a bound
            CHECK(close == alone);
            // Both are rounded.
            CHECK(rough.step_time <= (1 + 1e-12) * close.step_time);
            CHECK(rough.energy <= (1 + 1e-12) * close.energy);
            CHECK(rough.memory <= (1 + 1e-12) * close.memory);
            CHECK(rough.mfu_fraction >= (1 - 1e-12) * close.mfu_fraction);
          }
          // The passes of the busiest stage, and often what others take before and after them.
          const Estimate busiest = bounds.close(PipelineBound::busiest_stage, Asked::all);
          ++checked;
          if (rough.step_time / busiest.step_time > 0.999) ++near;
          if (rough.step_time / busiest.step_time > 1.001) ++closer;
        }
      }
    }
  }
  CHECK(checked > 1000);
  CHECK(near > checked / 2);
  CHECK(closer > checked / 10);
}

TEST_CASE("strategies evaluated after their siblings are estimated as alone") {
  Random random(24);
  SiblingEvaluator evaluator;
  int fit = 0, too_big = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 100; ++i) {
      const Strategy first = random_strategy(random);
      q.tables.tabulate(first);
      if (is_illegal(evaluate(q.tables, first).verdict)) continue;
      const Degrees d = resolve_degrees(first, q.tables.cluster(), q.tables.task());
      evaluator.start(q.tables, *q.tables.find_cell(first, d), *q.tables.find_stages(first, d));
      for (Strategy s : siblings_of(first, random)) {
        for (const bool offloads : {false, true}) {
          s.offload_optimizer = offloads;
          const Estimate alone = evaluate(q.tables, s);
          if (is_illegal(alone.verdict) && alone.verdict != Reason::offload) continue;
          INFO(q.name);
          const bool ok = alone.verdict == Reason::ok;
          // Where nothing but what fits is asked for, that of others is not worked out.
          const Estimate asked = evaluator(s, Asked::times_that_fit);
          CHECK(asked.verdict == alone.verdict);
          CHECK(asked.memory == alone.memory);
          if (ok) CHECK(asked == alone);
          CHECK(evaluator(s, Asked::all) == alone);
          ++(ok ? fit : too_big);
        }
      }
    }
  }
  CHECK(fit > 1000);
  CHECK(too_big > 100);
}

/// `e` without what takes the memory.
Estimate totals_of(Estimate e) {
  for (Bytes Estimate::* kind :
       {&Estimate::memory_weights, &Estimate::memory_gradients, &Estimate::memory_optimizer,
        &Estimate::memory_activations, &Estimate::memory_logits, &Estimate::memory_temporary,
        &Estimate::memory_communication, &Estimate::memory_gathered, &Estimate::memory_reserve,
        &Estimate::memory_allocated}) {
    e.*kind = Bytes{};
  }
  e.fullest_stage = 0;
  return e;
}

TEST_CASE("groups of a point evaluated one after the other are estimated as alone") {
  Random random(26);
  SiblingEvaluator evaluator;
  int fit = 0, too_big = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 40; ++i) {
      const Strategy point = random_strategy(random);
      bool started = false;
      for (int k = 0; k < 4; ++k) {
        const Strategy first = joined(point, random_strategy(random));
        q.tables.tabulate(first);
        if (is_illegal(evaluate(q.tables, first).verdict)) continue;
        const Degrees d = resolve_degrees(first, q.tables.cluster(), q.tables.task());
        const Cell& cell = *q.tables.find_cell(first, d);
        const StageLayout& stages = *q.tables.find_stages(first, d);
        if (started) {
          evaluator.start_group(cell, stages);
        } else {
          evaluator.start(q.tables, cell, stages);
        }
        started = true;
        for (const Strategy& s : siblings_of(first, random)) {
          const Estimate alone = evaluate(q.tables, s);
          if (is_illegal(alone.verdict) && alone.verdict != Reason::offload) continue;
          INFO(q.name);
          evaluator.set(s);
          for (const bool activations : {s.offload_activations, false}) {
            Strategy other = s;
            other.offload_activations = activations;
            evaluator.follow(other, Change::step);
            const Estimate own = evaluate(q.tables, other);
            CHECK(evaluator.fits() == own.verdict);
            CHECK(totals_of(evaluator.estimate(Asked::totals_that_fit)) == totals_of(own));
            CHECK(evaluator.estimate(Asked::all) == own);
            ++(own.verdict == Reason::ok ? fit : too_big);
          }
        }
      }
    }
  }
  CHECK(fit > 1000);
  CHECK(too_big > 100);
}

TEST_CASE("a bound by one stage needs no critical paths") {
  Tables tables(make_decoder(gpt3_shape()), reference_cluster(64), training(64, 2048),
                reference_stack());
  const Strategy s = degrees(8, 8);
  tables.tabulate(s);
  const Degrees d = resolve_degrees(s, tables.cluster(), tables.task());
  const Estimate bound =
      lower_bound(tables, s, d, *tables.find_cell(s, d), *tables.find_stages(s, d), freedom_of({s}),
                  PipelineBound::one_stage);
  const Estimate e = evaluate(tables, s);
  CHECK(bound.step_time <= e.step_time);
  CHECK(bound.step_time / e.step_time > 0.99);
}

TEST_CASE("a strategy without data parallelism or offload nearly reaches its bound") {
  Question q{"gpt3", Tables(make_decoder(gpt3_shape()), reference_cluster(64), training(64, 2048),
                            reference_stack())};
  Strategy s = degrees(8, 8);
  q.tables.tabulate(s);
  const Degrees d = resolve_degrees(s, q.tables.cluster(), q.tables.task());
  const Estimate e = evaluate(q.tables, s);
  const Estimate bound =
      lower_bound(q.tables, s, d, *q.tables.find_cell(s, d), *q.tables.find_stages(s, d),
                  freedom_of({s}), PipelineBound::critical_paths);
  CHECK(bound.step_time / e.step_time > 0.999);
  CHECK(bound.memory / e.memory > 0.999);
}

}  // namespace
}  // namespace scalemodel::testing
