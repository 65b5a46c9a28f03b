// One function per engine module; module.cpp calls them in the order of the house.
#pragma once

#include <pybind11/pybind11.h>

namespace scalemodel::bindings {

void bind_base(pybind11::module_& m);
void bind_hardware(pybind11::module_& m);
void bind_collectives(pybind11::module_& m);
void bind_ops(pybind11::module_& m);
void bind_calibration(pybind11::module_& m);
void bind_moe(pybind11::module_& m);
void bind_elementwise(pybind11::module_& m);
void bind_attention(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_strategy(pybind11::module_& m);
void bind_estimator(pybind11::module_& m);
void bind_timeline(pybind11::module_& m);
void bind_scheduler(pybind11::module_& m);
void bind_serving(pybind11::module_& m);
void bind_drafts(pybind11::module_& m);
void bind_post_training(pybind11::module_& m);
void bind_search(pybind11::module_& m);
void bind_fleet(pybind11::module_& m);
void bind_pareto(pybind11::module_& m);
void bind_fabric(pybind11::module_& m);
void bind_routing(pybind11::module_& m);
void bind_scaling(pybind11::module_& m);
void bind_power(pybind11::module_& m);
void bind_economics(pybind11::module_& m);
void bind_plans(pybind11::module_& m);
void bind_groups(pybind11::module_& m);
void bind_traffic(pybind11::module_& m);

}  // namespace scalemodel::bindings
