// A lower bound is one: pruning rests on nothing else.
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

TEST_CASE("no strategy of a group beats the group's lower bound") {
  Random random(20);
  int checked = 0;
  for (Question& q : all_questions()) {
    for (int i = 0; i < 300; ++i) {
      const Strategy first = random_strategy(random);
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
      q.tables.tabulate(first);
      const Degrees d = resolve_degrees(first, q.tables.cluster(), q.tables.task());
      if (is_illegal(evaluate(q.tables, first).verdict)) continue;
      const auto bound_by = [&](PipelineBound pipeline) {
        return lower_bound(q.tables, first, d, *q.tables.find_cell(first, d),
                           *q.tables.find_stages(first, d), freedom_of(members), pipeline);
      };
      const Estimate bound = bound_by(PipelineBound::critical_paths);
      const Estimate loose = bound_by(PipelineBound::one_stage);
      CHECK(loose.step_time > Seconds{});
      CHECK(loose.step_time <= (1 + 1e-12) * bound.step_time);
      for (const Strategy& s : members) {
        const Estimate e = evaluate(q.tables, s);
        if (is_illegal(e.verdict) && e.verdict != Reason::offload) continue;
        INFO(q.name);
        check_bounded(bound, e);
        check_bounded(loose, e);
        ++checked;
      }
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("a bound by one stage needs no critical paths") {
  Tables tables(make_decoder(gpt3_shape()), reference_cluster(64), training(64, 2048),
                reference_stack());
  const Strategy s = degrees(8, 8);
  tables.tabulate_bound(s);
  const Degrees d = resolve_degrees(s, tables.cluster(), tables.task());
  const Estimate bound =
      lower_bound(tables, s, d, *tables.find_cell(s, d), *tables.find_stages(s, d), freedom_of({s}),
                  PipelineBound::one_stage);
  tables.tabulate(s);
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
