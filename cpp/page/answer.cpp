#include "page/answer.hpp"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "page/json.hpp"
#include "page/records.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/vision.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/serving_plans.hpp"

namespace scalemodel::page {
namespace {

const Json& part(const Json& question, std::string_view name) {
  const Json* found = question.find(name);
  if (found == nullptr) throw MalformedQuestion(std::string(name) + ": missing");
  return *found;
}

int count(const Json& question, const char* name, double most) {
  struct Counted {
    std::string_view name;
    double low, high;
    std::string_view meaning;
  };
  return static_cast<int>(
      number_in(Counted{name, 1, most, "of this question"}, part(question, name), true));
}

/// A model and where it runs.
struct Place {
  DecoderShape shape;
  std::optional<VisionShape> vision;
  Cluster cluster;

  explicit Place(const Json& question)
      : shape(read<DecoderShape>(part(question, "model"))),
        cluster(read<Cluster>(part(question, "cluster"))) {
    const Json* tower = question.find("vision");
    if (tower != nullptr && tower->kind != Json::Kind::null) vision = read<VisionShape>(*tower);
    // So that the accelerators of the job are a number that a cluster may have.
    const int most = static_cast<int>(1e8) / cluster.node_accelerators;
    cluster.accelerators = count(question, "nodes", most) * cluster.node_accelerators;
  }
  Model model() const {
    Model made = make_decoder(shape);
    return vision ? with_vision(std::move(made), *vision) : made;
  }
  bool operator==(const Place&) const = default;
};

/// Whose cost tables a strategy is looked up in.
struct Asked {
  Place place;
  Task task;
  Stack stack;

