#include "scalemodel/model/groups.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/model/group_units.hpp"

namespace scalemodel {
namespace {

using building::gemm;
using building::need;
using building::passing;

}  // namespace

// ---------------------------------------------------------------------------------- properties
double TableSet::tables() const {
  double sum = 0;
  for (const TableClass& c : classes) sum += c.count;
  return sum;
}

double TableSet::parameters() const {
  double sum = 0;
  for (const TableClass& c : classes) sum += c.count * c.rows * dim;
  return sum;
}

double TableSet::lookups() const {
  double sum = 0;
  for (const TableClass& c : classes) sum += c.count * c.pooling;
  return sum;
}

double LayerGroup::parameters() const {
  double period = 0;
  for (const Unit& unit : units) {
    period += unit.parameters_whole + unit.parameters_cut * std::max(1, unit.experts);
  }
  return repeat * period + tables.parameters();
}

double LayerGroup::active_parameters() const {
  double period = 0;
  for (const Unit& unit : units) {
    period += unit.parameters_whole +
              unit.parameters_cut * (unit.experts > 0 ? unit.experts_per_token : 1);
  }
  return repeat * period + tables.lookups() * tables.dim;
}

Flop LayerGroup::forward_flop(double sequence) const {
  const double each = tokens > 0 ? tokens : sequence;
  Flop sum;
  for (const Unit& unit : units) {
    const double routed = unit.experts > 0 ? unit.experts_per_token : 1;
    for (const LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::gemm) {
        sum += Flop{2 * each * (unit.on_copies(op) ? routed : 1) * op.rows * op.copies *
                    op.columns * op.depth};
      } else {
        sum += op.activation_flop(each);
      }
    }
  }
  return repeat * sum;
}

int LayerGroup::width_out() const {
  if (!units.empty()) return units.back().streams * units.back().width_out;
  return static_cast<int>(tables.tables()) * tables.dim;
}

double ComposedModel::parameters() const {
  double sum = 0;
  for (const LayerGroup& group : groups) sum += group.parameters();
  return sum;
}

double ComposedModel::active_parameters() const {
  double sum = 0;
  for (const LayerGroup& group : groups) sum += group.active_parameters();
  return sum;
}

// ------------------------------------------------------------------------------------- compose
ComposedModel compose(std::vector<LayerGroup> groups, const std::vector<std::string>& slots) {
  if (groups.empty()) throw MalformedQuestion("groups: at least one layer group is needed");
  if (groups.size() > kMaxGroups) {
    throw MalformedQuestion("groups: at most " + std::to_string(kMaxGroups) + " layer groups");
  }
  ComposedModel model;
  model.groups = std::move(groups);
  const auto slot_of = [&](const std::string& name, GroupKind kind, bool experts) {
    const auto found =
        std::ranges::find_if(model.slots, [&](const Slot& slot) { return slot.name == name; });
    if (found == model.slots.end()) {
      model.slots.push_back({name, kind, experts});
    } else if ((found->kind == GroupKind::embedding_tables) !=
               (kind == GroupKind::embedding_tables)) {
      throw MalformedQuestion(name + ": embedding tables and layers cannot share a mesh");
    }
    return static_cast<int>(
        std::ranges::find_if(model.slots, [&](const Slot& slot) { return slot.name == name; }) -
        model.slots.begin());
  };
  bool widest_found = false;
  for (std::size_t i = 0; i < model.groups.size(); ++i) {
    LayerGroup& group = model.groups[i];
    for (const int before : group.waits_for) {
      if (before < 0 || before >= static_cast<int>(i)) {
        throw MalformedQuestion(group.name + ": waits for a group that does not come before it");
      }
    }
    const std::string& name = i < slots.size() ? slots[i] : group.name;
    group.slot = slot_of(name, group.kind, false);
    const bool routed =
        std::ranges::any_of(group.units, [](const Unit& unit) { return unit.experts > 0; });
    if (routed) group.expert_slot = slot_of(name + ".experts", group.kind, true);
    if (group.tokens == 0) {
      model.tokens_per_sample = 0;
      widest_found = true;
    } else if (!widest_found) {
      model.tokens_per_sample = std::max(model.tokens_per_sample, group.tokens);
    }
  }
  if (model.slots.size() > kMaxSlots) {
    throw MalformedQuestion("groups: at most " + std::to_string(kMaxSlots) +
                            " differently sharded groups");
  }
  return model;
}

