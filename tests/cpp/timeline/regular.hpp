// Questions whose stages are equal, where closed form and timeline must agree.
#pragma once

#include <cmath>

#include "scalemodel/base/error.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
#include "scalemodel/schedule/pipeline.hpp"
#include "support.hpp"

namespace scalemodel::testing {

/// The questions of the support header with 48 equal layers and next to no vocabulary.
inline std::vector<Question> regular_questions() {
  std::vector<Question> regular;
  for (const Question& q : all_questions()) {
    Model model = q.tables.model();
    model.vocab = 64;
    model.embedding_parameters = 64.0 * model.hidden;
    if (model.head_parameters > 0) model.head_parameters = model.embedding_parameters;
    model.mtp_layers = 0;
    model.layer_kind.assign(48, model.layer_kind.back());
    // A fabric that is not oversubscribed: transfers between stages stay small beside the passes.
    Cluster cluster = q.tables.cluster();
    cluster.fabric.oversubscription = 1;
    Stack stack = q.tables.stack();
    stack.ends_as_layers = false;
    // Sending and receiving in turn is contention beyond what the closed form can say exactly.
    stack.serial_p2p = false;
    regular.push_back({q.name, Tables(model, cluster, q.tables.task(), stack)});
  }
  return regular;
}

/// Equal stages, and whole groups of micro-batches that fill the pipeline.
inline bool is_regular(const Strategy& s, const Estimate& e) {
  const int m = static_cast<int>(std::lround(e.micro_batches));
  if (48 % (s.pp * virtual_stages(s.schedule, s.pp, s.vpp)) != 0 || m < s.pp) return false;
  return effective_schedule(s.schedule, s.vpp) != Schedule::interleaved || m % s.pp == 0;
}

/// Calls `visit(question, strategy, estimate)` for `count` random regular strategies that
/// `wanted(strategy, estimate)` selects.
template <class Wanted, class Visit>
void for_regular_strategies(int count, std::uint64_t seed, Wanted&& wanted, Visit&& visit) {
  std::vector<Question> questions = regular_questions();
  Random random(seed);
  int seen = 0;
  for (int attempt = 0; seen < count && attempt < 2000 * count; ++attempt) {
    Question& question =
        questions[static_cast<std::size_t>(random.below(static_cast<int>(questions.size())))];
    const Strategy strategy = random_strategy(random);
    question.tables.tabulate(strategy);
    const Estimate e = evaluate(question.tables, strategy);
    if (!can_run(e) || !is_regular(strategy, e) || !wanted(strategy, e)) continue;
    ++seen;
    visit(question, strategy, e);
  }
  REQUIRE(seen == count);
}

}  // namespace scalemodel::testing
