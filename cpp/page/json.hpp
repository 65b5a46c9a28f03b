// JSON as it crosses between a page and the engine.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace scalemodel::page {

/// One value of a JSON text.
struct Json {
  enum class Kind { null, truth, number, text, list, object };

  Kind kind = Kind::null;
  bool truth = false;
  double number = 0;
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;

  /// The member of that name; null where an object has none.
  const Json* find(std::string_view name) const;
};

/// Throws MalformedQuestion where the text is none.
Json parse(std::string_view text);

/// A text in quotes, signs escaped.
void append_text(std::string& out, std::string_view text);
/// The shortest digits that read back as the same number; null for what JSON cannot say.
void append_number(std::string& out, double number);

}  // namespace scalemodel::page