// ------------------------------------------------------------------------------------ builders
LayerGroup embedding_tables(std::string name, TableSet tables) {
  need(tables.dim >= 1, name, "dim", tables.dim, "at least 1");
  need(!tables.classes.empty(), name, "tables", 0, "at least 1");
  for (const TableClass& c : tables.classes) {
    need(c.rows >= 1 && c.rows <= 1e12, name, "rows", c.rows, "from 1 to 1e12");
    need(c.pooling > 0 && c.pooling <= 1e6, name, "pooling", c.pooling, "above 0, at most 1e6");
    need(c.count >= 1 && c.count <= 1e6, name, "tables", c.count, "from 1 to 1e6");
  }
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::embedding_tables;
  group.tables = std::move(tables);
  return group;
}

LayerGroup mlp(std::string name, const MlpShape& shape) {
  const auto& widths = shape.widths;
  need(widths.size() >= 2, name, "widths", static_cast<double>(widths.size()),
       "at least two widths");
  for (const int width : widths) need(width >= 1, name, "widths", width, "at least 1");
  need(shape.repeat >= 1, name, "repeat", shape.repeat, "at least 1");
  if (shape.experts > 0) {
    need(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, name,
         "experts_per_sample", shape.experts_per_token, "from 1 to the number of experts");
  }
  LayerGroup group;
  group.name = std::move(name);
  group.repeat = shape.repeat;
  auto layers = widths.size() - 1;
  // Equal layers repeat in tensor-parallel pairs.
  const bool equal = std::ranges::all_of(widths, [&](int w) { return w == widths.front(); });
  if (equal && layers > 2 && layers % 2 == 0) {
    group.repeat *= static_cast<int>(layers / 2);
    layers = 2;
  }
  need(layers <= kMaxUnits, group.name, "widths", static_cast<double>(widths.size()),
       "at most " + std::to_string(kMaxUnits + 1) + " of them");
  for (std::size_t i = 0; i < layers; ++i) {
    Unit unit;
    unit.name = "layer";
    unit.width_in = widths[i];
    unit.width_out = widths[i + 1];
    const double in = widths[i], out = widths[i + 1];
    const bool routed = shape.experts > 0;
    const bool second = !routed && i % 2 == 1, last = i + 1 == layers;
    unit.opens = !second;
    unit.closes = second;
    unit.gathers = routed || (!second && last);
    unit.operators.push_back(gemm("gemm", out, in, second ? Cut::depth : Cut::columns));
    unit.operators.push_back(
        passing(OperatorKind::activation, "activation", out, second ? Cut::none : Cut::columns));
    unit.parameters_cut = in * out;
    unit.parameters_whole = shape.bias && !routed ? out : 0;
    // Widths of click models seldom divide: shards are uneven by less than a column.
    unit.experts = shape.experts;
    unit.experts_per_token = shape.experts_per_token;
    count_saved(unit);
    group.units.push_back(std::move(unit));
  }
  return group;
}

LayerGroup interaction(std::string name, const InteractionShape& shape) {
  need(shape.features >= 1, name, "features", shape.features, "at least 1");
  need(shape.dim >= 1, name, "dim", shape.dim, "at least 1");
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::interaction;
  const int width = shape.features * shape.dim;
  Unit unit;
  unit.width_in = unit.width_out = width;
  unit.opens = unit.closes = false;
  switch (shape.kind) {
    case Interaction::concat: {
      unit.name = "concat";
      LayerOperator copy = passing(OperatorKind::elementwise, "concat", width);
      copy.depth = 2;
      unit.operators.push_back(copy);
      group.units.push_back(std::move(unit));
      break;
    }
    case Interaction::dot: {
      unit.name = "dot";
      LayerOperator pairs = gemm("pairs", shape.features, shape.dim, Cut::none, shape.features);
      pairs.weightless = true;
      unit.operators.push_back(pairs);
      const int pair_count = shape.features * (shape.features - 1) / 2;
      LayerOperator pick = passing(OperatorKind::elementwise, "pick_pairs", pair_count);
      pick.depth = 3;
      unit.operators.push_back(pick);
      unit.width_out = pair_count + shape.dim;
      count_saved(unit);
      group.units.push_back(std::move(unit));
      break;
    }
    case Interaction::cross: {
      need(shape.layers >= 1, group.name, "layers", shape.layers, "at least 1");
      unit.name = "cross";
      const double rank = shape.rank > 0 ? shape.rank : width;
      if (shape.rank > 0) {
        unit.operators.push_back(gemm("cross_down", rank, width, Cut::columns));
        unit.operators.push_back(gemm("cross_up", width, rank, Cut::depth));
        unit.parameters_cut = 2 * rank * width;
        unit.opens = unit.closes = true;
      } else {
        unit.operators.push_back(gemm("cross", width, width, Cut::columns));
        unit.parameters_cut = rank * width;
        unit.opens = unit.gathers = true;
      }
      unit.parameters_whole = width;
      unit.cut_limit = static_cast<int>(rank);
      // x0 (product + bias) + x: bias and product read and written, sum of three.
      LayerOperator combine = passing(OperatorKind::elementwise, "cross_combine", width);
      combine.depth = 4;
      unit.operators.push_back(combine);
      count_saved(unit);
      group.repeat = shape.layers;
      group.units.push_back(std::move(unit));
      break;
    }
  }
  return group;
}

