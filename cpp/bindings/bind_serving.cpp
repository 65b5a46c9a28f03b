#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "bindings/record_columns.hpp"
#include "bindings/scheduler_calls.hpp"
#include "bindings/serving_instance.hpp"
#include "scalemodel/ops/expert_balance.hpp"
#include "scalemodel/search/serving_plans.hpp"
#include "scalemodel/serving/batches.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/serving/simulation.hpp"
#include "scalemodel/serving/states_at_rates.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel::bindings {
namespace {

constexpr py::ssize_t kServedColumns = 5;

using OptionalPool = std::optional<std::shared_ptr<ExpertPool>>;

StepTime step_of(const Instance& instance, double sequences, double context, double prompts,
                 double prompt_tokens, double prompt_keys, double query_tokens, double draft_tokens,
                 double images) {
  StepWork work;
  work.sequences = checked("sequences", sequences, 0, kMany);
  work.context = checked("context", context, 0, kMany);
  work.prompts = checked("prompts", prompts, 0, kMany);
  work.prompt_tokens = checked("prompt_tokens", prompt_tokens, 0, kMany);
  work.prompt_keys = checked("prompt_keys", prompt_keys, 0, kMany);
  work.query_tokens = checked("query_tokens", query_tokens, 1, kMany);
  work.draft_tokens = checked("draft_tokens", draft_tokens, 0, kMany);
  work.images = checked("images", images, 0, kMany);
  return instance.times.of(work);
}

py::tuple simulate(const Instance& instance, const RequestMix& mix, const NumberColumn& arrivals,
                   const NumberColumn& input, const NumberColumn& output, int replicas,
                   bool prefilled, Balance balance, std::uint64_t seed,
                   const py::object& progress) {
  checked("replicas", replicas, 1, 1e6);
  instance.expect(mix);
  py::array_t<double> served(std::vector<py::ssize_t>{arrivals.size(), kServedColumns});
  double* out = served.mutable_data();
  const StreamTotals totals = listening(progress, [&] {
    const std::vector<Request> requests = stream_of(arrivals, input, output, prefilled);
    const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
    const StreamResult result = simulate_stream(instance.times, instance.blocks, capacity, mix,
                                                requests, {replicas, balance, seed});
    for (const Served& each : result.served) {
      poll_point();
      const std::array<double, kServedColumns> row{
          each.started.base(), each.first_token.base(), each.finished.base(),
          static_cast<double>(each.preemptions), each.refused ? 1.0 : 0.0};
      out = std::copy(row.begin(), row.end(), out);
    }
    return result.totals;
  });
  return py::make_tuple(served, totals);
}

/// One row per rate, columns as of SteadyState.
py::dict steady_states_at(const Instance& instance, const RequestMix& mix,
                          const NumberColumn& rates) {
  constexpr std::size_t kBlock = 2048;  // of which states lie in a cache until they are in columns
  instance.expect(mix);
  if (rates.ndim() != 1) throw MalformedQuestion("requests_per_s: must have one dimension");
  const auto size = static_cast<std::size_t>(rates.size());
  const std::span all{rates.data(), size};
  for (const double rate : all) checked("requests_per_s", rate, 0, kMany);
  const CacheCapacity capacity = instance.capacity(mix.input, mix.output);
  const StatesAtRates states(instance.times, capacity, mix);
  py::dict columns;
  RecordColumns into(table_of<SteadyState>(), size, std::nullopt, columns);
  std::vector<SteadyState> found(std::min(size, kBlock));
  for (std::size_t first = 0; first < size; first += found.size()) {
    found.resize(std::min(found.size(), size - first));
    {
      const py::gil_scoped_release released;
      states.at(all.subspan(first, found.size()), found);
      into.put<SteadyState>(first, found);
    }
    check_interrupt();
  }
  return columns;
}

constexpr py::ssize_t kPlanColumns = 15;

/// One row per plan: tp pp ep dp cp, tokens of a step, sequences running, instances, requests/s,
/// step, TPOT, TTFT, utilisation, share of steps with prompts, place of the layout.
py::array_t<double> plan_rows(const std::vector<ServingPlan>& plans) {
  py::array_t<double> rows(
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(plans.size()), kPlanColumns});
  double* out = rows.mutable_data();
  for (const ServingPlan& plan : plans) {
    const ServingLayout& l = plan.layout;
    const SteadyState& s = plan.state;
    const std::array<double, kPlanColumns> row{static_cast<double>(l.tp),
                                               static_cast<double>(l.pp),
                                               static_cast<double>(l.ep),
                                               static_cast<double>(l.dp),
                                               static_cast<double>(l.cp),
                                               plan.max_batched_tokens,
                                               s.concurrency,
                                               plan.instances,
                                               s.requests_per_s,
                                               s.step.base(),
                                               s.tpot.base(),
                                               s.ttft.base(),
                                               s.utilisation,
                                               s.prompt_fraction,
                                               static_cast<double>(plan.place)};
    out = std::copy(row.begin(), row.end(), out);
  }
  return rows;
}

