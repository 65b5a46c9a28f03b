#include <pybind11/pybind11.h>

#include "bindings/bind.hpp"
#include "bindings/version.hpp"

PYBIND11_MODULE(_core, m) {
  using namespace scalemodel::bindings;
  m.doc() = "The scalemodel engine. Private: use the functions and types of `scalemodel`.";
  m.attr("__version__") = version();
  bind_base(m);
  bind_hardware(m);
  bind_fabric(m);
  bind_collectives(m);
  bind_ops(m);
  bind_calibration(m);
  bind_moe(m);
  bind_elementwise(m);
  bind_attention(m);
  bind_model(m);
  bind_strategy(m);
  bind_estimator(m);
  bind_timeline(m);
  bind_scheduler(m);
  bind_serving(m);
  bind_post_training(m);
  bind_search(m);
  bind_fleet(m);
  bind_pareto(m);
  bind_routing(m);
  bind_scaling(m);
  bind_power(m);
  bind_economics(m);
  bind_plans(m);
  bind_groups(m);
  bind_traffic(m);
}
