#include "bindings/bind.hpp"
#include "bindings/casters.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/reason.hpp"

namespace py = pybind11;

namespace scalemodel::bindings {
namespace {

void raise_scale_model_error(const MalformedQuestion& error) {
  const py::object type = py::module_::import("scalemodel.base.errors").attr("ScaleModelError");
  PyErr_SetObject(type.ptr(), py::str(error.what()).ptr());
}

template <class E>
py::tuple names() {
  py::tuple tuple(EnumNames<E>::names.size());
  for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
    const std::string_view name = EnumNames<E>::names[i];
    tuple[i] = py::str(name.data(), name.size());
  }
  return tuple;
}

}  // namespace

void bind_base(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const MalformedQuestion& error) {
      raise_scale_model_error(error);
    }
  });
  m.def("reasons", &names<Reason>, "Every reason code, in the order of the engine.");
  m.def("precisions", &names<Precision>, "Every precision, in the order of peak rates.");
}

}  // namespace scalemodel::bindings
