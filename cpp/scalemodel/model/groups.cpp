#include "scalemodel/model/groups.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/ops/attention.hpp"

namespace scalemodel {
namespace {

[[noreturn]] void malformed(const std::string& group, std::string_view field, double value,
                            const std::string& legal) {
  std::string text = group;
  text.append(": ").append(field).append("=");
  text.append(value == static_cast<double>(static_cast<long long>(value))
                  ? std::to_string(static_cast<long long>(value))
                  : std::to_string(value));
  throw MalformedQuestion(text.append(": must be ").append(legal));
}

void need(bool holds, const std::string& group, std::string_view field, double value,
          const std::string& legal) {
  if (!holds) malformed(group, field, value, legal);
}

GroupOperator product(std::string_view name, double columns, double depth, Cut cut,
                      double rows = 1) {
  GroupOperator op;
  op.name = name;
  op.columns = columns;
  op.depth = depth;
  op.cut = cut;
  op.rows = rows;
  return op;
}

GroupOperator passing(OperatorKind kind, std::string_view name, double columns,
                      Cut cut = Cut::none) {
  GroupOperator op;
  op.kind = kind;
  op.name = name;
  op.columns = columns;
  op.cut = cut;
  return op;
}

/// Values kept for the backward pass: inputs of products, norms, activations and attention.
void count_saved(Unit& unit) {
  for (const GroupOperator& op : unit.operators) {
    const double rows = op.rows * op.copies;
    double& cut = op.cut == Cut::none ? unit.saved_whole : unit.saved_cut;
    switch (op.kind) {
      case OperatorKind::product:
        if (!op.weightless && !op.keeps_input) break;
        (!op.weightless && op.cut == Cut::depth ? unit.saved_cut : unit.saved_whole) +=
            rows * op.depth;
        break;
      case OperatorKind::attention: {
        const AttentionShape& a = op.attention;
        unit.saved_cut += a.heads * (a.head_dim + a.v_head_dim) +
                          a.kv_heads * static_cast<double>(a.head_dim + a.v_head_dim);
        break;
      }
      case OperatorKind::norm:
        cut += rows * op.columns;
        break;
      case OperatorKind::activation:
        cut += rows * op.columns * (op.gated ? 2 : 1);
        break;
      case OperatorKind::residual:
      case OperatorKind::rotary:
      case OperatorKind::moving:
      case OperatorKind::loss:  // logits are counted by themselves
        break;
    }
  }
}

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
    for (const GroupOperator& op : unit.operators) {
      if (op.kind == OperatorKind::product) {
        sum += Flop{2 * each * routed * op.rows * op.copies * op.columns * op.depth};
      } else if (op.kind == OperatorKind::attention) {
        AttentionWork work;
        work.queries = work.keys = each;
        work.heads = op.attention.heads;
        work.head_dim = op.attention.head_dim;
        work.v_head_dim = op.attention.v_head_dim;
        work.window = op.attention.window;
        work.causal = op.causal;
        sum += attention_model_flop(work);
      }
    }
  }
  return repeat * sum;
}

int LayerGroup::width_out() const {
  if (!units.empty()) return units.back().width_out;
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
    unit.operators.push_back(product("product", out, in, second ? Cut::depth : Cut::columns));
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
      GroupOperator copy = passing(OperatorKind::moving, "concat", width);
      copy.depth = 2;
      unit.operators.push_back(copy);
      group.units.push_back(std::move(unit));
      break;
    }
    case Interaction::dot: {
      unit.name = "dot";
      GroupOperator pairs = product("pairs", shape.features, shape.dim, Cut::none, shape.features);
      pairs.weightless = true;
      unit.operators.push_back(pairs);
      const int pair_count = shape.features * (shape.features - 1) / 2;
      GroupOperator pick = passing(OperatorKind::moving, "pick_pairs", pair_count);
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
        unit.operators.push_back(product("cross_down", rank, width, Cut::columns));
        unit.operators.push_back(product("cross_up", width, rank, Cut::depth));
        unit.parameters_cut = 2 * rank * width;
        unit.opens = unit.closes = true;
      } else {
        unit.operators.push_back(product("cross", width, width, Cut::columns));
        unit.parameters_cut = rank * width;
        unit.opens = unit.gathers = true;
      }
      unit.parameters_whole = width;
      unit.cut_limit = static_cast<int>(rank);
      // x0 (product + bias) + x: bias and product read and written, sum of three.
      GroupOperator combine = passing(OperatorKind::moving, "cross_combine", width);
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

