#include <optional>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/scalar_head.hpp"
#include "scalemodel/model/vision.hpp"

namespace scalemodel::bindings {

void bind_model(py::module_& m) {
  bind_record<DecoderShape>(m, "A transformer decoder as model cards describe it.");
  bind_record<VisionShape>(m, "A vision tower as configurations describe it.");
  m.def(
      "check_vision",
      [](const VisionShape& shape, int hidden) { make_vision_tower(shape, hidden); },
      py::arg("shape"), py::arg("hidden"),
      "Raises where no tower of that shape can stand before a decoder `hidden` wide.");
  py::class_<Model>(m, "LayeredModel", "A model as layer groups.")
      .def(py::init([](const DecoderShape& shape, const std::optional<VisionShape>& vision) {
             Model model = make_decoder(shape);
             return vision ? with_vision(std::move(model), *vision) : model;
           }),
           py::arg("shape"), py::arg("vision") = std::nullopt)
      .def("with_scalar_head", &with_scalar_head, "One score in place of words, for rewards.")
      .def_property_readonly(
          "vision_parameters",
          [](const Model& model) {
            const bool apart = model.reads_images_apart();
            const VisionTower& tower = apart ? model.encoder : model.vision;
            return tower.present() ? tower.parameters() : 0.0;
          },
          "Parameters of the vision tower and its projector.")
      .def(
          "image_tokens",
          [](const Model& model, int height, int width) {
            return model.vision.present() ? model.vision.tokens(height, width) : 0.0;
          },
          py::arg("height"), py::arg("width"),
          "Tokens of the decoder that an image of that many pixels becomes.")
      .def_property_readonly("reads_source", &Model::reads_source,
                             "Whether layers attend to a source: of an encoder, or an image.")
      .def_property_readonly(
          "source_positions", [](const Model& model) { return model.encoder.image_patches; },
          "Positions of every source that layers attend to; 0: of its own length, or there is "
          "none.")
      .def_property_readonly("parameters", &Model::parameters,
                             "Parameters of main stack and vision tower.")
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
