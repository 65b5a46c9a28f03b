// How a model is laid out on a cluster: degrees, order, pipeline, sharding, recomputation.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/strategy/or_default.hpp"
#include "scalemodel/strategy/schedule.hpp"

namespace scalemodel {

enum class Sharding : std::uint8_t { ddp, zero1, zero2, zero3, hsdp };

template <>
struct EnumNames<Sharding> {
  static constexpr std::string_view what = "data-parallel sharding";
  static constexpr std::array<std::string_view, 5> names{"ddp", "zero1", "zero2", "zero3", "hsdp"};
};

/// Parameters live sharded and are gathered layer by layer.
constexpr bool gathers_parameters(Sharding sharding) {
  return sharding == Sharding::zero3 || sharding == Sharding::hsdp;
}

enum class Recompute : std::uint8_t { none, selective, full };

template <>
struct EnumNames<Recompute> {
  static constexpr std::string_view what = "recomputation";
  static constexpr std::array<std::string_view, 3> names{"none", "selective", "full"};
};

enum class ContextParallel : std::uint8_t { ring, all_to_all, all_gather };

template <>
struct EnumNames<ContextParallel> {
  static constexpr std::string_view what = "context parallelism";
  static constexpr std::array<std::string_view, 3> names{"ring", "all_to_all", "all_gather"};
};

/// How tensor-parallel collectives hide under the GEMMs beside them: not at all; as a
/// ring that exchanges one of tp chunks at a time; or in a few pipelined chunks, each a collective.
enum class TensorOverlap : std::uint8_t { off, ring, pipelined };

template <>
struct EnumNames<TensorOverlap> {
  static constexpr std::string_view what = "tensor-parallel overlap";
  static constexpr std::array<std::string_view, 3> names{"off", "ring", "pipelined"};
};

/// The precision of linear layers is the task's where a strategy leaves it open.
template <>
inline constexpr std::string_view kDefaultName<Precision> = "task";

/// Axes of the mesh, innermost first; 24 permutations of tp, cp, dp, pp. Axes placed first sit on
/// the innermost network level.
enum class Placement : std::uint8_t {};
enum class Axis : std::uint8_t { tp, cp, dp, pp };

template <>
struct EnumNames<Placement> {
  static constexpr std::string_view what = "placement";
  static constexpr std::array<std::string_view, 24> names{
      "tp-cp-dp-pp", "tp-cp-pp-dp", "tp-dp-cp-pp", "tp-dp-pp-cp", "tp-pp-cp-dp", "tp-pp-dp-cp",
      "cp-tp-dp-pp", "cp-tp-pp-dp", "cp-dp-tp-pp", "cp-dp-pp-tp", "cp-pp-tp-dp", "cp-pp-dp-tp",
      "dp-tp-cp-pp", "dp-tp-pp-cp", "dp-cp-tp-pp", "dp-cp-pp-tp", "dp-pp-tp-cp", "dp-pp-cp-tp",
      "pp-tp-cp-dp", "pp-tp-dp-cp", "pp-cp-tp-dp", "pp-cp-dp-tp", "pp-dp-tp-cp", "pp-dp-cp-tp"};
};

/// The axes of every placement, innermost first, read from its name.
inline constexpr auto kPlacementAxes = [] {
  constexpr const auto& names = EnumNames<Placement>::names;
  std::array<std::array<Axis, 4>, names.size()> axes{};
  for (std::size_t placement = 0; placement < names.size(); ++placement) {
    for (std::size_t i = 0; i < 4; ++i) {
      const char letter = names[placement][3 * i];
      axes[placement][i] = letter == 't'   ? Axis::tp
                           : letter == 'c' ? Axis::cp
                           : letter == 'd' ? Axis::dp
                                           : Axis::pp;
    }
  }
  return axes;
}();

constexpr const std::array<Axis, 4>& axes_of(Placement placement) {
  return kPlacementAxes[static_cast<std::size_t>(placement)];
}

/// Small and flat; a search counts through millions and keeps the few it needs. Zero stands for
/// "derived" where the table says so.
struct Strategy {
  std::uint32_t dp = 0;
  std::uint16_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::uint16_t micro_batch = 1;
  std::uint16_t shard_degree = 0, secondary_degree = 0;
  std::uint16_t recompute_layers = 0;
  std::uint8_t etp = 0;
  std::uint8_t vpp = 1;
  Schedule schedule = Schedule::one_f_one_b;
  Sharding sharding = Sharding::zero1;
  Recompute recompute = Recompute::none;
  ContextParallel context = ContextParallel::ring;
  Placement placement{};
  bool sequence_parallel = true;
  bool regather = true;
  bool split_p2p = true;
  bool quantized_gather = false, quantized_reduce = false;
  bool offload_weights = false, offload_activations = false, offload_optimizer = false;
  OrDefault<OnOff> overlap_grad_reduce;
  OrDefault<OnOff> overlap_param_gather;
  OrDefault<TensorOverlap> overlap_tp;
  OrDefault<Precision> linear_precision;

