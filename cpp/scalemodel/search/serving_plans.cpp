#include "scalemodel/search/serving_plans.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/serving/closed_loop.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/layout_times.hpp"

namespace scalemodel {
namespace {

double tokens_per_accelerator(const ServingPlan& plan) {
  return plan.state.requests_per_s / plan.counted;
}

/// Smaller is better.
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

/// What plans are ordered by, the better first: among those of as many accelerators the one with
/// the shortest gap between tokens. Ties are broken by the place in the enumeration.
struct Merit {
  double score = 0;
  Seconds tpot;

  Merit(const ServingPlan& plan, ServingGoal goal)
      : score(scalemodel::score(plan, goal)), tpot(plan.state.tpot) {}
  bool operator<(const Merit& other) const {
    return score != other.score ? score < other.score : tpot < other.tpot;
  }
};

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
  std::ranges::stable_sort(plans, [goal](const ServingPlan& a, const ServingPlan& b) {
    return Merit(a, goal) < Merit(b, goal);
  });
  if (plans.size() > top) plans.resize(top);
}

/// What plans were found so far, to tell which others are worse than these.
class PlansFound {
 public:
  PlansFound(ServingGoal goal, std::size_t top) : goal_(goal), top_(top) {}

  /// Whether `top` of those found come before a plan, whatever its place.
  bool beyond_best(const ServingPlan& plan) const {
    return best_.size() == top_ && (top_ == 0 || best_.front() < Merit(plan, goal_));
  }
  /// Whether one of those found beats a plan in tokens or time between them, and is no worse in the
  /// other.
  bool behind_front(const ServingPlan& plan) const {
    const Pace pace = pace_of(plan);
    const auto after = std::ranges::upper_bound(front_, pace.tpot, {}, &Pace::tpot);
    if (after == front_.begin()) return false;
    const Pace& other = *std::prev(after);
    return other.rate > pace.rate || (other.rate == pace.rate && other.tpot < pace.tpot);
  }
  void add(const ServingPlan& plan) {
    if (!beyond_best(plan)) {
      best_.emplace_back(plan, goal_);
      std::push_heap(best_.begin(), best_.end());
      if (best_.size() > top_) {
        std::pop_heap(best_.begin(), best_.end());
        best_.pop_back();
      }
    }
    if (behind_front(plan)) return;
    const Pace pace = pace_of(plan);
    const auto first = std::ranges::lower_bound(front_, pace.tpot, {}, &Pace::tpot);
    auto last = first;
    while (last != front_.end() && last->rate <= pace.rate) ++last;
    front_.insert(front_.erase(first, last), pace);
  }

 private:
  struct Pace {
    Seconds tpot;
    double rate = 0;
  };
  static Pace pace_of(const ServingPlan& plan) {
    return {plan.state.tpot, tokens_per_accelerator(plan)};
  }

  ServingGoal goal_;
  std::size_t top_;
  std::vector<Merit> best_;  ///< a heap, its worst in front
  std::vector<Pace> front_;  ///< both grow
};

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

namespace {

/// What one worker of a search holds.
struct PlanWorker {
  LayoutTimes times;
  PlansFound found;
};

/// All plans of a layout, one limit of tokens per step after the other.
class LayoutSearch {
 public:
  LayoutSearch(const ServingQuestion& question, const ServingChoices& choices,
               const ServingLimits& limits, std::size_t top, double patches)
      : question_(question), choices_(choices), limits_(limits), top_(top), patches_(patches) {}

  PlanPart of(const ServingLayout& layout, PlanWorker& worker) const {
    PlanPart part;
    const RequestLengths lengths{question_.mix.input, question_.mix.output, patches_};
    std::size_t front_room = kMaxKept;
    for (const double tokens : choices_.batched_tokens) {
      Engine limited = question_.engine;
      limited.max_batched_tokens = static_cast<int>(tokens);
      const CacheCapacity capacity =
          cache_capacity(question_.model, question_.cluster, limited, question_.kernels, layout,
                         lengths, question_.draft, question_.pool.get());
      // Step times are asked for where there is room for a sequence: in few of many layouts.
      if (capacity.max_running_sequences > 0) {
        add_plans(part, worker, layout, capacity, front_room);
      }
    }
    keep_best(part.best, limits_.goal, top_);
    keep_front(part.front);
    return part;
  }

