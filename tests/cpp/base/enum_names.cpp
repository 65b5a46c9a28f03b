#include "scalemodel/base/enum_names.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "support.hpp"

namespace scalemodel {
namespace {

/// Names of an enumeration, its last enumerator given so that none is forgotten in the table.
template <NamedEnum E>
void check_names(E last) {
  const auto& names = EnumNames<E>::names;
  CAPTURE(EnumNames<E>::what);
  CHECK(!EnumNames<E>::what.empty());
  CHECK(names.size() == static_cast<std::size_t>(last) + 1);
  const std::set<std::string_view> distinct(names.begin(), names.end());
  CHECK(distinct.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(!names[i].empty());
    const E value = static_cast<E>(i);
    CHECK(name_of(value) == names[i]);
    REQUIRE(enum_from<E>(names[i]).has_value());
    CHECK(*enum_from<E>(names[i]) == value);
    CHECK(all_names<E>().find(names[i]) != std::string::npos);
  }
  CHECK(!enum_from<E>("no such name").has_value());
  CHECK(!enum_from<E>("").has_value());
}

TEST_CASE("every enumeration survives the round trip through its names") {
  check_names(Precision::fp4);
  check_names(Reason::secondary_degree);
  check_names(Collective::all_to_all);
  check_names(AttentionKernel::flash_triton);
  check_names(Position::none);
  check_names(Norm::nonparametric);
  check_names(Schedule::dualpipe_v);
  check_names(Sharding::hsdp);
  check_names(Recompute::full);
  check_names(ContextParallel::all_gather);
  check_names(OnOff::on);
  check_names(TensorOverlap::pipelined);
  check_names(OrDefault<OnOff>{OnOff::on});
  check_names(Placement{23});
  check_names(Optimizer::soap);
  check_names(OrDefault<AttentionKernel>{AttentionKernel::flash_triton});
  check_names(OrDefault<Precision>{Precision::fp4});
  check_names(GradientPrecision::bf16);
  check_names(Method::lora);
  check_names(LoraTargets::all);
  check_names(Selective::operators);
}

TEST_CASE("names are listed in the order of the enumerators") {
  CHECK(all_names<Recompute>() == "none, selective, full");
}

TEST_CASE("a choice of attention kernel is the stack's or one of the kernels") {
  const auto& choices = EnumNames<OrDefault<AttentionKernel>>::names;
  const auto& kernels = EnumNames<AttentionKernel>::names;
  CHECK(choices.front() == "stack");
  CHECK(std::equal(choices.begin() + 1, choices.end(), kernels.begin(), kernels.end()));
}

TEST_CASE("a reason is either fine, too big, or illegal") {
  CHECK(!is_illegal(Reason::ok));
  CHECK(!is_illegal(Reason::out_of_memory));
  for (std::size_t i = 2; i < EnumNames<Reason>::names.size(); ++i) {
    CHECK(is_illegal(static_cast<Reason>(i)));
  }
}

TEST_CASE("narrower formats never take more bytes, and training stores at least 16 bits") {
  const auto bytes = [](Precision p) { return operand_bytes(p); };
  CHECK(bytes(Precision::fp32) == 4);
  CHECK(bytes(Precision::tf32) == 4);
  CHECK(bytes(Precision::fp16) == 2);
  CHECK(bytes(Precision::bf16) == 2);
  CHECK(bytes(Precision::fp8) == 1);
  // NVFP4: four bits and one eight-bit scale for sixteen of them.
  CHECK(bytes(Precision::fp4) == testing::Approx(4.5 / 8));
  for (std::size_t i = 0; i < kPrecisions; ++i) {
    const auto precision = static_cast<Precision>(i);
    CAPTURE(name_of(precision));
    const Precision storage = storage_precision(precision);
    CHECK(bytes(storage) >= 2);
    CHECK(bytes(storage) >= bytes(precision));
    CHECK(storage_precision(storage) == storage);
  }
}

TEST_CASE("a switch left to the stack follows it, any other does not") {
  for (const bool stack : {false, true}) {
    CHECK(enabled({}, stack) == stack);
    CHECK(enabled(OnOff::on, stack));
    CHECK(!enabled(OnOff::off, stack));
  }
}

TEST_CASE("a choice left open takes the default, a stated one keeps its value") {
  for (const Precision task : {Precision::bf16, Precision::fp8}) {
    CHECK(OrDefault<Precision>{}.value_or(task) == task);
    CHECK(OrDefault<Precision>{Precision::fp4}.value_or(task) == Precision::fp4);
  }
  CHECK(OrDefault<Precision>{}.is_default());
  CHECK(!OrDefault<Precision>{Precision::fp32}.is_default());
  CHECK(OrDefault<Precision>{} != Precision::fp32);
  CHECK(name_of(OrDefault<Precision>{}) == "task");
  CHECK(name_of(OrDefault<OnOff>{}) == "stack");
}

TEST_CASE("optimizers keep the states they are known for") {
  CHECK(moments(Optimizer::adam) == 2);
  CHECK(moments(Optimizer::sgd_momentum) == 1);
  CHECK(moments(Optimizer::sgd) == 0);
  CHECK(moments(Optimizer::shampoo) == 2);
  CHECK(moments(Optimizer::soap) == 2);
}

}  // namespace
}  // namespace scalemodel
