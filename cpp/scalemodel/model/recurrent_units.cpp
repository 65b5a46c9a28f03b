#include "scalemodel/model/recurrent_units.hpp"

#include "scalemodel/model/group_units.hpp"

namespace scalemodel {
namespace {

using building::passing;

/// A recurrent mixer while its operators are listed.
struct Listing {
  Unit& unit;
  const LayerShape& layer;
  const RecurrentShape& shape;
  double hidden, inner, keys, heads;

  /// A narrow projection of the stream that every tensor rank has whole.
  void add_narrow(std::string_view name, double columns) const {
    add_whole(unit, name, columns, hidden).shares_input = true;
  }
  /// A kernel over the values of the rank's heads, with what it learns.
  void pass(std::string_view name, double columns, double passes, double learned) const {
    LayerOperator op = passing(OperatorKind::elementwise, name, columns, Cut::columns);
    op.depth = passes;
    op.bias = learned;
    unit.operators.push_back(op);
  }
  void convolve() const {
    const double channels = shape.conv_channels();
    LayerOperator op = passing(OperatorKind::convolution, "convolution", channels, Cut::columns);
    op.depth = shape.conv_width;
    op.bias = channels * (shape.conv_width + (layer.conv_bias ? 1 : 0));
    unit.operators.push_back(op);
  }
  /// `learned`: decays, time-step biases and skips.
  void scan(double learned) const {
    LayerOperator op = passing(OperatorKind::scan, "scan", inner, Cut::columns);
    op.recurrence = shape;
    op.bias = learned;
    unit.operators.push_back(op);
  }
};

/// Dao and Gu, arXiv 2405.21060, section 7: gate, input, both projections of the state and the
/// time steps in one GEMM.
void list_mamba2(const Listing& l) {
  const double rank = l.shape.rank, state = l.shape.key_dim;
  if (rank > 0) {
    // Time steps and projections of the state from what is convolved, as in Mamba-1, behind norms
    // (pfnet/plamo-2-8b, modeling_plamo.py).
    project(l.unit, "mixer_in", 2 * l.inner, l.hidden, Cut::columns);
    l.convolve();
    LayerOperator& steps =
        project(l.unit, "state_projections", rank + 2 * state, l.inner, Cut::depth);
    steps.bias = l.layer.scan_norm ? rank + 2 * state : 0;
    project(l.unit, "time_steps", l.heads, rank, Cut::columns);
    l.scan(3 * l.heads);
    l.pass("gate", l.inner, 3, 0);
    return;
  }
  LayerOperator& in = project(l.unit, "mixer_in", l.shape.projected(), l.hidden, Cut::columns);
  in.parts = {{2 * l.inner, 0}, {2 * l.keys, l.shape.groups}, {l.heads, 0}};
  in.bias = l.layer.scan_bias ? in.columns : 0;
  l.convolve();
  l.scan(3 * l.heads);
  l.pass("gated_norm", l.inner, 3, l.layer.scan_norm ? l.inner : 0);
}

/// Gu and Dao, arXiv 2312.00752: the state's projections depend on the convolved input.
void list_mamba1(const Listing& l) {
  const double state = l.shape.key_dim, rank = l.shape.rank;
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.inner, l.hidden, Cut::columns);
  in.bias = l.layer.scan_bias ? in.columns : 0;
  l.convolve();
  LayerOperator& steps =
      project(l.unit, "state_projections", rank + 2 * state, l.inner, Cut::depth);
  steps.bias = l.layer.scan_norm ? rank + 2 * state : 0;
  project(l.unit, "time_steps", l.inner, rank, Cut::columns).bias = l.inner;
  l.scan(l.inner * state + l.inner);
  l.pass("gate", l.inner, 3, 0);
}

/// Yang et al., arXiv 2412.06464: queries, keys, values and the gate, then a decay and a step size
/// per head.
void list_gated_delta(const Listing& l) {
  LayerOperator& in = project(l.unit, "mixer_in", l.shape.projected(), l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {2 * l.inner + 2 * l.heads, 0}};
  l.convolve();
  l.scan(2 * l.heads);
  l.pass("gated_norm", l.inner, 3, l.shape.value_dim);
}

/// Gu et al., arXiv 2508.15884, section 2.3: a gated delta rule whose values alone are convolved,
/// with weights that a low rank makes of every token (NVlabs/Jet-Nemotron, modeling/hf/jet_block.py
/// and dynamic_conv.py).
void list_jet(const Listing& l) {
  const double width = l.shape.conv_width;
  LayerOperator& in = project(l.unit, "mixer_in", l.shape.projected(), l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {2 * l.inner + 2 * l.heads, 0}};
  l.add_narrow("weights_down", l.shape.rank);
  LayerOperator& up = project(l.unit, "weights_up", width * l.inner, l.shape.rank, Cut::columns);
  up.bias = up.columns;
  l.pass("dynamic_weights", l.inner, width, 0);
  LayerOperator conv = passing(OperatorKind::convolution, "convolution", l.inner, Cut::columns);
  conv.depth = width;
  l.unit.operators.push_back(conv);
  l.scan(2 * l.heads);
  l.pass("gated_norm", l.inner, 3, l.shape.value_dim);
}

/// De et al., arXiv 2402.19427, sections 2.3 and 2.4: two branches; of one a convolution and a
/// recurrence whose two gates are block-diagonal products of what is convolved, a block a head.
void list_rg_lru(const Listing& l) {
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.inner, l.hidden, Cut::columns);
  in.bias = l.layer.scan_bias ? in.columns : 0;
  l.convolve();
  LayerOperator& gates = project(l.unit, "gates", 2 * l.inner, l.shape.value_dim, Cut::columns);
  gates.bias = gates.columns;
  l.scan(l.inner);
  l.pass("gate", l.inner, 3, 0);
}