Unit attention_unit(const TransformerShape& s) {
  Unit unit;
  unit.name = "attention";
  unit.width_in = unit.width_out = s.hidden;
  const int kv = s.kv_heads > 0 ? s.kv_heads : s.heads;
  const int dim = s.head_dim > 0 ? s.head_dim : s.hidden / s.heads;
  const int v_dim = s.v_head_dim > 0 ? s.v_head_dim : dim;
  const bool latent = s.kv_lora_rank > 0;
  const int key_heads = latent ? s.heads : kv;
  const double q = static_cast<double>(s.heads) * dim, k = static_cast<double>(key_heads) * dim;
  const double v = static_cast<double>(key_heads) * v_dim;
  const double h = s.hidden;
  const double norm_width = s.bias ? 2 * h : h;
  if (s.norms && s.norms_per_layer > 0) {
    unit.operators.push_back(passing(OperatorKind::norm, "norm", h));
    unit.parameters_whole += 0.5 * s.norms_per_layer * norm_width;
  }
  const auto project = [&](std::string_view name, double columns, double depth, Cut cut) {
    GroupOperator op = product(name, columns, depth, cut);
    op.adapts = true;
    unit.operators.push_back(op);
    (cut == Cut::none ? unit.parameters_whole : unit.parameters_cut) += columns * depth;
  };
  if (latent) {
    // Every tensor rank has whole latents, and its heads of what is made of them.
    const double low = s.kv_lora_rank, rope = s.rope_head_dim, q_low = s.q_lora_rank;
    if (q_low > 0) {
      project("q_down", q_low, h, Cut::none);
      project("q_up", q, q_low, Cut::columns);
    } else {
      project("q", q, h, Cut::columns);
    }
    project("kv_down", low + rope, h, Cut::none);
    unit.operators.back().keeps_input = false;
    project("kv_up", s.heads * (dim - rope + v_dim), low, Cut::columns);
    unit.operators.push_back(passing(OperatorKind::norm, "latent_norms", q_low + low));
    unit.parameters_whole += q_low + low;
  } else {
    project("qkv", q + k + v, h, Cut::columns);
  }
  if (s.rotary)
    unit.operators.push_back(passing(OperatorKind::rotary, "rope", q + k, Cut::columns));
  GroupOperator core = passing(OperatorKind::attention, "attention", 0, Cut::columns);
  core.attention.heads = s.heads;
  core.attention.kv_heads = key_heads;
  core.attention.head_dim = dim;
  core.attention.v_head_dim = v_dim;
  core.attention.window = s.window;
  core.causal = s.causal;
  unit.operators.push_back(core);
  project("attention_out", h, static_cast<double>(s.heads) * v_dim, Cut::depth);
  unit.operators.back().keeps_input = false;  // attention keeps its output
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.parameters_cut += s.bias && !latent ? q + k + v : 0;
  unit.parameters_whole += s.bias ? h : 0;
  unit.head_limit = s.heads;
  count_saved(unit);
  return unit;
}

/// `routed`: the experts of a layer; otherwise one dense block of `width`.
Unit feed_forward_unit(const TransformerShape& s, int width, bool routed, bool with_norm) {
  Unit unit;
  unit.name = routed ? "experts" : "feed_forward";
  unit.starts = false;
  unit.width_in = unit.width_out = s.hidden;
  const double h = s.hidden, w = width, up = s.gated ? 2 * w : w;
  const double norm_width = s.bias ? 2 * h : h;
  if (with_norm && s.norms && s.norms_per_layer > 0) {
    unit.operators.push_back(passing(OperatorKind::norm, "norm", h));
    unit.parameters_whole += 0.5 * s.norms_per_layer * norm_width;
  }
  if (routed) {
    unit.experts = s.experts;
    unit.experts_per_token = s.experts_per_token;
    unit.parameters_whole += h * s.experts;
  }
  unit.operators.push_back(product("mlp_up", up, h, Cut::columns));
  GroupOperator activation = passing(OperatorKind::activation, "activation", w, Cut::columns);
  activation.gated = s.gated;
  unit.operators.push_back(activation);
  unit.operators.push_back(product("mlp_down", h, w, Cut::depth));
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.parameters_cut = h * up + h * w + (s.bias && !routed ? up : 0);
  unit.parameters_whole += s.bias && !routed ? h : 0;
  unit.cut_limit = width;
  count_saved(unit);
  if (routed) {
    // Rows in the order of their experts and what comes back; probabilities of the router in FP32;
    // of the token itself, the norm's input and output.
    unit.saved_whole = 2 * h;
    unit.saved_token = 2.0 * s.experts + (with_norm ? 2 * h : 0);
  }
  return unit;
}

