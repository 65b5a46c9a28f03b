// What a timeline costs. Goals are for one core of an ordinary server; wall time is reported, not
// asserted.
#include <benchmark/benchmark.h>

#include "questions.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/timeline/events.hpp"

namespace scalemodel {
namespace {

/// TP 8, PP 16, VP 8 on 1,024 accelerators: 128 micro-batches of 128 uneven chunks.
Tables tables_of_405b() {
  Task task;
  task.global_batch = 1024;
  task.sequence = 8192;
  return {make_decoder(llama_405b()), cluster(), task, Stack{}};
}

Strategy plan_of_405b() {
  Strategy s;
  s.tp = 8;
  s.pp = 16;
  s.vpp = 8;
  return s;
}

// Goal: under 100 ms for all 16 stages.
void timeline_405b_tp8_pp16_vp8(benchmark::State& state) {
  Tables tables = tables_of_405b();
  std::size_t passes = 0;
  for (auto _ : state) passes = step_timeline(tables, plan_of_405b(), {}).passes.size();
  state.counters["passes"] = static_cast<double>(passes);
}
BENCHMARK(timeline_405b_tp8_pp16_vp8)->Unit(benchmark::kMillisecond);

// Goal: under 100 ms.
void events_of_405b(benchmark::State& state) {
  Tables tables = tables_of_405b();
  const Timeline timeline = step_timeline(tables, plan_of_405b(), {});
  std::size_t count = 0;
  for (auto _ : state) count = events(timeline).size();
  state.counters["events"] = static_cast<double>(count);
}
BENCHMARK(events_of_405b)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace scalemodel