 private:
  static constexpr std::size_t kMaxKept = 4096;

  void add_plans(PlanPart& part, PlanWorker& worker, const ServingLayout& layout,
                 const CacheCapacity& capacity, std::size_t& front_room) const {
    const StepTimes& times = worker.times.of(layout);
    const Demand demand(question_.mix);
    const StepsOfMix steps(times, capacity, demand);
    const double counted = layout.attention_ranks() + question_.expert_price * layout.expert_ranks;
    double last = 0;
    for (int step = 0; last < capacity.max_running_sequences; ++step) {
      poll_point(16);
      last = std::min(std::exp2(static_cast<double>(step) / choices_.per_octave),
                      capacity.max_running_sequences);
      ServingPlan plan{layout, capacity.max_batched_tokens, last, 1, {}, counted};
      part.plans += 1;
      if (!judge(plan, steps, worker.found)) continue;
      part.feasible += 1;
      const bool best = !worker.found.beyond_best(plan), front = !worker.found.behind_front(plan);
      if (!best && !front) continue;
      worker.found.add(plan);
      if (best) part.best.push_back(plan);
      if (front) part.front.push_back(plan);
      if (part.best.size() >= std::max(kMaxKept, 2 * top_)) {
        keep_best(part.best, limits_.goal, top_);
      }
      if (part.front.size() >= front_room) {
        keep_front(part.front);
        // A front that stays long is looked through again once it has doubled.
        front_room = std::max(kMaxKept, 2 * part.front.size());
      }
    }
  }

  /// Whether a plan is within the limits. Its time to the first token is found where it decides on
  /// that, or where the plan may be an answer.
  bool judge(ServingPlan& plan, const StepsOfMix& steps, const PlansFound& found) const {
    const RequestMix& mix = question_.mix;
    if (mix.adaptive_drafts) {
      plan.state = steady_state(steps.times(), steps.capacity(), mix, plan.concurrency);
      count_instances(plan);
      return within(plan, limits_);
    }
    const ClosedLoopState kept = closed_loop_state(steps, plan.concurrency);
    plan.state = pace_of(steps, mix, kept);
    count_instances(plan);
    const bool asked = limits_.ttft > Seconds{};
    if (asked || !found.beyond_best(plan) || !found.behind_front(plan)) {
      add_first_token(plan.state, steps, kept);
    }
    return within(plan, limits_);
  }

  void count_instances(ServingPlan& plan) const {
    if (limits_.rate > 0 && plan.state.requests_per_s > 0) {
      plan.instances = std::ceil(limits_.rate / plan.state.requests_per_s - 1e-9);
    }
  }

  const ServingQuestion& question_;
  const ServingChoices& choices_;
  const ServingLimits& limits_;
  std::size_t top_;
  double patches_;
};

}  // namespace

ServingPlans search_serving(const ServingQuestion& question, const ServingChoices& choices,
                            const ServingLimits& limits, std::size_t top, int threads,
                            const Poll& poll) {
  const std::vector<ServingLayout>& layouts = choices.layouts;
  std::vector<PlanPart> parts(layouts.size());
  ThreadPool pool(threads, poll, layouts.size());
  const double patches = request_patches(question.model, question.mix);
  const LayoutSearch search(question, choices, limits, top, patches);
  const StepQuestion asked{question.model,     question.cluster, question.engine, question.kernels,
                           question.imbalance, patches,          question.draft,  question.pool};
  std::vector<PlanWorker> workers(static_cast<std::size_t>(pool.threads()),
                                  PlanWorker{LayoutTimes(asked), PlansFound(limits.goal, top)});
  pool.run(layouts.size(), 1, [&](std::size_t worker, std::size_t item) {
    const ServingLayout& layout = layouts[item];
    if (pool.stopped(worker) ||
        check_layout(question.model, layout, question.cluster,
                     question.pool ? &question.pool->cluster : nullptr) != Reason::ok ||
        check_draft(question.draft, layout, question.cluster) != Reason::ok)
      return;
    parts[item] = search.of(layout, workers[worker]);
    for (std::vector<ServingPlan>* plans : {&parts[item].best, &parts[item].front}) {
      for (ServingPlan& plan : *plans) plan.place = item;
    }
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
