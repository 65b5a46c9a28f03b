// A choice that may be left open: to the software stack, or to the task.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

/// The name of "left open" among the names of a choice: what decides it instead.
template <NamedEnum E>
inline constexpr std::string_view kDefaultName = "stack";

/// An enumerator of E, or none: then a default decides, which `value_or` is given. One byte, 0 for
/// none, so that it counts, is stored and is named like an enumeration of one more enumerator.
template <NamedEnum E>
class OrDefault {
 public:
  constexpr OrDefault() = default;
  constexpr OrDefault(E value)  // NOLINT(google-explicit-constructor): a choice is one of E
      : code_(static_cast<std::uint8_t>(static_cast<std::uint8_t>(value) + 1)) {}
  /// By number, as in a table of names.
  template <std::integral I>
  explicit constexpr OrDefault(I code) : code_(static_cast<std::uint8_t>(code)) {}

  constexpr bool is_default() const { return code_ == 0; }
  constexpr E value_or(E otherwise) const {
    return is_default() ? otherwise : static_cast<E>(code_ - 1);
  }
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  explicit constexpr operator I() const {
    return static_cast<I>(code_);
  }
  constexpr bool operator==(const OrDefault&) const = default;

 private:
  std::uint8_t code_ = 0;
};

template <NamedEnum E>
struct EnumNames<OrDefault<E>> {
  static constexpr std::string_view what = EnumNames<E>::what;
  static constexpr auto names = [] {
    std::array<std::string_view, EnumNames<E>::names.size() + 1> all{kDefaultName<E>};
    for (std::size_t i = 1; i < all.size(); ++i) all[i] = EnumNames<E>::names[i - 1];
    return all;
  }();
};

enum class OnOff : std::uint8_t { off, on };

template <>
struct EnumNames<OnOff> {
  static constexpr std::string_view what = "switch";
  static constexpr std::array<std::string_view, 2> names{"off", "on"};
};

constexpr bool enabled(OrDefault<OnOff> choice, bool otherwise) {
  return choice.is_default() ? otherwise : choice == OnOff::on;
}

}  // namespace scalemodel
