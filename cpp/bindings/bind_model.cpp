#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel::bindings {

void bind_model(py::module_& m) {
  bind_record<DecoderShape>(m, "A transformer decoder as model cards describe it.");
  py::class_<Model>(m, "LayeredModel", "A model as layer groups.")
      .def(py::init(&make_decoder), py::arg("shape"))
      .def_property_readonly("parameters", &Model::parameters, "Parameters of the main stack.")
      .def_property_readonly("active_parameters", &Model::active_parameters,
                             "Parameters one token meets.")
      .def_property_readonly("layers", &Model::layers, "Transformer layers.")
      .def_property_readonly("hidden", [](const Model& model) { return model.hidden; })
      .def_property_readonly(
          "kinds", [](const Model& model) { return model.kinds.size(); },
          "Different kinds of layer.")
      .def(
          "layer_kind",
          [](const Model& model, int layer) {
            if (layer < 0 || layer >= model.layers()) {
              throw MalformedQuestion("layer=" + std::to_string(layer) + ": must be from 0 to " +
                                      std::to_string(model.layers() - 1));
            }
            return static_cast<int>(model.layer_kind[static_cast<std::size_t>(layer)]);
          },
          py::arg("layer"), "Kind of a layer, counted from 0.");
}

}  // namespace scalemodel::bindings
