// A small engine with round constants, for the tests of serving.
#pragma once

#include <vector>

#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/simulation.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"
#include "support.hpp"

namespace scalemodel::testing {

inline Engine reference_engine() {
  Engine e;
  e.step_host = 1 * unit::ms;
  e.sequence_host = 10 * unit::us;
  e.request_host = 5 * unit::ms;
  e.collective_wait = 20 * unit::us;
  e.reserve = 2 * unit::GiB;
  return e;
}

inline ServingKernels reference_kernels() {
  ServingKernels k;
  k.linear_format.peak = reference_accelerator().peak_of(Precision::bf16);
  k.prefill.launch = 10 * unit::us;
  k.prefill.step = 0.5 * unit::us;
  k.decode.launch = 7 * unit::us;
  k.decode.block = 0.9 * unit::us;
  k.experts.launch = 20 * unit::us;
  k.experts.compute_fraction = 0.6;
  k.experts.memory_fraction = 0.85;
  return k;
}

/// One instance and what the tests ask it for.
struct Instance {
  Model model;
  Cluster cluster;
  Engine engine;
  ServingKernels kernels;
  ServingLayout layout;
  RequestMix mix;
  StepTimes times;
  CacheBlocks blocks;
  CacheCapacity capacity;

  Instance(const DecoderShape& shape, int accelerators, const Engine& with,
           const ServingLayout& spread, const RequestMix& requests)
      : model(make_decoder(shape)),
        cluster(reference_cluster(accelerators)),
        engine(with),
        kernels(reference_kernels()),
        layout(spread),
        mix(requests),
        times(model, cluster, engine, kernels, layout, 1),
        blocks(model, engine, kernels, layout),
        capacity(cache_capacity(model, cluster, engine, kernels, layout,
                                {requests.input, requests.output})) {}
};

/// Requests of one length at random.
inline std::vector<Request> random_stream(int count, double rate, const RequestMix& mix,
                                          std::uint64_t seed) {
  std::vector<Request> requests;
  double now = 0;
  std::uint64_t state = seed;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double uniform = (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
    now -= std::log(uniform) / rate;
    requests.push_back({Seconds{now}, mix.input, mix.output, false});
  }
  return requests;
}

}  // namespace scalemodel::testing
