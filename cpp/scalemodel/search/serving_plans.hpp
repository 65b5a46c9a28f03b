// The best serving plans: layouts, sizes of a step and sequences running, under limits of latency.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/search/thread_pool.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// What a plan is chosen by. `throughput`: output tokens per second and accelerator, of which those
/// of an expert pool count by their price;
/// `accelerators`: as few as carry the given rate of requests.
enum class ServingGoal : std::uint8_t { throughput, tpot, ttft, accelerators };

template <>
struct EnumNames<ServingGoal> {
  static constexpr std::string_view what = "serving goal";
  static constexpr std::array<std::string_view, 4> names{"throughput", "tpot", "ttft",
                                                         "accelerators"};
};

struct ServingLimits {
  ServingGoal goal = ServingGoal::throughput;
  Seconds ttft, tpot;  ///< at most; 0: no limit
  double rate = 0;     ///< requests per second that all instances together must carry; 0: any
};

/// One plan. Instances beyond the first are copies of it.
struct ServingPlan {
  ServingLayout layout;
  double max_batched_tokens = 0;  ///< tokens of a step, at most
  double concurrency = 0;         ///< sequences running in an instance
  double instances = 1;           ///< that carry the rate asked for
  SteadyState state;              ///< of one instance
  double counted = 1;             ///< accelerators of one, those of an expert pool by their price
  std::size_t place = 0;          ///< of its layout among those that were asked for

  double accelerators() const { return instances * layout.ranks(); }
  /// Of one instance, where answers are that long.
  double output_tokens_per_s_per_accelerator(double output_tokens) const {
    return state.requests_per_s * output_tokens / layout.ranks();
  }
};

struct ServingPlans {
  std::vector<ServingPlan> best;   ///< best first, at most as many as asked for
  std::vector<ServingPlan> front;  ///< no other plan is better in both tokens/s and TPOT
  double plans = 0;                ///< tried
  double feasible = 0;             ///< within the limits
};

/// Requests and what serves them.
struct ServingQuestion {
  const Model& model;
  const Cluster& cluster;
  const Engine& engine;
  const ServingKernels& kernels;
  RequestMix mix;
  double imbalance = 1;
  Draft draft = {};
  std::shared_ptr<const ExpertPool> pool = nullptr;  ///< as for StepTimes
  double expert_price = 1;  ///< of an accelerator of an expert pool, in those of the cluster
};

/// What plans are made of: a layout, a limit of tokens per step and a number of running sequences
/// from 1 to what the KV cache holds, `per_octave` of them per doubling.
struct ServingChoices {
  std::vector<ServingLayout> layouts;
  std::vector<double> batched_tokens;
  int per_octave = 1;
};

/// Legal layouts of an instance of no more accelerators than a number and the cluster has.
/// Degrees are powers of two, the experts' all divisors of a stage; pipelines stay within eight
/// stages, and prompts are sharded over at most eight ranks.
std::vector<ServingLayout> serving_layouts(const Model& model, const Cluster& cluster,
                                           int max_accelerators);

/// Tries every combination of the choices. Layouts that are not legal or leave no room are skipped.
/// The result does not depend on `threads`.
ServingPlans search_serving(const ServingQuestion& question, const ServingChoices& choices,
                            const ServingLimits& limits, std::size_t top, int threads,
                            const Poll& poll);

}  // namespace scalemodel
