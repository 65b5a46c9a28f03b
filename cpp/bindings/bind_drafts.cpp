#include <cstddef>
#include <memory>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "bindings/serving_instance.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/drafts.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel::bindings {
namespace {

/// Tokens of a sequence that a step may verify.
constexpr double kMaxVerified = 1e5;

}  // namespace

void bind_drafts(py::module_& m) {
  py::class_<Draft>(m, "Draft", R"(What proposes tokens beside a served model.

`Draft()` is nothing, `Draft(layer=True)` one more layer of the model (multi-token prediction,
EAGLE), and `Draft(model, kernels, tp)` a model of its own, each layer of which is split over `tp`
ranks, or as the served model is where `tp` is 0. A step verifies `verified` tokens of a sequence.)")
      .def(py::init([](bool layer, double verified) {
             return Draft{layer, nullptr, checked("verified", verified, 0, kMaxVerified)};
           }),
           py::kw_only(), py::arg("layer") = false, py::arg("verified") = 0)
      .def(py::init([](const Model& model, const ServingKernels& kernels, int tp, double verified) {
             checked("draft_tp", tp, 0, 65535);
             return Draft{false, std::make_shared<const DraftModel>(DraftModel{model, kernels, tp}),
                          checked("verified", verified, 0, kMaxVerified)};
           }),
           py::arg("model"), py::arg("kernels"), py::arg("tp") = 0, py::arg("verified") = 0);
  m.def(
      "check_draft",
      [](const Draft& draft, const ServingLayout& layout, const Cluster& cluster) {
        return check_draft(draft, layout, cluster);
      },
      py::arg("draft"), py::arg("layout"), py::arg("cluster"),
      "ok, or the reason why a draft cannot be spread so beside an instance.");
  m.def(
      "tree_acceptance",
      [](const RequestMix& mix, int depth, int rank) {
        checked("depth", depth, 1, 64);
        checked("rank", rank, 1, kMaxDraftWidth);
        return acceptance_of(draft_tree(mix), depth, rank);
      },
      py::arg("mix"), py::arg("depth"), py::arg("rank"),
      "Probability that the rank-th best candidate of a depth is accepted where its parent was.");
  m.def(
      "draft_candidates", [](const RequestMix& mix) { return draft_candidates(draft_tree(mix)); },
      py::arg("mix"), "Candidates that the tree of drafts of a step can have.");
  m.def(
      "draft_paths",
      [](const RequestMix& mix) {
        const std::vector<DraftNode> nodes = draft_nodes(draft_tree(mix));
        std::vector<std::vector<int>> paths;
        for (const DraftNode& node : nodes) {
          std::vector<int> path;
          if (node.parent != DraftNode::kRoot) path = paths[static_cast<std::size_t>(node.parent)];
          path.push_back(node.rank - 1);
          paths.push_back(path);
        }
        return paths;
      },
      py::arg("mix"),
      "The verified candidates of a tree, each as the ranks from the root, from 0.");
  m.def(
      "verified_drafts", [](const RequestMix& mix) { return verified_drafts(draft_tree(mix)); },
      py::arg("mix"), "Draft tokens of a sequence that a step verifies.");
}

}  // namespace scalemodel::bindings
