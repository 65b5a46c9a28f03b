// Modules of a layer that selective recomputation may repeat, by Megatron-Core's names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, recompute_modules.
enum class Module : std::uint8_t {
  core_attn,       ///< scores, softmax and weighted values
  layernorm,       ///< norms in front of blocks: their outputs are made again
  mla_up_proj,     ///< queries, keys and values out of their latents, with rotation
  mlp,             ///< a dense feed-forward block
  moe,             ///< router, exchange, experts and shared experts
  moe_act,         ///< the activation between the GEMMs of experts
  shared_experts,  ///< beside the routed ones
};
inline constexpr std::array<std::string_view, 7> kModuleNames{
    "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"};

/// A set of modules, bit by bit; none leaves the choice to what the stack calls selective.
enum class RecomputeModules : std::uint8_t {};

constexpr bool holds(RecomputeModules set, Module module) {
  return (static_cast<unsigned>(set) >> static_cast<unsigned>(module) & 1U) != 0;
}

/// Whether a set repeats a module, alone or as a part of `moe`.
constexpr bool repeats(RecomputeModules set, Module module) {
  const bool inside = module == Module::moe_act || module == Module::shared_experts;
  return holds(set, module) || (inside && holds(set, Module::moe));
}

namespace detail {

inline constexpr std::size_t kModuleSets = std::size_t{1} << kModuleNames.size();

/// Names of a set in alphabetical order, joined by "+", one after the other.
struct ModuleSetNames {
  std::array<char, 8192> text{};
  std::array<std::size_t, kModuleSets + 1> start{};
};

constexpr ModuleSetNames module_set_names() {
  ModuleSetNames all;
  std::size_t at = 0;
  const auto put = [&](std::string_view word) {
    for (const char letter : word) all.text[at++] = letter;
  };
  for (std::size_t set = 0; set < kModuleSets; ++set) {
    all.start[set] = at;
    if (set == 0) put("stack");
    for (std::size_t i = 0; i < kModuleNames.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      if (at > all.start[set]) put("+");
      put(kModuleNames[i]);
    }
  }
  all.start[kModuleSets] = at;
  return all;
}

inline constexpr ModuleSetNames kModuleSetNames = module_set_names();

}  // namespace detail

template <>
struct EnumNames<RecomputeModules> {
  static constexpr std::string_view what = "recomputed modules";
  static constexpr auto names = [] {
    std::array<std::string_view, detail::kModuleSets> all{};
    for (std::size_t set = 0; set < all.size(); ++set) {
      const std::size_t from = detail::kModuleSetNames.start[set];
      all[set] = {detail::kModuleSetNames.text.data() + from,
                  detail::kModuleSetNames.start[set + 1] - from};
    }
    return all;
  }();
};

/// In any order, joined by "+", "," or blanks.
template <>
constexpr std::optional<RecomputeModules> enum_from<RecomputeModules>(std::string_view name) {
  if (name == EnumNames<RecomputeModules>::names[0]) return RecomputeModules{};
  unsigned set = 0;
  while (!name.empty()) {
    const std::size_t end = name.find_first_of("+, ");
    const std::string_view word = name.substr(0, end);
    name = end == std::string_view::npos ? std::string_view{} : name.substr(end + 1);
    if (word.empty()) continue;
    bool known = false;
    for (std::size_t i = 0; i < kModuleNames.size(); ++i) {
      if (word != kModuleNames[i]) continue;
      set |= 1U << i;
      known = true;
    }
    if (!known) return std::nullopt;
  }
  if (set == 0) return std::nullopt;
  return static_cast<RecomputeModules>(set);
}

template <>
inline std::string all_names<RecomputeModules>() {
  std::string text = "stack, or of these any joined by +";
  for (std::size_t i = 0; i < kModuleNames.size(); ++i) {
    text += i == 0 ? ": " : ", ";
    text += kModuleNames[i];
  }
  return text;
}

}  // namespace scalemodel