  bool operator==(const Strategy&) const = default;
};
static_assert(sizeof(Strategy) <= 40);  // 28 degrees and switches

template <>
struct RecordOf<Strategy> {
  static constexpr std::string_view name = "Strategy";
  using T = Strategy;
  static constexpr FieldTable fields{
      field("tp", &T::tp, 1, 65535, "tensor-parallel degree"),
      field("cp", &T::cp, 1, 65535, "context-parallel degree"),
      field("pp", &T::pp, 1, 65535, "pipeline stages"),
      field("dp", &T::dp, 0, 1e8, "data-parallel degree; 0 = accelerators / (tp cp pp)"),
      field("ep", &T::ep, 1, 65535, "expert-parallel degree"),
      field("etp", &T::etp, 0, 255, "tensor-parallel degree of experts; 0 = 1 with ep, else tp"),
      field("vpp", &T::vpp, 1, 255, "virtual stages per pipeline rank"),
      field("micro_batch", &T::micro_batch, 1, 65535, "sequences per replica and pass"),
      field("schedule", &T::schedule, "pipeline schedule; 1f1b with vpp > 1 is interleaved"),
      field("sharding", &T::sharding, "what data-parallel ranks shard"),
      field("shard_degree", &T::shard_degree, 0, 65535, "HSDP: ranks of a shard group; 0 = a node"),
      field("secondary_degree", &T::secondary_degree, 0, 65535,
            "ZeRO-3, HSDP: ranks that share a second copy of the parameters (hpZ); 0 = none"),
      field("quantized_gather", &T::quantized_gather,
            "ZeRO-3, HSDP: parameters gathered in 8 bits (qwZ)"),
      field("quantized_reduce", &T::quantized_reduce,
            "ZeRO-3, HSDP: gradients reduced in 4 bits by all-to-alls (qgZ)"),
      field("recompute", &T::recompute, "activation recomputation"),
      field("recompute_layers", &T::recompute_layers, 0, 65535,
            "layers recomputed per pipeline rank; 0 = all"),
      field("context", &T::context, "how context parallelism exchanges keys and values"),
      field("sequence_parallel", &T::sequence_parallel, "norms and residuals split over tp"),
      field("regather", &T::regather,
            "sequence parallelism: inputs gathered again for weight gradients, not kept whole"),
      field("split_p2p", &T::split_p2p, "tensor ranks send a part each to the next stage"),
      field("placement", &T::placement, "mesh axes, innermost first"),
      field("offload_weights", &T::offload_weights, "weights in host memory"),
      field("offload_activations", &T::offload_activations, "activations in host memory"),
      field("offload_optimizer", &T::offload_optimizer, "optimizer states in host memory"),
      field("overlap_grad_reduce", &T::overlap_grad_reduce, "hide gradient reduction"),
      field("overlap_param_gather", &T::overlap_param_gather, "hide parameter gathering"),
      field("overlap_tp", &T::overlap_tp, "hide tensor-parallel communication"),
      field("linear_precision", &T::linear_precision, "of linear layers, instead of the task's")};
};

}  // namespace scalemodel
