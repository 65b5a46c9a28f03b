#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "bindings/serving_instance.hpp"
#include "scalemodel/power/cap.hpp"
#include "scalemodel/power/node.hpp"
#include "scalemodel/power/serving.hpp"
#include "scalemodel/serving/decode_load.hpp"
#include "scalemodel/serving/demand.hpp"

namespace scalemodel::bindings {

void bind_power(py::module_& m) {
  bind_record<ClockPower>(m, "How power follows the clock of an accelerator.");
  bind_record<StepPhases>(m, "Where the time of a step goes, by what limits it.");
  bind_record<CappedStep>(m, "A step under a power limit.");
  bind_record<ServingPower>(m, "Power of decoding, as fractions of the power limit.");
  bind_record<DecodeLoad>(m, "One decoding step of a model on some accelerators.");
  m.def(
      "instance_power_w",
      [](const Instance& instance, const RequestMix& mix, double sequences,
         const ServingPower& serving, const ServingPower& expert_serving, bool experts,
         bool narrow) {
        const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
        const double running = checked("sequences", sequences, 0, kMany);
        const Cluster& on = instance.pool ? instance.pool->cluster : instance.cluster;
        PoolLoad busy;
        if (instance.layout.has_expert_pool()) {
          instance.expect(mix);
          busy = instance.times.pools(Demand(mix).work(running));
        }
        return instance_power({instance.model, instance.cluster, instance.layout, instance.blocks,
                               capacity, experts, narrow},
                              mix, running, {instance.cluster.accelerator, serving},
                              {on.accelerator, expert_serving}, busy)
            .base();
      },
      py::arg("instance"), py::arg("mix"), py::arg("sequences"), py::kw_only(), py::arg("serving"),
      py::arg("expert_serving"), py::arg("experts"), py::arg("narrow"),
      "Mean watts of the accelerators of an instance, those of an expert pool among them.");
  m.def(
      "instance_price_usd_per_s",
      [](const ServingLayout& layout, const Cluster& cluster, const Cluster& expert_cluster) {
        return instance_price(layout, cluster.price, expert_cluster.price).base();
      },
      py::arg("layout"), py::arg("cluster"), py::arg("expert_cluster"),
      "Price of the accelerators of an instance; 0 where one of its clusters has none.");
  m.def(
      "step_under_cap",
      [](const PowerPhases& power, const ClockPower& clock, const StepPhases& phases,
         double cap_w) { return step_under_cap(power, clock, phases, Watts{cap_w}); },
      py::arg("power"), py::arg("clock"), py::arg("phases"), py::arg("cap_w"),
      "The step under a power limit of each accelerator, in watts.");
  m.def(
      "serving_power_w",
      [](const ServingPower& serving, double limit_w, const DecodeLoad& load) {
        return serving_power(serving, Watts{limit_w}, decode_activity(load, serving)).base();
      },
      py::arg("serving"), py::arg("limit_w"), py::arg("load"),
      "Mean watts of one accelerator that decodes.");
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