void expect_fields(const std::vector<ServingLayout>& layouts, const ServingKernels& kernels) {
  for (const ServingLayout& layout : layouts) {
    expect_pool_fields(layout);
    expect_overlap_fields(layout, kernels);
  }
}

py::tuple search_plans(const Model& model, const Cluster& cluster, const Engine& engine,
                       const ServingKernels& kernels, const RequestMix& mix, double imbalance,
                       const Draft& draft, const std::vector<ServingLayout>& layouts,
                       const std::vector<double>& max_batched_tokens, int per_octave,
                       ServingGoal goal, double ttft, double tpot, double rate, int top,
                       int threads) {
  expect_fields(layouts, kernels);
  for (const double tokens : max_batched_tokens) checked("max_batched_tokens", tokens, 1, 1e7);
  if (imbalance != 0) checked("imbalance", imbalance, 1, 1e4);
  checked("per_octave", per_octave, 1, 1e5);
  checked("top", top, 1, 1e6);
  checked("threads", threads, 1, 1024);
  const ServingLimits limits{goal, Seconds{checked("ttft_s", ttft, 0, kMany)},
                             Seconds{checked("tpot_s", tpot, 0, kMany)},
                             checked("requests_per_s", rate, 0, kMany)};
  Interpreter interpreter;
  const Poll poll = interpreter.poll();
  ServingPlans found;
  {
    const py::gil_scoped_release released;
    found = search_serving({model, cluster, engine, kernels, mix, imbalance, draft},
                           {layouts, max_batched_tokens, per_octave}, limits,
                           static_cast<std::size_t>(top), threads, poll);
  }
  interpreter.rethrow();
  return py::make_tuple(plan_rows(found.best), plan_rows(found.front), found.plans, found.feasible);
}

/// One row per plan: tp dp ep, accelerators of the expert pool, micro-batches, tokens of a step,
/// sequences running, requests/s, TPOT.
py::array_t<double> pool_rows(const std::vector<ServingPlan>& plans) {
  constexpr py::ssize_t kColumns = 9;
  py::array_t<double> rows(
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(plans.size()), kColumns});
  double* out = rows.mutable_data();
  for (const ServingPlan& plan : plans) {
    const ServingLayout& l = plan.layout;
    const std::array<double, kColumns> row{static_cast<double>(l.tp),
                                           static_cast<double>(l.dp),
                                           static_cast<double>(l.ep),
                                           static_cast<double>(l.expert_ranks),
                                           static_cast<double>(l.micro_batches),
                                           plan.max_batched_tokens,
                                           plan.state.concurrency,
                                           plan.state.requests_per_s,
                                           plan.state.tpot.base()};
    out = std::copy(row.begin(), row.end(), out);
  }
  return rows;
}

py::tuple search_pools(const Model& model, const Cluster& cluster, const Engine& engine,
                       const ServingKernels& kernels, const RequestMix& mix, double imbalance,
                       const OptionalPool& pool, double expert_price,
                       const std::vector<ServingLayout>& layouts, int per_octave, double tpot,
                       int top, int threads) {
  expect_fields(layouts, kernels);
  if (imbalance != 0) checked("imbalance", imbalance, 1, 1e4);
  checked("expert_price", expert_price, 1e-6, 1e6);
  checked("per_octave", per_octave, 1, 1e5);
  checked("top", top, 1, 1e6);
  checked("threads", threads, 1, 1024);
  const ServingLimits limits{ServingGoal::throughput, Seconds{},
                             Seconds{checked("tpot_s", tpot, 0, kMany)}, 0};
  const ServingChoices choices{
      layouts, {static_cast<double>(engine.max_batched_tokens)}, per_octave};
  Interpreter interpreter;
  const Poll poll = interpreter.poll();
  ServingPlans found;
  {
    const py::gil_scoped_release released;
    found = search_serving({model, cluster, engine, kernels, mix, imbalance, Draft{},
                            pool.value_or(nullptr), expert_price},
                           choices, limits, static_cast<std::size_t>(top), threads, poll);
  }
  interpreter.rethrow();
  return py::make_tuple(pool_rows(found.best), found.plans, found.feasible);
}

