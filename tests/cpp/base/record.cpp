#include "scalemodel/base/record.hpp"

#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "scalemodel/collectives/custom_all_reduce.hpp"
#include "scalemodel/economics/carbon.hpp"
#include "scalemodel/economics/failure_simulation.hpp"
#include "scalemodel/economics/scaling_law.hpp"
#include "scalemodel/power/cap.hpp"
#include "scalemodel/power/serving.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

/// Converts to anything, which lets the compiler count the members of an aggregate.
struct Anything {
  template <class T>
  operator T() const;
};

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything{})...}; };
}

template <class T, std::size_t Count = 0>
constexpr std::size_t member_count() {
  if constexpr (takes<T>(std::make_index_sequence<Count + 1>{})) {
    return member_count<T, Count + 1>();
  } else {
    return Count;
  }
}

/// Whether two entries of a field table name the same member.
template <class T, class A, class B>
bool same_member(const Field<T, A>& a, const Field<T, B>& b) {
  if constexpr (std::is_same_v<A, B>) {
    return a.member == b.member;
  } else {
    return false;
  }
}

/// `Bases`: all of them, where the members of a record are those of its bases.
template <Record T, class... Bases>
void check_record() {
  CAPTURE(RecordOf<T>::name);
  CHECK(!RecordOf<T>::name.empty());
  if constexpr (sizeof...(Bases) > 0) {
    static_assert(sizeof...(Bases) == member_count<T>());
    CHECK(field_count<T> == (member_count<Bases>() + ...));
  } else {
    CHECK(field_count<T> == member_count<T>());
  }
  std::set<std::string_view> names;
  for_each_field<T>([&](const auto& field) {
    CAPTURE(field.name);
    CHECK(!field.name.empty());
    CHECK(!field.meaning.empty());
    CHECK(names.insert(field.name).second);
    CHECK(field.low < field.high);
    int named = 0;
    for_each_field<T>([&](const auto& other) { named += same_member(field, other) ? 1 : 0; });
    CHECK(named == 1);
  });
}

TEST_CASE("a field table names every member of its type once") {
  check_record<TileGemm>();
  check_record<GemmKernels>();
  check_record<AttentionKernels>();
  check_record<ElementwiseKernels>();
  check_record<PowerPhases>();
  check_record<Accelerator>();
  check_record<CollectiveFit>();
  check_record<InSwitchFit>();
  check_record<MeasuredCurve>();
  check_record<CustomAllReduce>();
  check_record<ScaleUp>();
  check_record<Fabric>();
  check_record<Cluster>();
  check_record<DecoderShape>();
  check_record<Strategy>();
  check_record<Task>();
  check_record<Stack, KernelEfficiency, KernelFusion, OverlapPolicy, ExpertPolicy,
               CommunicationPolicy, MemoryPolicy>();
  check_record<Estimate>();
  check_record<ClockPower>();
  check_record<StepPhases>();
  check_record<CappedStep>();
  check_record<ServingPower>();
  check_record<DecodeLoad>();
  check_record<ChipProcess>();
  check_record<ServerParts>();
  check_record<LossLaw>();
  check_record<FailingJob>();
  check_record<SimulationPlan>();
}

template <Record T>
void check_defaults(std::initializer_list<std::string_view> required) {
  const T value{};
  for_each_field<T>([&](const auto& field) {
    using Member = std::decay_t<decltype(value.*field.member)>;
    if constexpr (std::is_arithmetic_v<Member> && !std::is_same_v<Member, bool>) {
      if (std::find(required.begin(), required.end(), field.name) != required.end()) return;
      CAPTURE(field.name);
      CHECK(static_cast<double>(value.*field.member) >= field.low);
      CHECK(static_cast<double>(value.*field.member) <= field.high);
    }
  });
}

TEST_CASE("defaults are legal wherever a field has one") {
  check_defaults<Strategy>({});
  check_defaults<Task>({});
  check_defaults<Stack>({});
  check_defaults<DecoderShape>({"layers", "hidden", "vocab", "heads"});
}

TEST_CASE("names say their unit") {
  const auto ends_with = [](std::string_view name, std::string_view suffix) {
    return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
  };
  const auto check = [&]<class T>(std::type_identity<T>) {
    for_each_field<T>([&](const auto& field) {
      using Member = std::decay_t<decltype(std::declval<T&>().*field.member)>;
      CAPTURE(field.name);
      if constexpr (std::is_same_v<Member, Bytes>) CHECK(ends_with(field.name, "_bytes"));
      if constexpr (std::is_same_v<Member, Seconds>) CHECK(ends_with(field.name, "_s"));
      if constexpr (std::is_same_v<Member, Watts>) CHECK(ends_with(field.name, "_w"));
      if constexpr (std::is_same_v<Member, Joules>) CHECK(ends_with(field.name, "_j"));
      if constexpr (std::is_same_v<Member, Dollars>) CHECK(ends_with(field.name, "_usd"));
      if constexpr (std::is_same_v<Member, BytesPerSecond>) {
        CHECK(ends_with(field.name, "_bytes_per_s"));
      }
    });
  };
  check(std::type_identity<Accelerator>{});
  check(std::type_identity<Cluster>{});
  check(std::type_identity<ScaleUp>{});
  check(std::type_identity<Fabric>{});
  check(std::type_identity<Stack>{});
  check(std::type_identity<Estimate>{});
}

}  // namespace
}  // namespace scalemodel
