// A serving instance as Python holds it, and streams of requests as it hands them over.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/expert_pool.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/serving/replica.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel::bindings {

inline constexpr double kMany = 1e9;

/// One instance, tabulated.
struct Instance {
  Instance(Model served, const Cluster& on, const Engine& with,
           const ServingKernels& kernel_constants, const ServingLayout& spread, double imbalance,
           double patches_of_image, Draft proposing,
           std::shared_ptr<const ExpertPool> experts = nullptr)
      : model(std::move(served)),
        cluster(on),
        engine(with),
        kernels(kernel_constants),
        layout(spread),
        image_patches(patches_of_image),
        draft(std::move(proposing)),
        pool(std::move(experts)),
        times(model, on, with, kernel_constants, spread, imbalance, patches_of_image, draft, pool),
        blocks(model, with, kernel_constants, spread, draft,
               model.encoder.present() ? patches_of_image : 0) {}

  Model model;
  Cluster cluster;
  Engine engine;
  ServingKernels kernels;
  ServingLayout layout;
  double image_patches;  ///< of an image of its requests, or of a source; 0: these have none
  Draft draft;
  std::shared_ptr<const ExpertPool> pool;  ///< null: experts lie on the same cluster
  StepTimes times;
  CacheBlocks blocks;

  CacheCapacity capacity(double input, double output) const {
    return cache_capacity(model, cluster, engine, kernels, layout, {input, output, image_patches},
                          draft, pool.get());
  }
  /// Throws where requests have other images than the instance was made for.
  void expect(const RequestMix& mix) const {
    if (request_patches(model, mix) == image_patches) return;
    throw MalformedQuestion(
        "images, source_tokens: must be of the size that the instance was made for");
  }
};

inline double checked(const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return value;
  std::string message(name);
  throw MalformedQuestion(message.append("=")
                              .append(text_of(value))
                              .append(": must be a number from ")
                              .append(text_of(low))
                              .append(" to ")
                              .append(text_of(high)));
}

inline std::vector<Request> stream_of(const NumberColumn& arrivals, const NumberColumn& input,
                                      const NumberColumn& output, bool prefilled) {
  const py::ssize_t rows = arrivals.size();
  if (arrivals.ndim() != 1 || input.ndim() != 1 || output.ndim() != 1 || input.size() != rows ||
      output.size() != rows) {
    throw MalformedQuestion("arrival_s, input_tokens, output_tokens: must be equally long columns");
  }
  std::vector<Request> requests;
  requests.reserve(static_cast<std::size_t>(rows));
  double last = 0;
  for (py::ssize_t i = 0; i < rows; ++i) {
    poll_point();
    const double arrival = checked("arrival_s", arrivals.data()[i], last, kMany);
    last = arrival;
    requests.push_back({Seconds{arrival}, checked("input_tokens", input.data()[i], 1, kMany),
                        checked("output_tokens", output.data()[i], 1, kMany), prefilled});
  }
  return requests;
}

}  // namespace scalemodel::bindings
