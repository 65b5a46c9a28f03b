// One name table per enumeration, used by bindings, command line, catalogue and messages.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace scalemodel {

/// Specialise with `static constexpr std::array names{...}`, in the order of the enumerators, and
/// `static constexpr std::string_view what`, the noun used in messages.
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires { EnumNames<E>::names.size(); };

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

template <NamedEnum E>
constexpr std::optional<E> enum_from(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
    if (EnumNames<E>::names[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

/// "a, b, c": every legal name, for messages.
template <NamedEnum E>
std::string all_names() {
  std::string text;
  for (const std::string_view name : EnumNames<E>::names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace scalemodel