namespace {

/// A convolution as a GEMM over the places of a map (implicit GEMM: Chetlur et al., cuDNN, arXiv
/// 1410.0759).
LayerOperator convolved(double in, double out, double kernel, double frames) {
  const double taps = kernel * kernel * frames;
  LayerOperator op = gemm("convolution", out, taps * in, Cut::none);
  op.taps = taps;
  op.bias = out;
  return op;
}

/// He et al., arXiv 1512.03385, with group norms and a condition as in Ho et al., arXiv 2006.11239.
void add_residual_block(Unit& unit, const std::array<int, 2>& channels, const ConvolutionShape& s) {
  const double in = channels[0], out = channels[1];
  const auto add_norm = [&](double width) {
    LayerOperator norm = passing(OperatorKind::norm, "group_norm", width);
    norm.bias = 2 * width;
    unit.operators.push_back(std::move(norm));
    unit.operators.push_back(passing(OperatorKind::activation, "activation", width));
  };
  if (in > out) {  // the way up of a U-Net: two maps are laid side by side first
    unit.operators.push_back(passing(OperatorKind::elementwise, "concat", in));
    unit.operators.back().depth = 2;
  }
  add_norm(in);
  unit.operators.push_back(convolved(in, out, 3, s.frames));
  if (s.condition > 0) {
    unit.operators.push_back(gemm("condition", out, s.condition, Cut::none, 1 / s.tokens));
    unit.operators.back().bias = out;
  }
  add_norm(out);
  unit.operators.push_back(convolved(out, out, 3, s.frames));
  if (in != out) unit.operators.push_back(convolved(in, out, 1, 1));
  unit.operators.push_back(passing(OperatorKind::residual, "residual", out));
}

}  // namespace

LayerGroup convolution(std::string name, const ConvolutionShape& shape) {
  const std::size_t layers = shape.blocks.size() + shape.convolutions.size();
  need(layers >= 1, name, "blocks and convolutions", 0, "at least one in all");
  need(shape.tokens >= 1, name, "tokens", shape.tokens, "at least 1");
  need(shape.condition >= 0, name, "condition", shape.condition, "at least 0");
  need(shape.frames >= 1, name, "frames", shape.frames, "at least 1");
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::convolution;
  group.tokens = shape.tokens;
  // One unit: layers as small as these are gathered and reduced a bucket at a time.
  Unit unit;
  unit.name = "convolution";
  unit.opens = unit.closes = false;
  for (const auto& channels : shape.blocks) {
    for (const int width : channels) need(width >= 1, group.name, "blocks", width, "at least 1");
    add_residual_block(unit, channels, shape);
    unit.width_in = std::max(unit.width_in, channels[0]);
    unit.width_out = std::max(unit.width_out, channels[1]);
  }
  for (const auto& [in, out, kernel] : shape.convolutions) {
    for (const int size : {in, out, kernel}) {
      need(size >= 1, group.name, "convolutions", size, "at least 1");
    }
    unit.operators.push_back(convolved(in, out, kernel, shape.frames));
    unit.width_in = std::max(unit.width_in, in);
    unit.width_out = std::max(unit.width_out, out);
  }
  count_parameters(unit);
  count_saved(unit);
  group.units.push_back(std::move(unit));
  return group;
}

LayerGroup token_embedding(std::string name, int vocab, int hidden, int positions, double tokens) {
  need(vocab >= 1, name, "vocab", vocab, "at least 1");
  need(hidden >= 1, name, "hidden", hidden, "at least 1");
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::token_embedding;
  group.tokens = tokens;
  Unit unit;
  unit.name = "token_embedding";
  unit.width_out = hidden;
  unit.opens = false;  // ranks hold rows of the table and sum what they find
  LayerOperator rows = passing(OperatorKind::elementwise, "lookup", hidden);
  rows.depth = 2;
  unit.operators.push_back(rows);
  unit.parameters_cut = (static_cast<double>(vocab) + positions) * hidden;
  group.units.push_back(std::move(unit));
  return group;
}

