#include "scalemodel/search/serving_plans.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

double tokens_per_accelerator(const ServingPlan& plan) {
  return plan.state.requests_per_s / plan.counted;
}

/// Smaller is better; ties are broken by the place in the enumeration.
double score(const ServingPlan& plan, ServingGoal goal) {
  switch (goal) {
    case ServingGoal::throughput:
      return -tokens_per_accelerator(plan);
    case ServingGoal::tpot:
      return plan.state.tpot.base();
    case ServingGoal::ttft:
      return plan.state.ttft.base();
    case ServingGoal::accelerators:
      return plan.accelerators();
  }
  return 0;
}

/// Among plans of as many accelerators the one with the shortest gap between tokens comes first.
bool better(const ServingPlan& a, const ServingPlan& b, ServingGoal goal) {
  const double x = score(a, goal), y = score(b, goal);
  if (x != y) return x < y;
  return a.state.tpot < b.state.tpot;
}

/// Keeps the plans that no other beats in both tokens per accelerator and time between tokens.
void keep_front(std::vector<ServingPlan>& plans) {
  std::ranges::stable_sort(plans, [](const ServingPlan& a, const ServingPlan& b) {
    if (a.state.tpot != b.state.tpot) return a.state.tpot < b.state.tpot;
    return tokens_per_accelerator(a) > tokens_per_accelerator(b);
  });
  double most = -1;
  std::erase_if(plans, [&](const ServingPlan& plan) {
    const double rate = tokens_per_accelerator(plan);
    if (rate <= most) return true;
    most = rate;
    return false;
  });
}

void keep_best(std::vector<ServingPlan>& plans, ServingGoal goal, std::size_t top) {
  std::ranges::stable_sort(
      plans, [goal](const ServingPlan& a, const ServingPlan& b) { return better(a, b, goal); });
  if (plans.size() > top) plans.resize(top);
}

/// Plans of one layout.
struct PlanPart {
  std::vector<ServingPlan> best, front;
  double plans = 0, feasible = 0;
};

bool within(const ServingPlan& plan, const ServingLimits& limits) {
  if (plan.state.concurrency <= 0) return false;
  if (limits.tpot > Seconds{} && plan.state.tpot > limits.tpot) return false;
  return limits.ttft <= Seconds{} || plan.state.ttft <= limits.ttft;
}

/// Adds the legal layouts of these degrees, the experts' ranks from few to many.
void add_layouts(std::vector<ServingLayout>& found, const Model& model, const Cluster& cluster,
                 ServingLayout layout) {
  const int stage = layout.stage_ranks();
  for (int ep = 1; ep <= (model.routed() ? stage : 1); ++ep) {
    if (stage % ep != 0) continue;
    layout.ep = static_cast<std::uint16_t>(ep);
    if (check_layout(model, layout, cluster) == Reason::ok) found.push_back(layout);
  }
}

}  // namespace

std::vector<ServingLayout> serving_layouts(const Model& model, const Cluster& cluster,
                                           int max_accelerators) {
  constexpr int kMaxPipelineStages = 8, kMaxContextRanks = 8, kMaxRanks = 65535;
  const int most = std::min({max_accelerators, cluster.accelerators, kMaxRanks});
  std::vector<ServingLayout> found;
  for (int tp = 1; tp <= most; tp *= 2) {
    for (int dp = 1; dp <= (model.routed() ? most : 1); dp *= 2) {
      for (int cp = 1; cp <= kMaxContextRanks; cp *= 2) {
        for (int pp = 1; pp <= kMaxPipelineStages; pp *= 2) {
          const std::int64_t ranks = std::int64_t{tp} * dp * cp * pp;
          if (ranks > most) continue;
          const auto degree = [](int value) { return static_cast<std::uint16_t>(value); };
          add_layouts(found, model, cluster, {degree(tp), degree(pp), 1, degree(dp), degree(cp)});
        }
      }
    }
  }
  return found;
}

ServingPlans search_serving(const ServingQuestion& question, const ServingChoices& choices,
                            const ServingLimits& limits, std::size_t top, int threads,
                            const Poll& poll) {
  const std::vector<ServingLayout>& layouts = choices.layouts;
  std::vector<PlanPart> parts(layouts.size());
  ThreadPool pool(threads, poll, layouts.size());
  const double patches = request_patches(question.model, question.mix);
  const RequestLengths lengths{question.mix.input, question.mix.output, patches};
  pool.run(layouts.size(), 1, [&](std::size_t worker, std::size_t item) {
    const ServingLayout& layout = layouts[item];
    PlanPart& part = parts[item];
    if (pool.stopped(worker) ||
        check_layout(question.model, layout, question.cluster,
                     question.pool ? &question.pool->cluster : nullptr) != Reason::ok ||
        check_draft(question.draft, layout, question.cluster) != Reason::ok)
      return;
    const StepTimes times(question.model, question.cluster, question.engine, question.kernels,
                          layout, question.imbalance, patches, question.draft, question.pool);
    const double counted = layout.attention_ranks() + question.expert_price * layout.expert_ranks;
    constexpr std::size_t kMaxKept = 4096;
    std::size_t front_room = kMaxKept;
    for (const double tokens : choices.batched_tokens) {
      Engine limited = question.engine;
      limited.max_batched_tokens = static_cast<int>(tokens);
      CacheCapacity capacity =
          cache_capacity(question.model, question.cluster, limited, question.kernels, layout,
                         lengths, question.draft, question.pool.get());
      double last = 0;
      for (int step = 0; last < capacity.max_running_sequences; ++step) {
        poll_point(16);
        last = std::min(std::exp2(static_cast<double>(step) / choices.per_octave),
                        capacity.max_running_sequences);
        ServingPlan plan{layout,
                         capacity.max_batched_tokens,
                         last,
                         1,
                         steady_state(times, capacity, question.mix, last),
                         counted,
                         item};
        part.plans += 1;
        if (limits.rate > 0 && plan.state.requests_per_s > 0) {
          plan.instances = std::ceil(limits.rate / plan.state.requests_per_s - 1e-9);
        }
        if (!within(plan, limits)) continue;
        part.feasible += 1;
        part.best.push_back(plan);
        part.front.push_back(plan);
        if (part.best.size() >= std::max(kMaxKept, 2 * top)) {
          keep_best(part.best, limits.goal, top);
        }
        if (part.front.size() >= front_room) {
          keep_front(part.front);
          // A front that stays long is looked through again once it has doubled.
          front_room = std::max(kMaxKept, 2 * part.front.size());
        }
      }
    }
    keep_best(part.best, limits.goal, top);
    keep_front(part.front);
    pool.add_done(1);
  });
  ServingPlans found;
  for (const PlanPart& part : parts) {
    found.best.insert(found.best.end(), part.best.begin(), part.best.end());
    found.front.insert(found.front.end(), part.front.begin(), part.front.end());
    found.plans += part.plans;
    found.feasible += part.feasible;
  }
  keep_best(found.best, limits.goal, top);
  keep_front(found.front);
  return found;
}

}  // namespace scalemodel
