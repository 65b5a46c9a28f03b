#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel::bindings {

void bind_strategy(py::module_& m) {
  bind_record<Strategy>(m,
                        "How a model is laid out on a cluster. Keyword arguments only; zero means "
                        "derived where the field says so.");
  bind_record<Task>(m, "A training step.");
  bind_record<Stack>(m, "A software stack of an era.");
}

}  // namespace scalemodel::bindings