void bind_expert_pool(py::module_& m) {
  bind_record<PoolLoad>(m, R"(What attention and an expert pool are busy with in one step.)");
  py::class_<ExpertPool, std::shared_ptr<ExpertPool>>(
      m, "ExpertPool", "Accelerators of an expert pool that are not of the served cluster.")
      .def(py::init([](const Cluster& cluster, const ServingKernels& kernels) {
             return std::make_shared<ExpertPool>(ExpertPool{cluster, kernels});
           }),
           py::arg("cluster"), py::arg("kernels"));
}

void bind_instance(py::module_& m) {
  py::class_<Instance>(m, "Instance", "One serving instance, tabulated.")
      .def(py::init([](const Model& model, const Cluster& cluster, const Engine& engine,
                       const ServingKernels& kernels, const ServingLayout& layout, double imbalance,
                       const RequestMix& mix, const Draft& draft, const OptionalPool& given) {
             expect_fields({layout}, kernels);
             const std::shared_ptr<ExpertPool> pool = given.value_or(nullptr);
             Reason reason = check_layout(model, layout, cluster, pool ? &pool->cluster : nullptr);
             if (reason == Reason::ok) reason = check_draft(draft, layout, cluster);
             if (reason != Reason::ok) {
               throw MalformedQuestion("layout: illegal: " + std::string(name_of(reason)));
             }
             if (imbalance != 0) checked("imbalance", imbalance, 1, 1e4);
             return Instance(model, cluster, engine, kernels, layout, imbalance,
                             request_patches(model, mix), draft, pool);
           }),
           py::arg("model"), py::arg("cluster"), py::arg("engine"), py::arg("kernels"),
           py::arg("layout"), py::arg("imbalance") = 1.0, py::arg("images") = RequestMix{},
           py::arg("draft") = Draft{}, py::arg("expert_pool") = py::none())
      .def_property_readonly(
          "pool_parameters",
          [](const Instance& instance) {
            const PoolParameters all = pool_parameters(instance.model, 0);
            return py::make_tuple(all.routed + all.shared, all.chosen + all.shared);
          },
          "Parameters of what an expert pool computes in all layers, and those that a token uses.")
      .def(
          "pool_load",
          [](const Instance& instance, const RequestMix& mix, double sequences) {
            instance.expect(mix);
            return instance.times.pools(
                Demand(mix).work(checked("sequences", sequences, 0, kMany)));
          },
          py::arg("mix"), py::arg("sequences"),
          "Busy time of both pools in a step without prompts, where experts have one of their own.")
      .def(
          "decode_step",
          [](const Instance& instance, const RequestMix& mix, double sequences) {
            instance.expect(mix);
            return instance.times.of(Demand(mix).work(checked("sequences", sequences, 0, kMany)));
          },
          py::arg("mix"), py::arg("sequences"),
          "Time of a step without prompts, at the mean context of the mix and with its drafts.")
      .def("step", &step_of, py::kw_only(), py::arg("sequences") = 0.0, py::arg("context") = 0.0,
           py::arg("prompts") = 0.0, py::arg("prompt_tokens") = 0.0, py::arg("prompt_keys") = 0.0,
           py::arg("query_tokens") = 1.0, py::arg("draft_tokens") = 0.0, py::arg("images") = 0.0,
           "Time of one step.")
      .def("capacity", &Instance::capacity, py::arg("input_tokens"), py::arg("output_tokens"),
           "Memory of the fullest rank and what its KV cache holds.")
      .def(
          "cache_blocks",
          [](const Instance& instance, double tokens) {
            return instance.blocks.of(checked("tokens", tokens, 0, kMany));
          },
          py::arg("tokens"), "Blocks of one rank for a sequence.")
      .def(
          "steady_state",
          [](const Instance& instance, const RequestMix& mix, double concurrency, bool limited) {
            instance.expect(mix);
            CacheCapacity capacity = instance.capacity(mix.input, mix.output);
            if (!limited) {
              capacity.max_running_sequences =
                  std::max(capacity.max_running_sequences, concurrency);
            }
            return steady_state(instance.times, capacity, mix,
                                checked("concurrency", concurrency, 0, kMany));
          },
          py::arg("mix"), py::arg("concurrency"), py::arg("limited") = true,
          "At a fixed concurrency; not limited: even beyond the KV cache.")
      .def(
          "steady_state_at",
          [](const Instance& instance, const RequestMix& mix, double rate) {
            instance.expect(mix);
            return steady_state_at(instance.times, instance.capacity(mix.input, mix.output), mix,
                                   checked("requests_per_s", rate, 0, kMany));
          },
          py::arg("mix"), py::arg("requests_per_s"),
          "With requests arriving at this rate per second.")
      .def("steady_states_at", &steady_states_at, py::arg("mix"), py::arg("requests_per_s"),
           "Columns of the states at many such rates, one row each.")
      .def("simulate", &simulate, py::arg("mix"), py::arg("arrival_s"), py::arg("input_tokens"),
           py::arg("output_tokens"), py::arg("replicas") = 1, py::arg("prefilled") = false,
           py::arg("balance") = Balance::random, py::arg("seed") = 0,
           py::arg("progress") = py::none(),
           "Per request: started, first token, finished, preemptions, refused; and the totals.")
      .def(
          "schedule",
          [](const Instance& instance, const SchedulerLimits& limits, const NumberColumn& arrival,
             const CountColumn& input, const CountColumn& output, const NameColumn& names,
             const CountColumn& name_ends, int name_tokens, const NumberColumn& images) {
            if (images.size() > 0 && images.size() != arrival.size()) {
              throw MalformedQuestion("images: must be as long as arrival_s");
            }
            return schedule_columns(limits,
                                    {arrival, input, output, names, name_ends, name_tokens, images},
                                    &instance.times);
          },
          py::arg("limits"), py::arg("arrival_s"), py::arg("input_tokens"),
          py::arg("output_tokens"), py::arg("names"), py::arg("name_ends"), py::arg("name_tokens"),
          py::arg("images") = NumberColumn(), "Tables of steps and of requests, in seconds.")
      .def(
          "encode",
          [](const Instance& instance, double images) {
            const double count = checked("images", images, 1, kMany);
            const Model& model = instance.model;
            return EncoderPass{instance.times.encode(count),
                               encoder_instance_bytes(model, instance.engine, instance.layout,
                                                      instance.image_patches, count),
                               encoding_bytes(model, instance.image_patches),
                               encoding_time(model, instance.cluster, instance.image_patches)};
          },
          py::arg("images"),
          "What an instance of encoders alone takes for a batch of images, and to send one on.");
}

}  // namespace

