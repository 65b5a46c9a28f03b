#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "bindings/scheduler_calls.hpp"

namespace scalemodel::bindings {
namespace {

constexpr double kMaxTokens = 1e9, kLatest = 1e12;
constexpr std::size_t kStepColumns = 13, kRequestColumns = 6;

[[noreturn]] void refuse(const char* name, double value, const char* legal) {
  throw MalformedQuestion(
      std::string(name).append("=").append(text_of(value)).append(": must be ").append(legal));
}

/// Hands each request on: its place, lengths and names.
template <typename Take>
void for_each_request(const NamedColumns& columns, int block_tokens, Take&& take) {
  const py::ssize_t rows = columns.arrival.size();
  if (columns.input.size() != rows || columns.output.size() != rows ||
      columns.name_ends.size() != rows) {
    throw MalformedQuestion(
        "arrival, input_tokens, output_tokens, name_ends: must be equally long columns");
  }
  const int step = std::max(1, std::min(columns.name_tokens, block_tokens));
  if (columns.name_tokens < 1 || std::max(columns.name_tokens, block_tokens) % step != 0) {
    refuse("name_tokens", columns.name_tokens, "a multiple or a divisor of block_tokens");
  }
  std::int64_t begin = 0;
  double last = 0;
  for (py::ssize_t i = 0; i < rows; ++i) {
    const double arrival = columns.arrival.data()[i];
    const std::int64_t input = columns.input.data()[i], output = columns.output.data()[i];
    const std::int64_t end = columns.name_ends.data()[i];
    if (!(arrival >= last && arrival <= kLatest)) {
      refuse("arrival", arrival, "from 0 to 1e12 and in ascending order");
    }
    for (const auto& [name, tokens] :
         {std::pair{"input_tokens", input}, std::pair{"output_tokens", output}}) {
      if (tokens < 1 || static_cast<double>(tokens) > kMaxTokens) {
        refuse(name, static_cast<double>(tokens), "a whole number from 1 to 1e9");
      }
    }
    if (end < begin || end > columns.names.size()) {
      refuse("name_ends", static_cast<double>(end), "ascending and within the names");
    }
    poll_point(1 + (input + output) / (32 * std::max(1, block_tokens)));
    const std::span<const std::uint64_t> names(columns.names.data() + begin,
                                               static_cast<std::size_t>(end - begin));
    take(i, names);
    last = arrival;
    begin = end;
  }
}

std::vector<NamedRequest> named_requests(const SchedulerLimits& limits,
                                         const NamedColumns& columns) {
  std::vector<NamedRequest> requests;
  requests.reserve(static_cast<std::size_t>(columns.arrival.size()));
  for_each_request(
      columns, limits.block_tokens, [&](py::ssize_t i, std::span<const std::uint64_t> names) {
        const std::int64_t input = columns.input.data()[i], output = columns.output.data()[i];
        const double images = columns.images.size() > 0 ? columns.images.data()[i] : 0;
        requests.push_back({columns.arrival.data()[i], input, output,
                            chained_hashes(names, input + output, columns.name_tokens,
                                           limits.block_tokens, static_cast<std::uint64_t>(i)),
                            images});
      });
  return requests;
}

/// Prompts alone. Where names cover a last block that the prompt fills in part, it counts.
std::vector<NamedPrompt> named_prompts(int block_tokens, const NamedColumns& columns) {
  std::vector<NamedPrompt> prompts;
  prompts.reserve(static_cast<std::size_t>(columns.arrival.size()));
  for_each_request(columns, block_tokens, [&](py::ssize_t i, std::span<const std::uint64_t> names) {
    const std::int64_t input = columns.input.data()[i];
    const std::int64_t named = static_cast<std::int64_t>(names.size()) * columns.name_tokens;
    const std::int64_t whole = (input + block_tokens - 1) / block_tokens * block_tokens;
    prompts.push_back(
        {input, chained_hashes(names, std::max(input, std::min(whole, named)), columns.name_tokens,
                               block_tokens, static_cast<std::uint64_t>(i))});
  });
  return prompts;
}

template <std::size_t Columns, typename Row, typename Numbers>
py::array_t<double> number_table(const std::vector<Row>& rows, Numbers&& numbers) {
  py::array_t<double> table(std::vector<py::ssize_t>{static_cast<py::ssize_t>(rows.size()),
                                                     static_cast<py::ssize_t>(Columns)});
  double* out = table.mutable_data();
  for (const Row& row : rows) {
    const std::array<double, Columns> values = numbers(row);
    out = std::copy(values.begin(), values.end(), out);
  }
  return table;
}

double real(std::int64_t count) { return static_cast<double>(count); }

std::array<double, kStepColumns> step_numbers(const ScheduledStep& s) {
  return {s.start,
          s.time,
          real(s.running),
          real(s.waiting),
          real(s.batched_tokens),
          real(s.sequences),
          real(s.decodes),
          real(s.started),
          real(s.cached_tokens),
          real(s.restored_tokens),
          real(s.recomputed_tokens),
          real(s.preemptions),
          real(s.used_blocks)};
}

std::array<double, kRequestColumns> request_numbers(const ScheduledRequest& r) {
  return {r.started,           r.first_token,        r.finished, real(r.cached_tokens),
          real(r.preemptions), r.refused ? 1.0 : 0.0};
}

}  // namespace

py::tuple schedule_columns(const SchedulerLimits& limits, const NamedColumns& columns,
                           const StepTimes* times) {
  const StepSchedule found =
      listening([&] { return schedule_requests(limits, named_requests(limits, columns), times); });
  return py::make_tuple(number_table<kStepColumns>(found.steps, step_numbers),
                        number_table<kRequestColumns>(found.requests, request_numbers));
}

void bind_scheduler(py::module_& m) {
  bind_record<SchedulerLimits>(m, R"(What bounds a step of a scheduler over named KV cache blocks.

Examples
--------
>>> SchedulerLimits(blocks=1000).replace(max_batched_tokens=2048)
SchedulerLimits(blocks=1000, max_batched_tokens=2048))");
  m.def(
      "schedule_requests",
      [](const SchedulerLimits& limits, const NumberColumn& arrival, const CountColumn& input,
         const CountColumn& output, const NameColumn& names, const CountColumn& name_ends,
         int name_tokens) {
        return schedule_columns(limits, {arrival, input, output, names, name_ends, name_tokens},
                                nullptr);
      },
      py::arg("limits"), py::arg("arrival_step"), py::arg("input_tokens"), py::arg("output_tokens"),
      py::arg("names"), py::arg("name_ends"), py::arg("name_tokens"),
      "Tables of steps and of requests, the clock counting steps.");
  m.def(
      "prefix_hits",
      [](int blocks, int block_tokens, const NumberColumn& arrival, const CountColumn& input,
         const CountColumn& output, const NameColumn& names, const CountColumn& name_ends,
         int name_tokens) {
        if (blocks < 1) refuse("blocks", blocks, "from 1");
        if (block_tokens < 1) refuse("block_tokens", block_tokens, "from 1");
        const NamedColumns columns{arrival, input, output, names, name_ends, name_tokens};
        const PrefixHits found = listening([&] {
          return replay_prefixes(named_prompts(block_tokens, columns), blocks, block_tokens);
        });
        return std::array{found.tokens, found.hit_tokens, found.blocks, found.hit_blocks};
      },
      py::arg("blocks"), py::arg("block_tokens"), py::arg("arrival"), py::arg("input_tokens"),
      py::arg("output_tokens"), py::arg("names"), py::arg("name_ends"), py::arg("name_tokens"),
      "Tokens, of them hits, blocks, of them hits: one prompt after the other.");
}

}  // namespace scalemodel::bindings
