// One fuzzing input: bytes choose a question, then strategies for it. Every answer must be a
// verdict with a reason, or numbers that are finite, not negative and add up.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

// The helpers of the C++ tests bring doctest along, which wants its own definitions once.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support.hpp"

namespace scalemodel {
namespace {

/// The bytes of an input, zeros beyond its end.
class Bytestream {
 public:
  Bytestream(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool ended() const { return at_ >= size_; }
  std::uint8_t next() { return ended() ? 0 : data_[at_++]; }
  /// From 0 to 1, both included.
  double share() {
    const int high = next();
    return (256.0 * high + next()) / 65535.0;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

/// A number of a field's legal range: an end, a power of two, or anything between, by decades.
double number_between(double low, double high, Bytestream& bytes) {
  low = std::max(low, -1e18), high = std::min(high, 1e18);
  const std::uint8_t way = bytes.next();
  if (way < 16) return low;
  if (way < 32) return high;
  if (way < 144) return std::clamp(std::ldexp(1.0, way % 16), low, high);
  if (low < 0) return low + bytes.share() * (high - low);
  const double from = std::max(low, high * 1e-15);
  return std::clamp(from * std::pow(high / from, bytes.share()), low, high);
}

/// The least value that a field may take. The share of a peak that a kernel reaches is never zero
/// where the kernel is used at all: entries of the catalogue are refused that say so.
template <class T, class M>
double least(const Field<T, M>& field) {
  const bool share =
      field.name.find("fraction") != std::string_view::npos || field.name.starts_with("flash");
  return share ? std::max(field.low, 1e-4) : field.low;
}

template <class T>
struct IsQuantity : std::false_type {};
template <Dim D>
struct IsQuantity<Quantity<D>> : std::true_type {};

/// Changes about `changed` of 256 fields of a record, each within its legal range.
template <Record T>
void change(T& record, int changed, Bytestream& bytes) {
  for_each_field<T>([&](const auto& field) {
    using Member = typename std::remove_cvref_t<decltype(field)>::Member;
    Member& value = record.*(field.member);
    if constexpr (Record<Member>) {
      change(value, changed, bytes);
    } else if (bytes.next() >= changed) {
      return;
    } else if constexpr (std::is_same_v<Member, bool>) {
      value = bytes.next() % 2 == 1;
    } else if constexpr (NamedEnum<Member>) {
      value = static_cast<Member>(bytes.next() % EnumNames<Member>::names.size());
    } else if constexpr (std::is_integral_v<Member>) {
      value = static_cast<Member>(number_between(least(field), field.high, bytes));
    } else if constexpr (std::is_floating_point_v<Member>) {
      value = number_between(least(field), field.high, bytes);
    } else if constexpr (IsQuantity<Member>::value) {
      value = Member{number_between(least(field), field.high, bytes)};
    }
  });
}

/// Fields of a record on the error stream, as far as they are numbers.
template <Record T>
void print(const T& record) {
  std::fprintf(stderr, "\n%s:", RecordOf<T>::name.data());
  for_each_field<T>([&](const auto& field) {
    using Member = typename std::remove_cvref_t<decltype(field)>::Member;
    const Member& value = record.*(field.member);
    if constexpr (Record<Member>) {
      print(value);
    } else if constexpr (IsQuantity<Member>::value) {
      std::fprintf(stderr, " %s=%g", field.name.data(), value.base());
    } else if constexpr (NamedEnum<Member>) {
      std::fprintf(stderr, " %s=%s", field.name.data(), name_of(value).data());
    } else if constexpr (std::is_arithmetic_v<Member>) {
      std::fprintf(stderr, " %s=%g", field.name.data(), static_cast<double>(value));
    }
  });
}

/// What was asked, to be told when the answer is wrong.
struct Asked {
  DecoderShape shape;
  Cluster cluster;
  Task task;
  Stack stack;
  Strategy strategy;
};

[[noreturn]] void complain(const Asked& asked, const char* what, double value) {
  print(asked.shape);
  print(asked.cluster);
  print(asked.task);
  print(asked.stack);
  print(asked.strategy);
  std::fprintf(stderr, "\nevaluate: %s: %g\n", what, value);
  std::abort();
}

void check(const Asked& asked, const Estimate& e) {
  if (!testing::can_run(e)) return;
  for_each_field<Estimate>([&](const auto& field) {
    using Member = typename std::remove_cvref_t<decltype(field)>::Member;
    double value = 0;
    if constexpr (IsQuantity<Member>::value) {
      value = (e.*(field.member)).base();
    } else if constexpr (std::is_arithmetic_v<Member>) {
      value = static_cast<double>(e.*(field.member));
    }
    if (!(value >= 0) || !std::isfinite(value)) complain(asked, field.name.data(), value);
  });
  if (!(e.step_time > Seconds{})) complain(asked, "step_time_s", e.step_time.base());
  if (!testing::about_equal(testing::sum_of_times(e), e.step_time, 1e-6)) {
    complain(asked, "times do not sum to", e.step_time.base());
  }
  if (!testing::about_equal(testing::sum_of_memory(e), e.memory, 1e-6)) {
    complain(asked, "memory does not sum to", e.memory.base());
  }
}

void run(Bytestream bytes) {
  using Shape = DecoderShape (*)();
  constexpr std::array<Shape, 6> kShapes{testing::gpt3_shape,           testing::dense_7b_shape,
                                         testing::grouped_70b_shape,    testing::experts_8x7b_shape,
                                         testing::latent_experts_shape, testing::window_shape};
  const int changed = bytes.next();
  Asked asked;
  asked.shape = kShapes[bytes.next() % kShapes.size()]();
  asked.cluster = testing::reference_cluster(1 << (bytes.next() % 16));
  const int batch = 1 << (bytes.next() % 16);
  asked.task = testing::training(batch, 1 << (bytes.next() % 21));
  asked.stack = testing::reference_stack();
  change(asked.shape, changed, bytes);
  change(asked.cluster, changed, bytes);
  change(asked.task, changed, bytes);
  change(asked.stack, changed, bytes);
  std::optional<Tables> tables;
  try {
    tables.emplace(make_decoder(asked.shape), asked.cluster, asked.task, asked.stack);
  } catch (const std::invalid_argument&) {
    return;  // a malformed question is refused
  }
  for (int strategies = 0; strategies < 8 && !(strategies > 0 && bytes.ended()); ++strategies) {
    asked.strategy = {};
    change(asked.strategy, 64 + changed / 2, bytes);
    tables->tabulate(asked.strategy);
    const Estimate first = evaluate(*tables, asked.strategy);
    check(asked, first);
    if (evaluate(*tables, asked.strategy) != first) complain(asked, "two answers", 0);
  }
}

}  // namespace
}  // namespace scalemodel

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  scalemodel::run({data, size});
  return 0;
}