  explicit Asked(const Json& question)
      : place(question),
        task(read<Task>(part(question, "task"))),
        stack(read<Stack>(part(question, "stack"))) {}
  bool operator==(const Asked&) const = default;
};

/// The tables of the last question.
Tables& tables_of(const Json& question) {
  static std::optional<Asked> last;
  static std::optional<Tables> tables;
  Asked asked(question);
  if (!tables || asked != *last) {
    tables.emplace(asked.place.model(), asked.place.cluster, asked.task, asked.stack);
    last.emplace(std::move(asked));
  }
  return *tables;
}

// --------------------------------------------------------------------------------- one strategy
/// Where a GEMM stands below the two roofs of its accelerator, in the forward pass.
void append_gemm(std::string& out, const Tables& tables, const OperatorCost& cost, Precision linear,
                 std::size_t kind) {
  const std::size_t kinds = tables.model().kinds.size();
  const bool narrow = kind < kinds && cost.name != "router";
  const double element = operand_bytes(narrow ? linear : storage_precision(linear));
  const GemmShape shape{.m = cost.m, .n = cost.n, .k = cost.k, .batch = cost.batch};
  const Bytes moved{shape.batch * ((shape.m + shape.n) * shape.k * element +
                                   shape.m * shape.n * operand_bytes(storage_precision(linear)))};
  out.push_back('{');
  out.append("\"kind\":");
  append_text(out, kind < kinds ? "layer " + std::to_string(kind) : "head");
  out.append(",\"operator\":");
  append_text(out, cost.name);
  append_member(out, "m", cost.m);
  append_member(out, "n", cost.n);
  append_member(out, "k", cost.k);
  append_member(out, "batch", cost.batch);
  append_member(out, "forward_s", cost.forward);
  append_member(out, "flop_per_byte", (shape.flop() / moved).base());
  append_member(out, "flop_per_s", shape.flop() / cost.forward);
  out.push_back('}');
}

void append_roofline(std::string& out, const Tables& tables, const Strategy& strategy) {
  const Precision linear = strategy.linear_precision.value_or(tables.task().precision);
  const Accelerator& accelerator = tables.cluster().accelerator;
  out.append(",\"roofline\":{");
  append_member(out, "peak_flop_per_s", accelerator.peak_of(linear));
  append_member(out, "memory_bandwidth_bytes_per_s", accelerator.memory_bandwidth);
  append_member(out, "ridge_flop_per_byte",
                (accelerator.peak_of(linear) / accelerator.memory_bandwidth).base());
  out.append(",\"gemms\":[");
  for (std::size_t kind = 0; kind <= tables.model().kinds.size(); ++kind) {
    for (const OperatorCost& cost : tables.operators(strategy, kind)) {
      if (!(cost.m > 0 && cost.forward > Seconds{})) continue;
      if (out.back() != '[') out.push_back(',');
      append_gemm(out, tables, cost, linear, kind);
    }
  }
  out.append("]}");
}

std::string estimate_answer(const Json& question) {
  Tables& tables = tables_of(question);
  const auto strategy = read<Strategy>(part(question, "strategy"));
  tables.tabulate(strategy);
  const Estimate estimate = evaluate(tables, strategy);
  std::string out = "{\"estimate\":";
  append_record(out, estimate);
  if (!is_illegal(estimate.verdict)) append_roofline(out, tables, strategy);
  out.push_back('}');
  return out;
}

// --------------------------------------------------------------------------------------- search
template <class Values, class F>
void read_values(Values& values, const F& field, const Json& listed) {
  if (listed.kind != Json::Kind::list) reject(field, listed, "a list");
  for (const Json& item : listed.items) values.push_back(converted(field, item));
}

Space space_of(const Json& given) {
  Space space;
  for (const auto& [name, listed] : given.members) {
    bool known = false;
    const auto fill = [&](const auto& field, auto& values) {
      if (name != field.name) return;
      read_values(values, field, listed);
      known = true;
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (fill(field_at<I>(RecordOf<Strategy>::fields), std::get<I>(space.values)), ...);
    }(std::make_index_sequence<field_count<Strategy>>{});
    if (!known) throw MalformedQuestion(name + ": no such knob of a strategy");
  }
  return space;
}

std::string search_answer(const Json& question) {
  const Tables& tables = tables_of(question);
  const Space space = space_of(part(question, "space"));
  const Enumeration rows(space, tables.model(), tables.cluster(), tables.task());
  SearchOptions options;
  options.objective.terms.push_back({find_column("step_time_s"), 1});
  const double headroom = part(question, "headroom").number;
  options.constraints.push_back({find_column("memory_bytes"), Comparison::less_equal, 1 - headroom,
                                 find_column("memory_capacity_bytes")});
  options.top = static_cast<std::size_t>(count(question, "top", 1000));
  const SearchResult found = search(tables, rows, {0, rows.size()}, options, {});
  std::string out = "{";
  append_member(out, "strategies", rows.size());
  append_member(out, "evaluated", found.counts.evaluated);
  out.append(",\"best\":[");
  const Estimate* before = nullptr;
  for (const Candidate& candidate : found.candidates) {
    // Neighbours whose answers are all equal differ in nothing that a reader sees.
    if (before != nullptr && *before == candidate.estimate) continue;
    before = &candidate.estimate;
    if (out.back() != '[') out.push_back(',');
    out.append("{\"strategy\":");
    append_record(out, candidate.strategy);
    out.append(",\"estimate\":");
    append_record(out, candidate.estimate);
    out.push_back('}');
  }
  out.append("]}");
  return out;
}

// -------------------------------------------------------------------------------------- serving
std::vector<double> numbers(const Json& question, const char* name) {
  struct Numbered {
    std::string_view name;
    double low, high;
    std::string_view meaning;
  };
  const Json& listed = part(question, name);
  std::vector<double> found;
  for (const Json& item : listed.items) {
    found.push_back(number_in(Numbered{name, 1, 1e7, "of this question"}, item, true));
  }
  return found;
}

void append_plan(std::string& out, const ServingPlan& plan, const RequestMix& mix) {
  out.append("{\"layout\":");
  append_record(out, plan.layout);
  append_member(out, "max_batched_tokens", plan.max_batched_tokens);
  append_member(out, "output_tokens_per_s_per_accelerator",
                plan.output_tokens_per_s_per_accelerator(mix.output));
  append_member(out, "tokens_per_s_per_user", 1 / plan.state.tpot.base());
  out.append(",\"state\":");
  append_record(out, plan.state);
  out.push_back('}');
}

/// What trades against what: output tokens per accelerator against those of a user.
std::string front_answer(const Json& question) {
  const Place place(question);
  const Model model = place.model();
  const auto kernels = read<ServingKernels>(part(question, "kernels"));
  const auto engine = read<Engine>(part(question, "engine"));
  auto mix = read<RequestMix>(part(question, "mix"));
  // Windows of speech are all as long; a text has a length of its own.
  if (model.encoder.image_patches > 0) mix.source = model.encoder.image_patches;
  const int most = count(question, "max_accelerators", 65535);
  const ServingChoices choices{serving_layouts(model, place.cluster, most),
                               numbers(question, "max_batched_tokens"),
                               count(question, "per_octave", 64)};
  const ServingPlans found = search_serving(
      {model, place.cluster, engine, kernels, mix, part(question, "imbalance").number}, choices, {},
      1, 1, {});
  std::string out = "{";
  append_member(out, "plans", found.plans);
  append_member(out, "layouts", choices.layouts.size());
  out.append(",\"front\":[");
  for (const ServingPlan& plan : found.front) {
    if (out.back() != '[') out.push_back(',');
    append_plan(out, plan, mix);
  }
  out.append("]}");
  return out;
}

}  // namespace

std::string answer(std::string_view text) {
  const Json question = parse(text);
  const std::string& asked = part(question, "ask").text;
  if (asked == "estimate") return estimate_answer(question);
  if (asked == "search") return search_answer(question);
  if (asked == "front") return front_answer(question);
  throw MalformedQuestion("ask='" + asked + "': must be one of estimate, search, front");
}

}  // namespace scalemodel::page