Unit modulation_unit(const TransformerShape& s) {
  Unit unit;
  unit.name = "modulation";
  unit.width_in = unit.width_out = s.hidden;
  unit.opens = unit.closes = false;
  const double h = s.hidden;
  GroupOperator condition = product("modulation", 6 * h, s.modulation, Cut::none, 1 / s.tokens);
  unit.operators.push_back(condition);
  GroupOperator apply = passing(OperatorKind::moving, "scale_shift_gate", h);
  apply.depth =
      6;  // two scalings and two gates, in and out of one kernel each, less the fused ones
  unit.operators.push_back(apply);
  unit.parameters_whole = 6 * h * s.modulation + 6 * h;
  count_saved(unit);
  return unit;
}

}  // namespace

LayerGroup transformer(std::string name, const TransformerShape& shape) {
  need(shape.layers >= 1, name, "layers", shape.layers, "at least 1");
  need(shape.hidden >= 1, name, "hidden", shape.hidden, "at least 1");
  need(shape.heads >= 1, name, "heads", shape.heads, "at least 1");
  need(shape.head_dim > 0 || shape.hidden >= shape.heads, name, "heads", shape.heads,
       "at most hidden");
  const int kv = shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
  need(shape.heads % kv == 0, name, "kv_heads", kv, "a divisor of heads");
  if (shape.kv_lora_rank > 0) {
    const int dim = shape.head_dim > 0 ? shape.head_dim : shape.hidden / shape.heads;
    need(shape.rope_head_dim >= 0 && shape.rope_head_dim < dim, name, "rope_head_dim",
         shape.rope_head_dim, "below head_dim");
  } else {
    need(shape.q_lora_rank == 0, name, "q_lora_rank", shape.q_lora_rank, "0 without kv_lora_rank");
  }
  need(shape.ffn >= 1, name, "ffn", shape.ffn, "at least 1");
  if (shape.experts > 0) {
    need(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, name,
         "experts_per_token", shape.experts_per_token, "from 1 to the number of experts");
  }
  if (shape.modulation > 0) {
    need(shape.tokens > 0, name, "tokens", shape.tokens, "given where norms are adaptive");
  }
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::transformer;
  group.tokens = shape.tokens;
  group.repeat = shape.layers;
  if (shape.modulation > 0) group.units.push_back(modulation_unit(shape));
  group.units.push_back(attention_unit(shape));
  group.units.back().starts = shape.modulation == 0;
  const bool routed = shape.experts > 0;
  const bool shared = routed && shape.shared_ffn > 0;
  if (shared) group.units.push_back(feed_forward_unit(shape, shape.shared_ffn, false, true));
  group.units.push_back(feed_forward_unit(shape, shape.ffn, routed, !shared));
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
  GroupOperator rows = passing(OperatorKind::moving, "look_up", hidden);
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
  unit.operators.push_back(product("patches", hidden, patch_values, Cut::none));
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
    GroupOperator norm = passing(OperatorKind::norm, "final_norm", shape.hidden);
    unit.operators.push_back(norm);
    unit.parameters_whole += shape.bias ? 2 * shape.hidden : shape.hidden;
  }
  unit.operators.push_back(product("head", shape.outputs, shape.hidden, Cut::columns, rows));
  if (shape.loss) {
    GroupOperator loss = passing(OperatorKind::loss, "loss", shape.outputs, Cut::columns);
    loss.rows = rows;
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
    for (GroupOperator& op : unit.operators) {
      if (op.kind == OperatorKind::attention) {
        group.kind = GroupKind::transformer;
        op.cut = Cut::columns;
        unit.head_limit = op.attention.heads;
      } else if (op.kind == OperatorKind::product && !op.weightless) {
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

std::vector<LayerGroup> decoder_groups(const DecoderShape& card) {
  const Model model = make_decoder(card);
  std::vector<LayerGroup> groups;
  LayerGroup words = token_embedding("token_embedding", model.vocab, model.hidden,
                                     card.position == Position::learned ? card.positions : 0, 0);
  words.units[0].parameters_cut = model.embedding_parameters;
  groups.push_back(std::move(words));
  // Runs of layers: kinds may alternate, so a run of one kind is a group, and a period of several
  // kinds that repeats is one as well.
  const auto& order = model.layer_kind;
  std::size_t at = 0;
  while (at < order.size()) {
    std::size_t period = 1, repeats = 1;
    for (std::size_t p = 1; p <= 8 && at + p <= order.size(); ++p) {
      std::size_t r = 1;
      const auto same = [&](std::size_t from) {
        return std::equal(order.begin() + static_cast<std::ptrdiff_t>(at),
                          order.begin() + static_cast<std::ptrdiff_t>(at + p),
                          order.begin() + static_cast<std::ptrdiff_t>(from));
      };
      while (at + (r + 1) * p <= order.size() && same(at + r * p)) ++r;
      if (r * p > repeats * period) {
        period = p;
        repeats = r;
      }
    }
    LayerGroup group;
    group.kind = GroupKind::transformer;
    group.tokens = 0;
    group.repeat = static_cast<int>(repeats);
    for (std::size_t i = 0; i < period; ++i) {
      const LayerKind& kind = model.kinds[order[at + i]];
      const AttentionShape& a = kind.attention;
      const FeedForwardShape& ff = kind.feed_forward;
      TransformerShape s;
      s.hidden = model.hidden;
      s.heads = a.heads;
      s.kv_heads = a.kv_heads;
      s.head_dim = a.head_dim;
      s.v_head_dim = a.v_head_dim;
      s.q_lora_rank = a.q_lora_rank;
      s.kv_lora_rank = a.kv_lora_rank;
      s.rope_head_dim = a.rope_head_dim;
      s.ffn = ff.width;
      s.gated = ff.gated;
      s.rotary = a.rotary;
      s.window = a.window;
      s.norms_per_layer = kind.norms;
      s.experts = ff.experts;
      s.experts_per_token = ff.experts_per_token;
      s.shared_ffn = ff.shared_width;
      Unit attention = attention_unit(s);
      // The card's counts hold biases and norms that the shapes alone do not tell.
      const double down =
          a.latent() ? model.hidden * (1.0 * a.q_lora_rank + a.kv_lora_rank + a.rope_head_dim) : 0;
      attention.parameters_cut = kind.attention_parameters - down;
      attention.parameters_whole = 0.5 * kind.norm_parameters + down;
      group.units.push_back(std::move(attention));
      const bool routed = ff.routed();
      if (routed && ff.shared_width > 0) {
        Unit shared = feed_forward_unit(s, ff.shared_width, false, true);
        shared.parameters_cut = kind.dense_parameters - static_cast<double>(s.hidden) * ff.experts;
        shared.parameters_whole = 0.5 * kind.norm_parameters;
        group.units.push_back(std::move(shared));
      }
      Unit block = feed_forward_unit(s, ff.width, routed, !routed || ff.shared_width == 0);
      if (routed) {
        block.parameters_cut = kind.expert_parameters / ff.experts;
        block.parameters_whole = static_cast<double>(s.hidden) * ff.experts +
                                 (ff.shared_width > 0 ? 0 : 0.5 * kind.norm_parameters);
      } else {
        block.parameters_cut = kind.dense_parameters;
        block.parameters_whole = 0.5 * kind.norm_parameters;
      }
      group.units.push_back(std::move(block));
    }
    group.name = "transformer";
    const auto earlier = std::ranges::count_if(
        groups, [](const LayerGroup& g) { return g.kind == GroupKind::transformer; });
    if (earlier > 0) group.name.append("_").append(std::to_string(earlier + 1));
    groups.push_back(std::move(group));
    at += period * repeats;
  }
  HeadShape last;
  last.hidden = model.hidden;
  last.outputs = model.vocab;
  last.tied = card.tied_embeddings;
  last.tokens = 0;
  LayerGroup end = head("head", last);
  end.units[0].parameters_cut = model.head_parameters;
  end.units[0].parameters_whole = model.final_norm_parameters;
  groups.push_back(std::move(end));
  for (std::size_t i = 1; i < groups.size(); ++i) groups[i].waits_for = {static_cast<int>(i) - 1};
  return groups;
}

}  // namespace scalemodel
