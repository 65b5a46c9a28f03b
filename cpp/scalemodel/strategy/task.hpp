// What is to be done: a training or fine-tuning step.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/strategy/or_default.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

enum class Optimizer : std::uint8_t {
  adam,
  sgd,
  sgd_momentum,
  muon,
  lion,
  adafactor,
  adam_8bit,
  shampoo,
  soap
};

template <>
struct EnumNames<Optimizer> {
  static constexpr std::string_view what = "optimizer";
  static constexpr std::array<std::string_view, 9> names{
      "adam", "sgd", "sgd_momentum", "muon", "lion", "adafactor", "adam_8bit", "shampoo", "soap"};
};

/// State tensors beside the master weights. Muon has one of each matrix, and updates everything
/// else by Adam; the factored second moment of Adafactor is a row and a column of each matrix,
/// nothing beside the whole. Shampoo has a filtered gradient and the second moment that its step is
/// as long as Adam's by, SOAP has Adam's two, both of all parameters; their Kronecker factors are
/// counted by matrix.
constexpr int moments(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::adam:
    case Optimizer::adam_8bit:
    case Optimizer::shampoo:
    case Optimizer::soap:
      return 2;
    case Optimizer::sgd:
    case Optimizer::adafactor:
      return 0;
    case Optimizer::sgd_momentum:
    case Optimizer::muon:
    case Optimizer::lion:
      return 1;
  }
  return 0;
}

enum class GradientPrecision : std::uint8_t { fp32, bf16 };

template <>
struct EnumNames<GradientPrecision> {
  static constexpr std::string_view what = "gradient precision";
  static constexpr std::array<std::string_view, 2> names{"fp32", "bf16"};
};

/// Which parameters learn. `lora`: low-rank adapters beside frozen weights.
enum class Method : std::uint8_t { full, lora };

template <>
struct EnumNames<Method> {
  static constexpr std::string_view what = "fine-tuning method";
  static constexpr std::array<std::string_view, 2> names{"full", "lora"};
};

/// Matrices beside which adapters sit: what makes queries, keys and values; these and what
/// attention writes through; those of feed-forward layers too.
enum class LoraTargets : std::uint8_t { qkv, attention, all };

template <>
struct EnumNames<LoraTargets> {
  static constexpr std::string_view what = "adapter targets";
  static constexpr std::array<std::string_view, 3> names{"qkv", "attention", "all"};
};

struct Task {
  int global_batch = 1;         ///< sequences per optimizer step
  bool batch_is_limit = false;  ///< replicas take global_batch / dp, rounded down, each
  int sequence = 1;             ///< tokens per sequence
  Precision precision = Precision::bf16;
  OrDefault<AttentionKernel> attention;
  OrDefault<GradientPrecision> gradient_precision;
  OrDefault<OnOff> fused_norm;
  OrDefault<OnOff> dropout;
  Optimizer optimizer = Optimizer::adam;
  int master_bytes = 4;  ///< of a weight the optimizer keeps; 0 = none
  int moment_bytes = 4;  ///< of one optimizer state
  double imbalance = 1;  ///< load of the busiest expert rank over the mean
  Method method = Method::full;
  int lora_rank = 16;
  LoraTargets lora_targets = LoraTargets::attention;
  int images = 0;  ///< of a sequence, whose tokens are among its own
  int image_height = 0, image_width = 0;
  bool frozen_vision = false;
  /// Of a sequence, for an encoder whose output it attends to; 0: as many as the sequence has, or
  /// as every source of the model.
  int source_tokens = 0;

  bool operator==(const Task&) const = default;
};

template <>
struct RecordOf<Task> {
  static constexpr std::string_view name = "Task";
  using T = Task;
  static constexpr FieldTable fields{
      field("global_batch", &T::global_batch, 1, 1e9, "sequences per optimizer step"),
      field("sequence", &T::sequence, 1, 1e8, "tokens per sequence"),
      field("batch_is_limit", &T::batch_is_limit,
            "global_batch is the most: a replica takes global_batch / dp, rounded down"),
      field("precision", &T::precision, "format of matrix multiplications"),
      field("attention", &T::attention, "attention kernel"),
      field("gradient_precision", &T::gradient_precision, "gradients as accumulated and reduced"),
      field("fused_norm", &T::fused_norm, "norms in one kernel"),
      field("dropout", &T::dropout, "dropout is applied, its masks saved for backward"),
      field("optimizer", &T::optimizer, "optimizer"),
      field("master_bytes", &T::master_bytes, 0, 8, "master copy of a weight; 0 = none"),
      field("moment_bytes", &T::moment_bytes, 1, 8,
            "one optimizer state of a weight, unless the optimizer says"),
      field("imbalance", &T::imbalance, 1, 1e4, "busiest expert rank over the mean"),
      field("method", &T::method, "which parameters learn"),
      field("lora_rank", &T::lora_rank, 1, 1e5, "rank of the adapters"),
      field("lora_targets", &T::lora_targets, "matrices with adapters"),
      field("images", &T::images, 0, 1e6, "images of a sequence, whose tokens are among its own"),
      field("image_height", &T::image_height, 0, 1e6, "pixels of an image"),
      field("image_width", &T::image_width, 0, 1e6, "pixels of an image"),
      field("frozen_vision", &T::frozen_vision,
            "the vision tower does not learn; its projector does"),
      field("source_tokens", &T::source_tokens, 0, 1e7,
            "tokens of the source that an encoder reads of every sequence; 0 = the sequence's")};
};

}  // namespace scalemodel
