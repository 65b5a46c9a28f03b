#include "scalemodel/serving/layout_times.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "scalemodel/search/serving_plans.hpp"
#include "serving_support.hpp"

using namespace scalemodel;
using namespace scalemodel::testing;

namespace {

std::vector<StepWork> steps_of_all_kinds() {
  std::vector<StepWork> steps;
  for (const double sequences : {0.0, 1.0, 7.0, 300.0}) {
    for (const double prompts : {0.0, 1.0, 3.0}) {
      StepWork work;
      work.sequences = sequences;
      work.context = 900;
      work.prompts = prompts;
      work.prompt_tokens = work.prompt_keys = 500 * prompts;
      steps.push_back(work);
      work.draft_tokens = 2;
      work.query_tokens = 3;
      steps.push_back(work);
    }
  }
  return steps;
}

/// Every layout in turn gives what it gives alone, to the last bit.
void check_all(const Model& model, const Engine& engine, const ServingKernels& kernels,
               const std::vector<ServingLayout>& layouts) {
  const Cluster cluster = reference_cluster(16);
  const Draft draft{};
  LayoutTimes all({model, cluster, engine, kernels, 0, 0, draft, nullptr});
  REQUIRE(layouts.size() > 4);
  for (const ServingLayout& layout : layouts) {
    const StepTimes alone(model, cluster, engine, kernels, layout, 0);
    const StepTimes& found = all.of(layout);
    REQUIRE(found.layout() == layout);
    for (const StepWork& work : steps_of_all_kinds()) {
      CHECK(found.of(work) == alone.of(work));
      CHECK(found.total(work) == alone.total(work));
    }
  }
}

}  // namespace

TEST_CASE("layouts that share their tables have the step times that each has alone") {
  const Cluster cluster = reference_cluster(16);
  Engine engine = reference_engine();
  engine.expert_spread = 1.5;
  ServingKernels kernels = reference_kernels();
  for (const DecoderShape& shape :
       {dense_7b_shape(), experts_8x7b_shape(), latent_experts_shape()}) {
    const Model model = make_decoder(shape);
    std::vector<ServingLayout> layouts = serving_layouts(model, cluster, 16);
    check_all(model, engine, kernels, layouts);
    std::ranges::reverse(layouts);
    check_all(model, engine, kernels, layouts);
    for (ServingLayout& layout : layouts) layout.two_batch_overlap = layout.ep > 1;
    check_all(model, engine, kernels, layouts);
  }
  kernels.experts_as_linear = true;
  engine.adapters.rank = 16;
  engine.adapters.count = engine.adapters.slots = 8;
  const Model routed = make_decoder(experts_8x7b_shape());
  check_all(routed, engine, kernels, serving_layouts(routed, cluster, 16));
}

TEST_CASE("an expert pool shares nothing with the layout before") {
  const Model model = make_decoder(experts_8x7b_shape());
  std::vector<ServingLayout> layouts;
  for (const int ep : {1, 2, 4}) {
    for (const int parts : {1, 2}) {
      ServingLayout layout;
      layout.dp = 2;
      layout.ep = static_cast<std::uint16_t>(ep);
      layout.expert_ranks = 4;
      layout.micro_batches = static_cast<std::uint16_t>(parts);
      layouts.push_back(layout);
    }
  }
  check_all(model, reference_engine(), reference_kernels(), layouts);
}
