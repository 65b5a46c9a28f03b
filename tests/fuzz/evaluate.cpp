// One fuzzing input: bytes choose a question, then strategies for it. Every answer must be a
// verdict with a reason, or numbers that are finite, not negative and add up. Questions start from
// the records of the file that SCALEMODEL_FUZZ_RECORDS names (records.py writes the catalogue's),
// or from the reference ones of the C++ tests.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <istream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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

template <class T>
struct IsArray : std::false_type {};
template <class T, std::size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

/// Reads what records.py wrote: numbers in base units and words in quotes, in the order of the
/// field tables.
template <class T>
void read(std::istream& text, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    text >> std::quoted(value);
  } else if constexpr (Record<T>) {
    for_each_field<T>([&](const auto& field) { read(text, value.*(field.member)); });
  } else if constexpr (IsArray<T>::value) {
    for (auto& element : value) read(text, element);
  } else {
    double number = 0;
    text >> number;
    if constexpr (IsQuantity<T>::value) {
      value = T{number};
    } else {
      value = static_cast<T>(number);
    }
  }
}

/// Where questions start from.
struct Records {
  std::vector<DecoderShape> shapes;
  std::vector<Cluster> clusters;
  std::vector<Stack> stacks;
};

Records reference_records() {
  return {{testing::gpt3_shape(), testing::dense_7b_shape(), testing::grouped_70b_shape(),
           testing::experts_8x7b_shape(), testing::latent_experts_shape(), testing::window_shape()},
          {testing::reference_cluster(1)},
          {testing::reference_stack()}};
}

Records read_records(const char* path) {
  Records records;
  std::ifstream text(path);
  for (std::string kind; text >> kind;) {
    if (kind == RecordOf<DecoderShape>::name) read(text, records.shapes.emplace_back());
    if (kind == RecordOf<Cluster>::name) read(text, records.clusters.emplace_back());
    if (kind == RecordOf<Stack>::name) read(text, records.stacks.emplace_back());
  }
  if (text.bad() || records.shapes.empty() || records.clusters.empty() || records.stacks.empty()) {
    std::fprintf(stderr, "%s: no records of each kind\n", path);
    std::exit(EXIT_FAILURE);
  }
  return records;
}

const Records& records() {
  static const Records all = [] {
    const char* path = std::getenv("SCALEMODEL_FUZZ_RECORDS");
    return path == nullptr ? reference_records() : read_records(path);
  }();
  return all;
}

/// One of several by the next byte; of a single one without any.
template <class T>
const T& one_of(const std::vector<T>& choices, Bytestream& bytes) {
  return choices.size() == 1 ? choices.front() : choices[bytes.next() % choices.size()];
}

/// A pattern of layers: letters of mixers and of feed-forward blocks.
std::string pattern(Bytestream& bytes) {
  static constexpr std::string_view letters = "FWISCHRPpZX-DdE";
  std::string text(bytes.next() % 8, '-');
  for (char& letter : text) letter = letters[bytes.next() % letters.size()];
  return text;
}

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
    } else if constexpr (std::is_same_v<Member, std::string>) {
      value = pattern(bytes);
    }
  });
}

/// Fields of a record on the error stream, as far as they are numbers or words.
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
    } else if constexpr (std::is_same_v<Member, std::string>) {
      std::fprintf(stderr, " %s=%s", field.name.data(), value.c_str());
    } else if constexpr (std::is_arithmetic_v<Member>) {
      std::fprintf(stderr, " %s=%g", field.name.data(), static_cast<double>(value));
    }
  });
}

/// What was asked, to be told when the answer is wrong.
struct Asked {
  DecoderShape shape;
  VisionShape vision;  ///< asked about where there are images
  Cluster cluster;
  Task task;
  Stack stack;
  Strategy strategy;
};

[[noreturn]] void complain(const Asked& asked, const char* what, double value) {
  print(asked.shape);
  print(asked.vision);
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

/// Asks what the bytes say; whether it was a question at all.
bool run(Bytestream bytes) {
  const int changed = bytes.next();
  Asked asked;
  asked.shape = one_of(records().shapes, bytes);
  asked.cluster = one_of(records().clusters, bytes);
  asked.cluster.accelerators = 1 << (bytes.next() % 16);
  const int batch = 1 << (bytes.next() % 16);
  asked.task = testing::training(batch, 1 << (bytes.next() % 21));
  asked.stack = one_of(records().stacks, bytes);
  change(asked.shape, changed, bytes);
  change(asked.cluster, changed, bytes);
  change(asked.task, changed, bytes);
  change(asked.stack, changed, bytes);
  std::optional<Tables> tables;
  try {
    Model model = make_decoder(asked.shape);
    if (asked.task.images > 0) {
      asked.vision = testing::small_tower();
      change(asked.vision, changed, bytes);
      model.vision = make_vision_tower(asked.vision, model.hidden);
    }
    tables.emplace(std::move(model), asked.cluster, asked.task, asked.stack);
  } catch (const std::invalid_argument&) {
    return false;  // a malformed question is refused
  }
  for (int strategies = 0; strategies < 8 && !(strategies > 0 && bytes.ended()); ++strategies) {
    asked.strategy = {};
    change(asked.strategy, 64 + changed / 2, bytes);
    tables->tabulate(asked.strategy);
    const Estimate first = evaluate(*tables, asked.strategy);
    check(asked, first);
    if (evaluate(*tables, asked.strategy) != first) complain(asked, "two answers", 0);
  }
  return true;
}

}  // namespace
}  // namespace scalemodel

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return scalemodel::run({data, size}) ? 0 : -1;  // -1: nothing for the corpus
}