/// Kimi Team, arXiv 2510.26692: a decay per channel of the keys and a gate, each from a low rank or
/// in full.
void list_kimi_delta(const Listing& l) {
  const double head = l.shape.value_dim;
  LayerOperator& in =
      project(l.unit, "mixer_in", 2 * l.keys + l.inner + l.heads, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {l.inner + l.heads, 0}};
  if (l.layer.scan_full_decay) {
    LayerOperator& decay = project(l.unit, "decay", l.keys, l.hidden, Cut::columns);
    decay.parts = {{l.keys, l.shape.groups}};
    decay.shares_input = true;
  } else {
    l.add_narrow("decay_down", head);
    project(l.unit, "decay_up", l.keys, head, Cut::columns).parts = {{l.keys, l.shape.groups}};
  }
  if (l.shape.rank > 0) {
    l.add_narrow("gate_down", l.shape.rank);
    project(l.unit, "gate_up", l.inner, l.shape.rank, Cut::columns);
  } else {
    project(l.unit, "gate", l.inner, l.hidden, Cut::columns).shares_input = true;
  }
  l.convolve();
  l.scan(l.keys + l.heads);
  l.pass("gated_norm", l.inner, 3, head);
}

/// Qin et al., arXiv 2401.04658: linear attention whose decay is fixed per head.
void list_lightning(const Listing& l) {
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.keys + l.inner, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {l.inner, 0}};
  project(l.unit, "gate", l.inner, l.hidden, Cut::columns).shares_input = true;
  l.scan(0);
  l.pass("gated_norm", l.inner, 3, l.inner);
}

/// A short convolution between two gates (Liquid AI, LFM2, arXiv 2511.23404).
void list_convolution(const Listing& l) {
  LayerOperator& in = project(l.unit, "mixer_in", 3 * l.inner, l.hidden, Cut::columns);
  in.bias = l.layer.scan_bias ? in.columns : 0;
  l.convolve();
  l.scan(0);
}

/// Peng et al., arXiv 2503.14456: every input is mixed with that of the token before; decays,
/// rates, gates and the share of the first layer's values come from low ranks, `rank` in all.
void list_rwkv7(const Listing& l) {
  l.pass("token_shift", l.hidden, 6, 6 * l.hidden);
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.keys + l.inner, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {l.inner, 0}};
  l.add_narrow("rank_down", l.shape.rank);
  project(l.unit, "rank_up", l.inner, l.shape.rank, Cut::columns).bias = 3 * l.inner;
  l.scan(3 * l.keys);
  l.pass("gated_norm", l.inner, 3, 2 * l.inner);
}

/// Yang et al., arXiv 2312.06635, whose decays of channels come from a low rank; Sun et al., arXiv
/// 2307.08621, whose decays are fixed.
void list_gla(const Listing& l) {
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.keys + l.inner, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {l.inner, 0}};
  project(l.unit, "gate", l.inner, l.hidden, Cut::columns).shares_input = true;
  if (l.shape.rank > 0) {
    l.add_narrow("decay_down", l.shape.rank);
    LayerOperator& decay = project(l.unit, "decay_up", l.keys, l.shape.rank, Cut::columns);
    decay.parts = {{l.keys, l.shape.groups}};
    decay.bias = l.keys;
  }
  if (l.shape.conv_channels() > 0) l.convolve();
  l.scan(0);
  l.pass("gated_norm", l.inner, 3, l.layer.scan_norm ? l.shape.value_dim : 0);
}

