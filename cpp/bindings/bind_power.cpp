#include <algorithm>

#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "bindings/serving_instance.hpp"
#include "scalemodel/power/cap.hpp"
#include "scalemodel/power/node.hpp"
#include "scalemodel/power/serving.hpp"
#include "scalemodel/serving/decode_load.hpp"

namespace scalemodel::bindings {

void bind_power(py::module_& m) {
  bind_record<ClockPower>(m, "How power follows the clock of an accelerator.");
  bind_record<StepPhases>(m, "Where the time of a step goes, by what limits it.");
  bind_record<CappedStep>(m, "A step under a power limit.");
  bind_record<ServingPower>(m, "Power of decoding, as fractions of the power limit.");
  bind_record<DecodeLoad>(m, "One decoding step of a model on some accelerators.");
  m.def(
      "decode_load",
      [](const Instance& instance, const RequestMix& mix, double sequences, bool experts,
         bool narrow) {
        const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
        return decode_load({instance.model, instance.cluster, instance.layout, instance.blocks,
                            capacity, experts, narrow},
                           mix, checked("sequences", sequences, 0, kMany));
      },
      py::arg("instance"), py::arg("mix"), py::arg("sequences"), py::kw_only(), py::arg("experts"),
      py::arg("narrow"), "A step of running sequences, as the law of serving power knows it.");
  m.def(
      "expert_pool_load",
      [](const Instance& instance, const RequestMix& mix, double sequences, bool narrow) {
        const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
        const Cluster& on = instance.pool ? instance.pool->cluster : instance.cluster;
        return expert_pool_load({instance.model, instance.cluster, instance.layout, instance.blocks,
                                 capacity, true, narrow},
                                on.accelerator, checked("sequences", sequences, 0, kMany));
      },
      py::arg("instance"), py::arg("mix"), py::arg("sequences"), py::kw_only(), py::arg("narrow"),
      "The same of the pool that holds the experts of an instance alone.");
  m.def(
      "step_under_cap",
      [](const PowerPhases& power, const ClockPower& clock, const StepPhases& phases,
         double cap_w) { return step_under_cap(power, clock, phases, Watts{cap_w}); },
      py::arg("power"), py::arg("clock"), py::arg("phases"), py::arg("cap_w"),
      "The step under a power limit of each accelerator, in watts.");
  m.def(
      "serving_power_w",
      [](const ServingPower& serving, double limit_w, const DecodeLoad& load, double busy) {
        DecodeActivity activity = decode_activity(load, serving);
        activity.busy_fraction = std::min(activity.busy_fraction, busy);
        return serving_power(serving, Watts{limit_w}, activity).base();
      },
      py::arg("serving"), py::arg("limit_w"), py::arg("load"), py::arg("busy_fraction") = 1.0,
      "Mean watts of one accelerator that decodes, at most this share of the time.");
  m.def(
      "decode_activity",
      [](const ServingPower& serving, const DecodeLoad& load) {
        const DecodeActivity activity = decode_activity(load, serving);
        return py::make_tuple(activity.busy_fraction, activity.density_fraction);
      },
      py::arg("serving"), py::arg("load"), "Busy share and density of a decoding step.");
  m.def(
      "trend_cache_bytes",
      [](double active_parameters) { return cache_per_token(active_parameters).base(); },
      py::arg("active_parameters"), "Usual keys and values of one token, of models of that size.");
  m.def(
      "node_power_w",
      [](double accelerator_w, double accelerators, double host_w) {
        return node_power(Watts{accelerator_w}, accelerators, Watts{host_w}).base();
      },
      py::arg("accelerator_w"), py::arg("accelerators"), py::arg("host_w"), "Watts of a node.");
  m.def(
      "mean_over_run_w",
      [](double working_w, double working_s, double idle_w, double idle_s) {
        return mean_over_run(Watts{working_w}, Seconds{working_s}, Watts{idle_w}, Seconds{idle_s})
            .base();
      },
      py::arg("working_w"), py::arg("working_s"), py::arg("idle_w"), py::arg("idle_s"),
      "Mean watts of a run that is idle for a part of its time.");
}

}  // namespace scalemodel::bindings
