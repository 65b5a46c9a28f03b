// Recomputation module by module.
#include "scalemodel/strategy/recompute_modules.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::estimate;

RecomputeModules set_of(std::string_view names) { return *enum_from<RecomputeModules>(names); }

Estimate repeated(const DecoderShape& shape, std::string_view names, int tp = 1) {
  Stack stack = testing::reference_stack();
  stack.selective_modules = set_of(names);
  Strategy s;
  s.tp = static_cast<std::uint16_t>(tp);
  s.recompute = Recompute::selective;
  return estimate(shape, testing::reference_cluster(8), testing::training(64, 2048), s, stack);
}

TEST_CASE("a set of modules is read in any order and written in one") {
  CHECK(name_of(set_of("moe_act+core_attn")) == "core_attn+moe_act");
  CHECK(set_of("mlp, layernorm") == set_of("layernorm+mlp"));
  CHECK(name_of(set_of("stack")) == "stack");
  CHECK(set_of("stack") == RecomputeModules{});
  CHECK(!enum_from<RecomputeModules>("mlp+attention").has_value());
  CHECK(!enum_from<RecomputeModules>("").has_value());
  CHECK(all_names<RecomputeModules>().find("shared_experts") != std::string::npos);
  for (std::size_t i = 0; i < EnumNames<RecomputeModules>::names.size(); ++i) {
    CHECK(static_cast<std::size_t>(set_of(EnumNames<RecomputeModules>::names[i])) == i);
  }
}

TEST_CASE("whole experts hold their activation and shared experts") {
  CHECK(repeats(set_of("moe"), Module::moe_act));
  CHECK(repeats(set_of("moe"), Module::shared_experts));
  CHECK(!repeats(set_of("moe"), Module::mlp));
  CHECK(!holds(set_of("moe"), Module::moe_act));
}

TEST_CASE("more modules cost more time and save more memory") {
  const DecoderShape shape = testing::dense_7b_shape();
  const Estimate norms = repeated(shape, "layernorm"), blocks = repeated(shape, "mlp"),
                 both = repeated(shape, "layernorm+mlp");
  CHECK(both.step_time > blocks.step_time);
  CHECK(both.step_time > norms.step_time);
  CHECK(both.memory_activations < blocks.memory_activations);
  CHECK(both.memory_activations < norms.memory_activations);
  CHECK(blocks.step_time > norms.step_time);
}

TEST_CASE("a module that a model lacks changes nothing") {
  const DecoderShape shape = testing::dense_7b_shape();
  const Estimate plain = repeated(shape, "mlp"), more = repeated(shape, "mlp+moe+mla_up_proj");
  CHECK(plain.step_time == more.step_time);
  CHECK(plain.memory_activations == more.memory_activations);
}

TEST_CASE("no set of modules costs more than running whole layers again") {
  for (const DecoderShape& shape : {testing::dense_7b_shape(), testing::experts_8x7b_shape()}) {
    Strategy s;
    s.recompute = Recompute::full;
    const Estimate full = estimate(shape, testing::reference_cluster(8),
                                   testing::training(64, 2048), s, testing::reference_stack());
    const Estimate all = repeated(shape, "core_attn+layernorm+mlp+moe");
    CHECK(all.step_time <= full.step_time);
    CHECK(all.memory_activations >= full.memory_activations);
  }
}

TEST_CASE("a dense block repeats its exchange among tensor ranks") {
  const Estimate none = repeated(testing::dense_7b_shape(), "layernorm", 4);
  const Estimate block = repeated(testing::dense_7b_shape(), "mlp", 4);
  CHECK(block.exposed_tp > none.exposed_tp);
}

TEST_CASE("a region that runs again costs the CPU a call, a norm inside a linear layer none") {
  Stack stack = testing::reference_stack();
  stack.host_launch = 1 * unit::ms;  // nothing but the CPU matters
  DecoderShape shape = testing::dense_7b_shape();
  Strategy s;
  s.recompute = Recompute::selective;
  const auto time = [&](std::string_view names, double operations) {
    stack.module_operations = operations;
    stack.selective_modules = set_of(names);
    return estimate(shape, testing::reference_cluster(8), testing::training(64, 2048), s, stack)
        .step_time;
  };
  // Modules that cost next to nothing themselves.
  const auto calls = [&](std::string_view names) { return time(names, 1e-9) - time(names, 0); };
  const Seconds one = calls("core_attn");
  CHECK(one > Seconds{});
  CHECK(testing::about_equal(calls("core_attn+mlp"), 2 * one, 1e-6));
  CHECK(calls("layernorm") < 1e-6 * one);
  shape = testing::experts_8x7b_shape();  // experts have a norm of their own
  CHECK(testing::about_equal(calls("layernorm"), calls("core_attn"), 1e-6));
  CHECK(testing::about_equal(calls("moe"), calls("moe_act"), 1e-6));  // whole or in part
  shape = testing::dense_7b_shape();
  s.recompute = Recompute::full;
  CHECK(testing::about_equal(calls("stack"), one, 1e-6));
  stack.cuda_graphs = true;
  CHECK(calls("stack") == Seconds{});
}

}  // namespace
}  // namespace scalemodel