LayerGroup patch_embedding(std::string name, int patch_values, int hidden, double tokens) {
  need(patch_values >= 1, name, "patch_values", patch_values, "at least 1");
  need(hidden >= 1, name, "hidden", hidden, "at least 1");
  need(tokens >= 1, name, "tokens", tokens, "at least 1");
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::patch_embedding;
  group.tokens = tokens;
  Unit unit;
  unit.name = "patch_embedding";
  unit.width_in = patch_values;
  unit.width_out = hidden;
  unit.opens = unit.closes = false;
  unit.operators.push_back(gemm("patches", hidden, patch_values, Cut::none));
  unit.operators.push_back(passing(OperatorKind::residual, "positions", hidden));
  unit.parameters_whole = static_cast<double>(patch_values) * hidden + hidden + tokens * hidden;
  count_saved(unit);
  group.units.push_back(std::move(unit));
  return group;
}

LayerGroup head(std::string name, const HeadShape& shape) {
  need(shape.hidden >= 1, name, "hidden", shape.hidden, "at least 1");
  need(shape.outputs >= 1, name, "outputs", shape.outputs, "at least 1");
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::head;
  group.tokens = shape.tokens;
  Unit unit;
  unit.name = "head";
  unit.width_in = shape.hidden;
  unit.width_out = shape.outputs;
  unit.opens = true;
  unit.closes = false;
  const double rows = shape.every_token || shape.tokens <= 0 ? 1 : 1 / shape.tokens;
  if (shape.norm) {
    LayerOperator norm = passing(OperatorKind::norm, "final_norm", shape.hidden);
    unit.operators.push_back(norm);
    unit.parameters_whole += shape.bias ? 2 * shape.hidden : shape.hidden;
  }
  const bool words = shape.loss && shape.every_token;
  unit.operators.push_back(gemm("head", shape.outputs, shape.hidden, Cut::columns, rows));
  unit.operators.back().vocabulary = words;
  if (shape.loss) {
    LayerOperator loss = passing(OperatorKind::loss, "loss", shape.outputs, Cut::columns);
    loss.rows = rows;
    loss.vocabulary = words;
    unit.operators.push_back(loss);
  }
  unit.parameters_cut = shape.tied ? 0 : static_cast<double>(shape.hidden) * shape.outputs;
  if (shape.bias) unit.parameters_cut += shape.outputs;
  count_saved(unit);
  group.units.push_back(std::move(unit));
  return group;
}

LayerGroup recorded(std::string name, const std::vector<RecordedUnit>& units, int repeat,
                    double tokens) {
  need(repeat >= 1, name, "layers", repeat, "at least 1");
  need(tokens > 0 && tokens <= 1e9, name, "tokens", tokens, "above 0, at most 1e9");
  need(!units.empty() && units.size() <= kMaxUnits, name, "units",
       static_cast<double>(units.size()), "from 1 to " + std::to_string(kMaxUnits));
  LayerGroup group;
  group.name = std::move(name);
  group.repeat = repeat;
  group.tokens = tokens;
  for (const RecordedUnit& layer : units) {
    need(layer.parameters >= 0 && layer.parameters <= 1e15, group.name, "parameters",
         layer.parameters, "from 0 to 1e15");
    need(layer.biases >= 0 && layer.biases <= 1e15, group.name, "biases", layer.biases,
         "from 0 to 1e15");
    Unit unit;
    unit.name = "layer";
    unit.operators = layer.operators;
    unit.parameters_cut = layer.parameters;
    unit.parameters_whole = layer.biases;
    unit.opens = unit.closes = unit.gathers = false;
    for (LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::attention) {
        group.kind = GroupKind::transformer;
        op.cut = Cut::columns;
        unit.head_limit = op.attention.heads;
      } else if (op.kind == OperatorKind::gemm && !op.weightless) {
        op.cut = Cut::columns;
        unit.opens = unit.gathers = true;
        if (unit.width_in == 0) unit.width_in = static_cast<int>(op.depth);
      }
      if (op.kind != OperatorKind::attention) unit.width_out = static_cast<int>(op.columns);
    }
    if (unit.width_in == 0) unit.width_in = unit.width_out;
    count_saved(unit);
    group.units.push_back(std::move(unit));
  }
  return group;
}

}  // namespace scalemodel
