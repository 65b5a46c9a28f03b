#include "scalemodel/estimator/messages.hpp"

#include <map>
#include <vector>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("messages take the time of all communication, exposed or hidden") {
  testing::Random random(7);
  std::vector<testing::Question> questions = testing::all_questions();
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    Strategy s = testing::random_strategy(random);
    s.pp = s.vpp = 1;
    s.schedule = Schedule::one_f_one_b;
    s.offload_weights = s.offload_activations = s.offload_optimizer = false;
    testing::Question& question = questions[i % questions.size()];
    Tables& tables = question.tables;
    tables.tabulate(s);
    const Estimate e = evaluate(tables, s);
    const std::vector<StageMessage> messages = step_messages(tables, s);
    if (!testing::can_run(e)) {
      CHECK(messages.empty());
      continue;
    }
    // Copies and quantisation beside a collective are counted with it, and are no message.
    if (tables.stack().tensor_gathers && gathers_parameters(s.sharding)) continue;
    if (s.quantized_gather || s.quantized_reduce) continue;
    ++compared;
    Seconds spent;
    for (const StageMessage& each : messages) {
      spent += each.calls * each.periods * message_time(each.message, tables.cluster());
    }
    CAPTURE(question.name);
    CAPTURE(name_of(s.sharding));
    CAPTURE(s.tp);
    CAPTURE(s.cp);
    CAPTURE(s.ep);
    const Seconds counted = e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_dp + e.hidden;
    CHECK(spent.base() == Approx(counted.base()).epsilon(1e-9));
  }
  CHECK(compared > 50);
}

TEST_CASE("every stage sends what its layers take, and passes on what it computed") {
  testing::Random random(8);
  std::vector<testing::Question> questions = testing::all_questions();
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    const Strategy s = testing::random_strategy(random);
    Tables& tables = questions[i % questions.size()].tables;
    tables.tabulate(s);
    if (!testing::can_run(evaluate(tables, s))) continue;
    ++compared;
    std::map<int, double> hops, returns;
    for (const StageMessage& each : step_messages(tables, s)) {
      CHECK(each.calls > 0);
      CHECK(each.periods >= 1);
      CHECK(each.message.group.ranks > 1);
      CHECK(each.stage < s.pp);
      if (each.message.communicator != Communicator::pp) continue;
      (each.back ? returns : hops)[each.stage] += each.calls;
    }
    const bool mirrored = s.schedule == Schedule::dualpipe;
    if (traits_of(s.schedule).v_shape || mirrored) {
      // A micro-batch of DualPipe takes one of the two ways, all of a V both of them.
      const double each_way = mirrored ? 0.5 : 1;
      for (int stage = 0; s.pp > 1 && stage < s.pp; ++stage) {
        CHECK(hops[stage] == (stage + 1 < s.pp ? each_way : 0));
        CHECK(returns[stage] == (stage > 0 ? each_way : 0));
      }
      continue;
    }
    CHECK(returns.empty());
    for (int stage = 0; stage + 1 < s.pp; ++stage) CHECK(hops[stage] == s.vpp);
    if (s.pp > 1) CHECK(hops[s.pp - 1] == s.vpp - 1);
  }
  CHECK(compared > 50);
}

}  // namespace
}  // namespace scalemodel