/// Qin et al., arXiv 2311.04823 and 2404.07904: inputs, forget gates with lower bounds, and what
/// the output is multiplied by, channel by channel or as queries of a state.
void list_hgrn(const Listing& l) {
  project(l.unit, "mixer_in", 2 * l.keys + l.inner, l.hidden, Cut::columns);
  l.scan(l.inner);
  l.pass("gated_norm", l.inner, 3, l.inner);
}

/// Yang et al., arXiv 2406.06484: no decay, and a step size per head.
void list_delta(const Listing& l) {
  LayerOperator& in =
      project(l.unit, "mixer_in", 2 * l.keys + l.inner + l.heads, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {l.inner + l.heads, 0}};
  if (l.shape.conv_channels() > 0) l.convolve();
  l.scan(0);
  l.pass("norm", l.inner, 2, l.layer.scan_norm ? l.shape.value_dim : 0);
}

/// Peng et al., arXiv 2305.13048: keys, values and receptances of inputs that are mixed with those
/// of the token before.
void list_rwkv4(const Listing& l) {
  l.pass("token_shift", l.hidden, 4, 3 * l.hidden);
  project(l.unit, "mixer_in", 3 * l.inner, l.hidden, Cut::columns);
  l.scan(2 * l.inner);
  l.pass("receptance", l.inner, 3, 0);
}

/// Peng et al., arXiv 2404.05892: decays and shares of the token before come from low ranks, `rank`
/// in all; of RWKV-5 they are fixed.
void list_rwkv6(const Listing& l) {
  const double rank = l.shape.rank;
  l.pass("token_shift", l.hidden, rank > 0 ? 6 : 5, (rank > 0 ? 6 : 4) * l.hidden);
  LayerOperator& in = project(l.unit, "mixer_in", 2 * l.keys + 2 * l.inner, l.hidden, Cut::columns);
  in.parts = {{2 * l.keys, l.shape.groups}, {2 * l.inner, 0}};
  if (rank > 0) {
    l.add_narrow("rank_down", rank);
    project(l.unit, "rank_up", l.inner, rank, Cut::columns);
  }
  l.scan(2 * l.keys);
  l.pass("gated_norm", l.inner, 3, 2 * l.inner);
}

void list_mixer(const Listing& l) {
  switch (l.shape.kind) {
    case Recurrence::none:
      return;
    case Recurrence::mamba1:
      list_mamba1(l);
      break;
    case Recurrence::mamba2:
      list_mamba2(l);
      break;
    case Recurrence::gated_delta:
      list_gated_delta(l);
      break;
    case Recurrence::kimi_delta:
      list_kimi_delta(l);
      break;
    case Recurrence::lightning:
      list_lightning(l);
      break;
    case Recurrence::convolution:
      list_convolution(l);
      break;
    case Recurrence::rwkv7:
      list_rwkv7(l);
      break;
    case Recurrence::jet:
      list_jet(l);
      break;
    case Recurrence::rg_lru:
      list_rg_lru(l);
      break;
    case Recurrence::gla:
      list_gla(l);
      break;
    case Recurrence::hgrn:
      list_hgrn(l);
      break;
    case Recurrence::delta:
      list_delta(l);
      break;
    case Recurrence::rwkv4:
      list_rwkv4(l);
      break;
    case Recurrence::rwkv6:
      list_rwkv6(l);
      break;
  }
}

}  // namespace

Unit recurrent_unit(const LayerShape& layer, bool beside) {
  const RecurrentShape& shape = layer.recurrence;
  Unit unit = begun_block("mixer", layer, beside ? 0 : (layer.norms + 1) / 2);
  unit.starts = !beside;
  unit.reads_stream = !beside;
  unit.mixes = true;
  const Listing listing{unit,
                        layer,
                        shape,
                        static_cast<double>(layer.hidden),
                        shape.inner(),
                        shape.keys(),
                        static_cast<double>(shape.heads)};
  list_mixer(listing);
  LayerOperator& out = project(unit, "mixer_out", layer.hidden, shape.inner(), Cut::depth);
  out.reads_attention = true;
  out.bias = layer.scan_bias ? layer.hidden : 0;
  if (!beside) unit.operators.push_back(passing(OperatorKind::residual, "residual", layer.hidden));
  unit.head_limit = shape.heads;
  finish_unit(unit);
  return unit;
}

}  // namespace scalemodel
