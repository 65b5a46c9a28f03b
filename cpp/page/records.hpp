// Values with a field table, from JSON and to it. What a page may say of a field is what Python
// may.
#pragma once

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <type_traits>

#include "page/json.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel::page {

template <class M>
struct IsQuantity : std::false_type {};
template <Dim D>
struct IsQuantity<Quantity<D>> : std::true_type {};

inline std::string shown(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::truth:
      return value.truth ? "true" : "false";
    case Json::Kind::number: {
      std::array<char, 32> digits;
      std::snprintf(digits.data(), digits.size(), "%.12g", value.number);
      return digits.data();
    }
    case Json::Kind::text:
      return "'" + value.text.substr(0, 60) + "'";
    case Json::Kind::list:
      return "[...]";
    case Json::Kind::object:
      return "{...}";
  }
  return {};
}

template <class F>
[[noreturn]] void reject(const F& field, const Json& value, const std::string& legal) {
  std::string message(field.name);
  message.append("=").append(shown(value)).append(": must be ").append(legal);
  throw MalformedQuestion(message.append(" (").append(field.meaning).append(")"));
}

template <class F>
double number_in(const F& field, const Json& value, bool whole) {
  const double number = value.number;
  const bool legal = value.kind == Json::Kind::number && number >= field.low &&
                     number <= field.high && (!whole || number == std::floor(number));
  if (legal) return number;
  const auto text = [](double limit) {
    return shown({.kind = Json::Kind::number, .number = limit});
  };
  reject(field, value,
         std::string(whole ? "a whole number" : "a number") + " from " + text(field.low) + " to " +
             text(field.high));
}

template <Record T>
T read(const Json& given, T record = {});

/// The value of a field, or MalformedQuestion.
template <class T, class M>
M converted(const Field<T, M>& field, const Json& value) {
  if constexpr (NamedEnum<M>) {
    const auto found = enum_from<M>(value.text);
    if (value.kind != Json::Kind::text || !found) reject(field, value, "one of " + all_names<M>());
    return *found;
  } else if constexpr (std::is_same_v<M, bool>) {
    if (value.kind != Json::Kind::truth) reject(field, value, "true or false");
    return value.truth;
  } else if constexpr (std::is_integral_v<M>) {
    return static_cast<M>(number_in(field, value, true));
  } else if constexpr (std::is_same_v<M, double> || IsQuantity<M>::value) {
    return M{number_in(field, value, false)};
  } else if constexpr (std::is_same_v<M, std::string>) {
    if (value.kind != Json::Kind::text) reject(field, value, "a text");
    return value.text;
  } else if constexpr (Record<M>) {
    return read<M>(value);
  } else {
    M items{};
    if (value.kind != Json::Kind::list || value.items.size() > items.size()) {
      reject(field, value, "a list of at most " + std::to_string(items.size()) + " values");
    }
    const Field<T, typename M::value_type> element{field.name, nullptr, field.low, field.high,
                                                   field.meaning};
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      items[i] = converted(element, value.items[i]);
    }
    return items;
  }
}

/// `record` with the given members; those left out keep their value.
template <Record T>
T read(const Json& given, T record) {
  const std::string name(RecordOf<T>::name);
  if (given.kind != Json::Kind::object) throw MalformedQuestion(name + ": must be an object");
  for (const auto& [key, value] : given.members) {
    bool known = false;
    for_each_field<T>([&](const auto& field) {
      if (key != field.name) return;
      record.*(field.member) = converted(field, value);
      known = true;
    });
    if (!known) throw MalformedQuestion(key + ": " + name + " has no such field");
  }
  return record;
}

/// Flat records: numbers, names and switches.
template <class M>
void append_value(std::string& out, const M& value) {
  if constexpr (NamedEnum<M>) {
    append_text(out, name_of(value));
  } else if constexpr (std::is_same_v<M, bool>) {
    out.append(value ? "true" : "false");
  } else if constexpr (std::is_arithmetic_v<M>) {
    append_number(out, static_cast<double>(value));
  } else {
    append_number(out, value.base());
  }
}

template <class M>
void append_member(std::string& out, std::string_view name, const M& value) {
  if (out.back() != '{') out.push_back(',');
  append_text(out, name);
  out.push_back(':');
  append_value(out, value);
}

template <Record T>
void append_record(std::string& out, const T& record) {
  out.push_back('{');
  for_each_field<T>(
      [&](const auto& field) { append_member(out, field.name, record.*(field.member)); });
  out.push_back('}');
}

}  // namespace scalemodel::page
