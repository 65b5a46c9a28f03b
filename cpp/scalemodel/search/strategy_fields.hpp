// Fields of a strategy as bits of a mask. Private to the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

constexpr std::uint32_t bit(std::size_t index) { return std::uint32_t{1} << index; }

template <auto Member>
constexpr std::uint32_t bit_of() {
  return bit(field_index(Member));
}

static_assert(field_count<Strategy> <= 32, "masks of fields have 32 bits");

/// Fields that the points carry; all others are options.
inline constexpr std::uint32_t kPointFields =
    bit_of<&Strategy::tp>() | bit_of<&Strategy::cp>() | bit_of<&Strategy::pp>() |
    bit_of<&Strategy::dp>() | bit_of<&Strategy::ep>() | bit_of<&Strategy::etp>() |
    bit_of<&Strategy::vpp>() | bit_of<&Strategy::micro_batch>() | bit_of<&Strategy::schedule>();

/// Fields in which the members of an option group may differ.
inline constexpr std::uint32_t kFreeFields =
    bit_of<&Strategy::sharding>() | bit_of<&Strategy::shard_degree>() |
    bit_of<&Strategy::secondary_degree>() | bit_of<&Strategy::quantized_gather>() |
    bit_of<&Strategy::quantized_reduce>() | bit_of<&Strategy::overlap_grad_reduce>() |
    bit_of<&Strategy::overlap_param_gather>() | bit_of<&Strategy::offload_weights>() |
    bit_of<&Strategy::offload_activations>() | bit_of<&Strategy::offload_optimizer>();

/// Whether two strategies agree in the fields of `mask`.
inline bool agree(const Strategy& a, const Strategy& b, std::uint32_t mask) {
  bool equal = true;
  std::size_t index = 0;
  for_each_field<Strategy>([&](const auto& field) {
    if ((mask & bit(index++)) != 0) equal = equal && a.*(field.member) == b.*(field.member);
  });
  return equal;
}

/// `strategy` with the free fields of `member`.
inline Strategy with_member(Strategy strategy, const Strategy& member) noexcept {
  constexpr auto fields = RecordOf<Strategy>::fields;
  const auto set = [&]<std::size_t index>() {
    if constexpr ((kFreeFields & bit(index)) != 0) {
      constexpr auto field = field_at<index>(fields).member;
      strategy.*field = member.*field;
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (set.template operator()<I>(), ...);
  }(std::make_index_sequence<field_count<Strategy>>());
  return strategy;
}

}  // namespace scalemodel
