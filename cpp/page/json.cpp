#include "page/json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "scalemodel/base/error.hpp"

namespace scalemodel::page {
namespace {

/// Deeper nesting than any question has.
constexpr int kDeepest = 64;

bool is_one_of(char sign, std::string_view signs) {
  return signs.find(sign) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Json whole() {
    Json found = value(0);
    skip_blanks();
    if (at_ != text_.size()) refuse();
    return found;
  }

 private:
  [[noreturn]] void refuse() const {
    throw MalformedQuestion("question: is no JSON from sign " + std::to_string(at_ + 1));
  }
  void skip_blanks() {
    while (at_ < text_.size() && is_one_of(text_[at_], " \t\r\n")) ++at_;
  }
  char next() {
    if (at_ == text_.size()) refuse();
    return text_[at_++];
  }
  bool take(char sign) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != sign) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kDeepest) refuse();
    skip_blanks();
    Json found;
    if (take('{')) {
      found.kind = Json::Kind::object;
      if (take('}')) return found;
      do {
        skip_blanks();
        std::string name = text();
        if (!take(':')) refuse();
        found.members.emplace_back(std::move(name), value(depth + 1));
      } while (take(','));
      if (!take('}')) refuse();
    } else if (take('[')) {
      found.kind = Json::Kind::list;
      if (take(']')) return found;
      do {
        found.items.push_back(value(depth + 1));
      } while (take(','));
      if (!take(']')) refuse();
    } else if (at_ < text_.size() && text_[at_] == '"') {
      found.kind = Json::Kind::text;
      found.text = text();
    } else if (take("true")) {
      found.kind = Json::Kind::truth;
      found.truth = true;
    } else if (take("false")) {
      found.kind = Json::Kind::truth;
    } else if (!take("null")) {
      found.kind = Json::Kind::number;
      found.number = number();
    }
    return found;
  }

  double number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_one_of(text_[at_], "+-.0123456789eE")) ++at_;
    const std::string digits(text_.substr(begin, at_ - begin));
    char* end = nullptr;
    const double found = std::strtod(digits.c_str(), &end);
    if (digits.empty() || end != digits.c_str() + digits.size()) refuse();
    return found;
  }

  std::string text() {
    if (next() != '"') refuse();
    std::string found;
    for (char sign = next(); sign != '"'; sign = next()) {
      found.push_back(sign == '\\' ? escaped() : sign);
    }
    return found;
  }
  /// Names and numbers are all that a question holds: signs beyond ASCII stand for themselves.
  char escaped() {
    switch (const char sign = next()) {
      case '"':
      case '\\':
      case '/':
        return sign;
      case 'n':
        return '\n';
      case 't':
        return '\t';
      default:
        refuse();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (const auto& [own, value] : members) {
    if (own == name) return &value;
  }
  return nullptr;
}

Json parse(std::string_view text) { return Reader(text).whole(); }

void append_text(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out.push_back('"');
  for (const char sign : text) {
    const auto code = static_cast<std::uint8_t>(sign);
    if (sign == '"' || sign == '\\') {
      out.push_back('\\');
      out.push_back(sign);
    } else if (code < 0x20) {
      out.append("\\u00");
      out.push_back(kDigits[code / 16]);
      out.push_back(kDigits[code % 16]);
    } else {
      out.push_back(sign);
    }
  }
  out.push_back('"');
}

void append_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out.append("null");
    return;
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

}  // namespace scalemodel::page