void bind_serving(py::module_& m) {
  bind_record<Adapters>(m, R"(Low-rank adapters (LoRA) of one served model.

Every request names one of `count`, all as often as each other.)");
  bind_record<GuidedDecoding>(m, R"(Answers that follow a grammar.

Before a token of a guided request is sampled, the CPU fills a mask of the allowed ones.)");
  bind_record<Engine>(m, "One version of a serving engine.");
  bind_record<ServingKernels>(m, "The kernels an engine runs on one accelerator.");
  bind_record<ServingLayout>(m, R"(How one instance is spread over accelerators.

Examples
--------
>>> ServingLayout(tp=8).replace(ep=8)
ServingLayout(tp=8, ep=8))");
  bind_record<StepTime>(m, "One step of an instance by cause.");
  bind_record<CacheCapacity>(m, "Memory of the fullest rank and what its KV cache holds.");
  bind_record<RequestMix>(m, "Mean lengths of requests and what is known beforehand.");
  bind_record<SteadyState>(m, "A steady state of one instance.");
  bind_record<StreamTotals>(m, "Totals of a simulated stream.");
  bind_record<BatchPass>(m, "Time of a forward pass over some requests.");
  bind_record<BatchState>(m, "A server of batches in its steady state.");
  m.def(
      "batch_pass",
      [](double alone_s, double full_s, double padded, double most) {
        return batch_pass(Seconds{checked("alone_s", alone_s, 1e-9, 1e6)},
                          Seconds{checked("full_s", full_s, 1e-9, 1e6)},
                          checked("padded", padded, 1, 1e9), checked("most", most, 1, 1e9));
      },
      py::arg("alone_s"), py::arg("full_s"), py::arg("padded"), py::arg("most"),
      "The line through the times of two passes, of padded and of most requests.");
  m.def("full_batches", &full_batches, py::arg("batch_pass"), "Full batches one after another.");
  m.def(
      "batch_power_w",
      [](const BatchPass& pass, const BatchState& state, double alone_w, double full_w,
         double idle_w) {
        return batch_power(pass, state, Watts{checked("alone_w", alone_w, 0, 1e9)},
                           Watts{checked("full_w", full_w, 0, 1e9)},
                           Watts{checked("idle_w", idle_w, 0, 1e9)})
            .base();
      },
      py::arg("batch_pass"), py::arg("state"), py::arg("alone_w"), py::arg("full_w"),
      py::arg("idle_w"), "Mean watts of an accelerator of a server of batches.");
  m.def(
      "batch_state_at",
      [](const BatchPass& pass, double rate) {
        return batch_state_at(pass, Hertz{checked("requests_per_s", rate, 1e-12, kMany)});
      },
      py::arg("batch_pass"), py::arg("requests_per_s"),
      "With requests arriving at this rate per second.");
  bind_record<EncoderPass>(m, "Images through an instance of encoders alone.");
  bind_record<LatentGrid>(m, "What an autoencoder makes one place of.");
  bind_record<GenerationPass>(m, "Parts of the generation of an image or a video.");
  m.def(
      "latent_places",
      [](const LatentGrid& grid, int height, int width, int frames) {
        return latent_places(grid, static_cast<int>(checked("height", height, 1, 1e6)),
                             static_cast<int>(checked("width", width, 1, 1e6)),
                             static_cast<int>(checked("frames", frames, 1, 1e6)));
      },
      py::arg("grid"), py::arg("height"), py::arg("width"), py::arg("frames") = 1,
      "Places of an image, or of a video of several frames.");
  m.def(
      "generation_time", [](const GenerationPass& parts) { return parts.total().base(); },
      py::arg("parts"), "Seconds of a whole generation.");
  m.def(
      "check_serving_layout",
      [](const Model& model, const ServingLayout& layout, const Cluster& cluster,
         const std::optional<Cluster>& pool) {
        expect_pool_fields(layout);
        return check_layout(model, layout, cluster, pool ? &*pool : nullptr);
      },
      py::arg("model"), py::arg("layout"), py::arg("cluster"),
      py::arg("expert_cluster") = py::none(),
      R"(ok, or the reason why an instance cannot be laid out so.

`expert_cluster`: where the experts have a pool that is no part of the cluster.)");
  m.def(
      "rank_imbalance",
      [](double spread, double slots, double ranks, double pairs) {
        return rank_imbalance({checked("spread", spread, 0, kMany),
                               checked("slots", slots, 1, kMany), checked("ranks", ranks, 1, kMany),
                               checked("pairs", pairs, 0, 1e15)});
      },
      py::arg("spread"), py::arg("slots"), py::arg("ranks"), py::arg("pairs") = 0.0,
      R"(Load of the fullest expert-parallel rank over the mean.

`spread`: standard deviation of an expert's load over its mean; `slots`: experts and their copies
over all ranks; `pairs`: (token, expert) pairs of a rank, 0 for very many.

Examples
--------
>>> round(rank_imbalance(2.1, 256, 32), 2), round(rank_imbalance(0.158, 288, 32), 2)
(2.54, 1.11))");
  m.def("why_no_answers", &why_no_answers, py::arg("model"),
        "Why a model serves no answers, and what would; empty for one that does.");
  m.def("tokens_per_step", &tokens_per_step, py::arg("mix"),
        "Tokens a sequence gains per step, accepted draft tokens included.");
  bind_drafts(m);
  bind_expert_pool(m);
  bind_instance(m);
  m.def("serving_layouts", &serving_layouts, py::arg("model"), py::arg("cluster"),
        py::arg("max_accelerators"),
        "Legal layouts of an instance that fits into a cluster and a number of accelerators.");
  m.def("search_serving", &search_plans, py::arg("model"), py::arg("cluster"), py::arg("engine"),
        py::arg("kernels"), py::arg("mix"), py::arg("imbalance"), py::arg("draft"),
        py::arg("layouts"), py::arg("max_batched_tokens"), py::arg("per_octave"), py::arg("goal"),
        py::arg("ttft_s"), py::arg("tpot_s"), py::arg("requests_per_s"), py::arg("top"),
        py::arg("threads"),
        "Best plans, the front of throughput and time between tokens, plans tried and feasible.");
  m.def("search_pools", &search_pools, py::arg("model"), py::arg("cluster"), py::arg("engine"),
        py::arg("kernels"), py::arg("mix"), py::arg("imbalance"), py::arg("expert_pool"),
        py::arg("expert_price"), py::arg("layouts"), py::arg("per_octave"), py::arg("tpot_s"),
        py::arg("top"), py::arg("threads"),
        "Best plans with experts on a pool of their own, plans tried and feasible.");
}

}  // namespace scalemodel::bindings
