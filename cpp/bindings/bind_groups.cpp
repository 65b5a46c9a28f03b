#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "bindings/record_columns.hpp"
#include "scalemodel/costs/group_tables.hpp"
#include "scalemodel/estimator/evaluate_groups.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/search/group_space.hpp"
#include "scalemodel/strategy/mesh.hpp"

namespace scalemodel::bindings {
namespace {

/// A group with its place in a model: what it waits for, its mesh, whether it learns.
using PlacedGroup = std::tuple<LayerGroup, std::vector<int>, std::string, bool, double>;

ComposedModel composed(const std::vector<PlacedGroup>& placed) {
  std::vector<LayerGroup> groups;
  std::vector<std::string> slots;
  for (const auto& [group, waits_for, slot, trained, frozen_bytes] : placed) {
    groups.push_back(group);
    groups.back().waits_for = waits_for;
    groups.back().trained = trained;
    groups.back().frozen_bytes = frozen_bytes;
    slots.push_back(slot);
  }
  return compose(std::move(groups), slots);
}

using TableRow = std::tuple<double, double, double>;

LayerGroup tables_group(const std::string& name, const std::vector<TableRow>& rows, int dim,
                        double value_bytes, double output_bytes, SparseOptimizer optimizer) {
  TableSet tables;
  for (const auto& [count, entries, pooling] : rows) {
    tables.classes.push_back({count, entries, pooling});
  }
  tables.dim = dim;
  tables.value_bytes = value_bytes;
  tables.output_bytes = output_bytes;
  tables.optimizer = optimizer;
  return embedding_tables(name, std::move(tables));
}

std::unique_ptr<GroupTables> make_tables(const ComposedModel& model, const Cluster& cluster,
                                         const Task& task, const Stack& stack,
                                         const Ablation& ablation, double lookup_fraction,
                                         const std::vector<std::string>& meshes,
                                         const std::vector<int>& micro_batches, bool forward_only) {
  if (!(lookup_fraction > 0 && lookup_fraction <= 1)) {
    throw MalformedQuestion("lookup_fraction=" + std::to_string(lookup_fraction) +
                            ": must be above 0, at most 1");
  }
  std::vector<Mesh> parsed;
  for (const std::string& text : meshes) parsed.push_back(parse_mesh(text, cluster.accelerators));
  for (const int count : micro_batches) {
    if (count < 1 || count > 65535) {
      throw MalformedQuestion("micro_batches=" + std::to_string(count) +
                              ": must be from 1 to 65535");
    }
  }
  return std::make_unique<GroupTables>(model, cluster, task, stack, ablation, lookup_fraction,
                                       std::move(parsed), micro_batches, forward_only);
}

GroupStrategy make_strategy(const std::vector<int>& meshes, int micro_batches, Queues queues,
                            Prefetch prefetch, BackwardGather backward_gather, Buckets buckets,
                            bool recompute) {
  GroupStrategy strategy;
  for (std::size_t i = 0; i < std::min(meshes.size(), kMaxSlots); ++i) {
    strategy.mesh[i] = static_cast<std::uint16_t>(meshes[i]);
  }
  strategy.micro_batches = static_cast<std::uint16_t>(micro_batches);
  strategy.queues = queues;
  strategy.prefetch = prefetch;
  strategy.backward_gather = backward_gather;
  strategy.buckets = buckets;
  strategy.recompute = recompute;
  return strategy;
}

py::list slot_rows(const ComposedModel& model) {
  py::list rows;
  for (const Slot& slot : model.slots) {
    rows.append(py::make_tuple(slot.name, slot.kind, slot.experts));
  }
  return rows;
}

template <class T>
void need_some(const std::vector<T>& values, const char* name) {
  if (values.empty()) throw MalformedQuestion(std::string(name) + ": at least one value is needed");
}

GroupSpace make_group_space(
    const GroupTables& tables, const std::vector<std::vector<std::string>>& meshes,
    const std::vector<std::size_t>& variable_of_slot, const std::vector<int>& micro_batches,
    const std::vector<Queues>& queues, const std::vector<Prefetch>& prefetch,
    const std::vector<BackwardGather>& backward_gather, const std::vector<Buckets>& buckets,
    const std::vector<bool>& recompute) {
  GroupSpace space;
  for (const auto& texts : meshes) {
    need_some(texts, "meshes");
    auto& choices = space.meshes.emplace_back();
    for (const std::string& text : texts) {
      const Mesh mesh = parse_mesh(text, tables.question().cluster.accelerators);
      const int index = tables.index_of(mesh);
      if (index < 0) throw MalformedQuestion("mesh='" + text + "': was not tabulated");
      choices.push_back(static_cast<std::uint16_t>(index));
    }
  }
  for (const std::size_t variable : variable_of_slot) {
    if (variable >= meshes.size()) throw MalformedQuestion("variable_of_slot: no such variable");
  }
  need_some(micro_batches, "micro_batches");
  need_some(queues, "queues");
  need_some(prefetch, "prefetch");
  need_some(backward_gather, "backward_gather");
  need_some(buckets, "buckets");
  need_some(recompute, "recompute");
  space.variable_of_slot = variable_of_slot;
  for (const int count : micro_batches) {
    space.micro_batches.push_back(static_cast<std::uint16_t>(count));
  }
  space.queues = queues;
  space.prefetch = prefetch;
  space.backward_gather = backward_gather;
  space.buckets = buckets;
  for (const bool again : recompute) space.recompute.push_back(again ? 1 : 0);
  return space;
}

/// Meshes by index and the schedule's values.
py::tuple layout_row(const GroupTables& tables, const GroupStrategy& s) {
  py::list meshes;
  for (std::size_t i = 0; i < tables.model().slots.size(); ++i) {
    meshes.append(to_text(tables.meshes()[s.mesh[i]]));
  }
  return py::make_tuple(meshes, s.micro_batches, s.queues, s.prefetch, s.backward_gather, s.buckets,
                        s.recompute);
}

using ObjectiveRow = std::tuple<std::string, double>;
using ConstraintRow = std::tuple<std::string, Comparison, double, std::optional<std::string>>;

const GroupColumn* column_of(const std::string& name) {
  const GroupColumn* column = find_group_column(name);
  if (column == nullptr) {
    throw MalformedQuestion(name + ": no such column of an estimate of layer groups");
  }
  return column;
}

py::dict search_group_rows(const GroupTables& tables, const GroupSpace& space,
                           const std::vector<ObjectiveRow>& objective,
                           const std::vector<ConstraintRow>& constraints, std::size_t top,
                           bool too_big, int threads, const py::object& progress) {
  GroupSearchOptions options;
  for (const auto& [name, weight] : objective) {
    options.objective.terms.push_back({column_of(name), weight});
  }
  need_some(options.objective.terms, "objective");
  for (const auto& [left, comparison, factor, right] : constraints) {
    options.constraints.push_back(
        {column_of(left), comparison, factor, right ? column_of(*right) : nullptr});
  }
  options.top = top;
  options.too_big = too_big;
  options.threads = threads;
  Interpreter interpreter(progress);
  const Poll poll = interpreter.poll();
  GroupSearchResult result;
  {
    const py::gil_scoped_release release;
    result = search_groups(tables, space, options, poll);
  }
  interpreter.rethrow();
  py::list hits;
  for (const GroupCandidate& candidate : result.candidates) {
    hits.append(py::make_tuple(candidate.score, candidate.row,
                               layout_row(tables, candidate.strategy), candidate.estimate));
  }
  py::dict verdicts;
  for (std::size_t i = 0; i < kReasons; ++i) {
    if (result.counts.verdicts[i] == 0) continue;
    verdicts[py::cast(static_cast<Reason>(i))] = result.counts.verdicts[i];
  }
  py::dict answer;
  answer["hits"] = hits;
  answer["verdicts"] = verdicts;
  answer["constrained"] = result.counts.constrained;
  return answer;
}

py::tuple sweep_group_rows(const GroupTables& tables, const GroupSpace& space,
                           const std::optional<Names>& wanted, int threads,
                           const py::object& progress) {
  constexpr std::uint64_t kMost = 50'000'000;
  if (space.size() > kMost) {
    throw MalformedQuestion("space: more than 5e7 rows; search it, or give fewer values");
  }
  const auto rows = static_cast<std::size_t>(space.size());
  std::vector<GroupEstimate> estimates(rows);
  Interpreter interpreter(progress);
  const Poll poll = interpreter.poll();
  {
    const py::gil_scoped_release release;
    sweep_groups(tables, space, threads, estimates, poll);
  }
  interpreter.rethrow();
  py::dict columns;
  RecordColumns(table_of<GroupEstimate>(), rows, wanted, columns).put<GroupEstimate>(0, estimates);
  const std::size_t slots = tables.model().slots.size();
  py::array_t<std::uint16_t> meshes({rows, slots}), passes(static_cast<py::ssize_t>(rows));
  py::array_t<std::int8_t> knobs({rows, std::size_t{5}});
  auto mesh_at = meshes.mutable_unchecked<2>();
  auto knob_at = knobs.mutable_unchecked<2>();
  auto pass_at = passes.mutable_unchecked<1>();
  for (std::size_t row = 0; row < rows; ++row) {
    const GroupStrategy s = space.at(row);
    const auto at = static_cast<py::ssize_t>(row);
    for (std::size_t i = 0; i < slots; ++i) mesh_at(at, static_cast<py::ssize_t>(i)) = s.mesh[i];
    pass_at(at) = s.micro_batches;
    knob_at(at, 0) = static_cast<std::int8_t>(s.queues);
    knob_at(at, 1) = static_cast<std::int8_t>(s.prefetch);
    knob_at(at, 2) = static_cast<std::int8_t>(s.backward_gather);
    knob_at(at, 3) = static_cast<std::int8_t>(s.buckets);
    knob_at(at, 4) = s.recompute ? 1 : 0;
  }
  py::list names;
  for (const Mesh& mesh : tables.meshes()) names.append(to_text(mesh));
  return py::make_tuple(columns, meshes, names, passes, knobs);
}

py::list group_column_rows() {
  py::list rows;
  for (const GroupColumn& column : group_columns()) {
    rows.append(py::make_tuple(py::str(column.name.data(), column.name.size()), column.maximised,
                               column.positive));
  }
  return rows;
}

/// Operators as a recording of a module gives them: kind, rows, columns, depth, copies; of
/// attention heads, head width and whether it is causal; of GEMMs whether they have weights.
using RecordedOperator =
    std::tuple<OperatorKind, double, double, double, double, int, int, bool, bool>;
using RecordedLayer = std::tuple<double, double, std::vector<RecordedOperator>>;

LayerGroup recorded_group(const std::string& name, const std::vector<RecordedLayer>& layers,
                          int repeat, double tokens) {
  std::vector<RecordedUnit> units;
  for (const auto& [parameters, biases, operators] : layers) {
    RecordedUnit& unit = units.emplace_back();
    unit.parameters = parameters;
    unit.biases = biases;
    for (const auto& [kind, rows, columns, depth, copies, heads, width, causal, weights] :
         operators) {
      LayerOperator& op = unit.operators.emplace_back();
      op.kind = kind;
      op.name = name_of(kind);
      op.rows = rows;
      op.columns = columns;
      op.depth = depth;
      op.copies = copies;
      op.attention.heads = op.attention.kv_heads = heads;
      op.attention.head_dim = op.attention.v_head_dim = width;
      op.causal = causal;
      op.weightless = kind == OperatorKind::gemm && !weights;
    }
  }
  return recorded(name, units, repeat, tokens);
}

void bind_transformer(py::module_& m) {
  m.def(
      "transformer_group",
      [](const std::string& name, int layers, int hidden, int heads, int kv_heads, int head_dim,
         int v_head_dim, int q_lora_rank, int kv_lora_rank, int rope_head_dim, int ffn, bool gated,
         bool causal, bool rotary, bool bias, int norms_per_layer, int experts,
         int experts_per_token, int shared_ffn, int modulation, int modulation_vectors,
         int modalities, bool qk_norm, bool parallel, bool linear, int depthwise,
         double context_tokens, int context_width, int window, double tokens) {
        TransformerShape shape;
        shape.layers = layers;
        shape.hidden = hidden;
        shape.heads = heads;
        shape.kv_heads = kv_heads;
        shape.head_dim = head_dim;
        shape.v_head_dim = v_head_dim;
        shape.q_lora_rank = q_lora_rank;
        shape.kv_lora_rank = kv_lora_rank;
        shape.rope_head_dim = rope_head_dim;
        shape.ffn = ffn;
        shape.gated = gated;
        shape.causal = causal;
        shape.rotary = rotary;
        shape.bias = bias;
        shape.norms_per_layer = norms_per_layer;
        shape.experts = experts;
        shape.experts_per_token = experts_per_token;
        shape.shared_ffn = shared_ffn;
        shape.modulation = modulation;
        shape.modulation_vectors = modulation_vectors;
        shape.modalities = modalities;
        shape.qk_norm = qk_norm;
        shape.parallel = parallel;
        shape.linear = linear;
        shape.depthwise = depthwise;
        shape.context_tokens = context_tokens;
        shape.context_width = context_width;
        shape.window = window;
        shape.tokens = tokens;
        return transformer(name, shape);
      },
      py::arg("name"), py::arg("layers"), py::arg("hidden"), py::arg("heads"), py::arg("kv_heads"),
      py::arg("head_dim"), py::arg("v_head_dim"), py::arg("q_lora_rank"), py::arg("kv_lora_rank"),
      py::arg("rope_head_dim"), py::arg("ffn"), py::arg("gated"), py::arg("causal"),
      py::arg("rotary"), py::arg("bias"), py::arg("norms_per_layer"), py::arg("experts"),
      py::arg("experts_per_token"), py::arg("shared_ffn"), py::arg("modulation"),
      py::arg("modulation_vectors"), py::arg("modalities"), py::arg("qk_norm"), py::arg("parallel"),
      py::arg("linear"), py::arg("depthwise"), py::arg("context_tokens"), py::arg("context_width"),
      py::arg("window"), py::arg("tokens"));
}

void bind_builders(py::module_& m) {
  py::class_<LayerGroup>(m, "LayerGroup", "Layers that share shape and sharding.")
      .def_readonly("name", &LayerGroup::name)
      .def_readonly("kind", &LayerGroup::kind)
      .def_readonly("repeat", &LayerGroup::repeat, "Periods.")
      .def_readonly("tokens", &LayerGroup::tokens, "Per sample; 0 = the sequence of the task.")
      .def_property_readonly("parameters", &LayerGroup::parameters)
      .def_property_readonly("active_parameters", &LayerGroup::active_parameters)
      .def(
          "with_repeat",
          [](LayerGroup group, int repeat) {
            if (repeat < 1) throw MalformedQuestion("repeat: must be at least 1");
            group.repeat = repeat;
            return group;
          },
          py::arg("repeat"), "The same period another number of times.")
      .def("forward_flop", &LayerGroup::forward_flop, py::arg("sequence"),
           "Products and attention of one sample.");
  m.def("embedding_tables_group", &tables_group, py::arg("name"), py::arg("tables"), py::arg("dim"),
        py::arg("value_bytes"), py::arg("output_bytes"), py::arg("optimizer"));
  m.def(
      "mlp_group",
      [](const std::string& name, const std::vector<int>& widths, int repeat, bool bias,
         int experts, int experts_per_sample) {
        return mlp(name, {widths, repeat, bias, experts, experts_per_sample});
      },
      py::arg("name"), py::arg("widths"), py::arg("repeat"), py::arg("bias"), py::arg("experts"),
      py::arg("experts_per_sample"));
  m.def(
      "interaction_group",
      [](const std::string& name, Interaction kind, int features, int dim, int layers, int rank) {
        return interaction(name, {kind, features, dim, layers, rank});
      },
      py::arg("name"), py::arg("kind"), py::arg("features"), py::arg("dim"), py::arg("layers"),
      py::arg("rank"));
  bind_transformer(m);
  m.def(
      "convolution_group",
      [](const std::string& name, const std::vector<std::array<int, 2>>& blocks,
         const std::vector<std::array<int, 3>>& convolutions, int condition, double tokens,
         int frames) {
        return convolution(name, {blocks, convolutions, condition, tokens, frames});
      },
      py::arg("name"), py::arg("blocks"), py::arg("convolutions"), py::arg("condition"),
      py::arg("tokens"), py::arg("frames"));
  m.def("token_embedding_group", &token_embedding, py::arg("name"), py::arg("vocab"),
        py::arg("hidden"), py::arg("positions"), py::arg("tokens"));
  m.def("patch_embedding_group", &patch_embedding, py::arg("name"), py::arg("patch_values"),
        py::arg("hidden"), py::arg("tokens"));
  m.def(
      "head_group",
      [](const std::string& name, int hidden, int outputs, bool tied, bool loss, bool every_token,
         bool norm, bool bias, double tokens) {
        return head(name, {hidden, outputs, tied, loss, every_token, norm, bias, tokens});
      },
      py::arg("name"), py::arg("hidden"), py::arg("outputs"), py::arg("tied"), py::arg("loss"),
      py::arg("every_token"), py::arg("norm"), py::arg("bias"), py::arg("tokens"));
  m.def("recorded_group", &recorded_group, py::arg("name"), py::arg("layers"), py::arg("repeat"),
        py::arg("tokens"), "Layers as a recording of a module gives them.");
  m.def("decoder_groups", &decoder_groups, py::arg("shape"),
        "The layer groups of a decoder, in order.");
}

}  // namespace

void bind_groups(py::module_& m) {
  bind_builders(m);
  bind_record<Ablation>(m, R"(What is left out of the physics, to compare with simpler models.

Examples
--------
>>> Ablation(latency=False)
Ablation(latency=False))");
  bind_record<GroupEstimate>(m, "What one step of a model of layer groups takes.");
  py::class_<ComposedModel>(m, "ComposedModel", "An ordered list of layer groups.")
      .def(py::init(&composed), py::arg("groups"))
      .def_property_readonly("slots", &slot_rows, "Name, kind and whether experts, by slot.")
      .def_property_readonly("parameters", &ComposedModel::parameters)
      .def_property_readonly("active_parameters", &ComposedModel::active_parameters);
  py::class_<GroupStrategy>(m, "GroupLayout", "Meshes by index and the schedule of their traffic.")
      .def(py::init(&make_strategy), py::arg("meshes"), py::arg("micro_batches"), py::arg("queues"),
           py::arg("prefetch"), py::arg("backward_gather"), py::arg("buckets"),
           py::arg("recompute"));
  py::class_<GroupTables>(m, "GroupTables", "Costs of every group under every mesh.")
      .def(py::init(&make_tables), py::arg("model"), py::arg("cluster"), py::arg("task"),
           py::arg("stack"), py::arg("ablation"), py::arg("lookup_fraction"), py::arg("meshes"),
           py::arg("micro_batches"), py::arg("forward_only"))
      .def("estimate", &evaluate_groups, py::arg("layout"));
  py::class_<GroupSpace>(m, "GroupSpace", "Combinations of meshes and schedules, numbered.")
      .def(py::init(&make_group_space), py::arg("tables"), py::arg("meshes"),
           py::arg("variable_of_slot"), py::arg("micro_batches"), py::arg("queues"),
           py::arg("prefetch"), py::arg("backward_gather"), py::arg("buckets"),
           py::arg("recompute"))
      .def_property_readonly("size", &GroupSpace::size, "Strategies.");
  m.def("search_groups", &search_group_rows, py::arg("tables"), py::arg("space"),
        py::arg("objective"), py::arg("constraints"), py::arg("top"), py::arg("too_big"),
        py::arg("threads"), py::arg("progress"), "Best strategies of a space.");
  m.def("sweep_groups", &sweep_group_rows, py::arg("tables"), py::arg("space"), py::arg("wanted"),
        py::arg("threads"), py::arg("progress"),
        "Columns of the estimates; meshes by slot, their names, micro-batches and knobs.");
  m.def("group_columns", &group_column_rows,
        "Columns an objective or constraint may name: name, maximised, positive.");
  m.def(
      "mesh_text",
      [](const std::string& text, int accelerators) {
        return to_text(parse_mesh(text, accelerators));
      },
      py::arg("text"), py::arg("accelerators"), "A mesh with every degree filled in.");
  m.def(
      "mesh_of_experts",
      [](const std::string& text, int accelerators) {
        return to_text(parse_mesh(text, accelerators).of_experts());
      },
      py::arg("text"), py::arg("accelerators"),
      "How routed experts are laid out as the layers around them.");
  m.def(
      "mesh_suits",
      [](const std::string& text, GroupKind kind, bool experts) {
        return suits(parse_mesh(text, 1), kind, experts);
      },
      py::arg("text"), py::arg("kind"), py::arg("experts"),
      "Whether layer groups of a kind can be laid out so.");
}

}  // namespace scalemodel::bindings
