#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <vector>

#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/economics/carbon.hpp"
#include "scalemodel/economics/checkpoints.hpp"
#include "scalemodel/economics/data_loading.hpp"
#include "scalemodel/economics/failure_simulation.hpp"
#include "scalemodel/economics/recovery.hpp"
#include "scalemodel/economics/reliability.hpp"
#include "scalemodel/economics/run.hpp"
#include "scalemodel/economics/scaling_law.hpp"
#include "scalemodel/economics/spares.hpp"
#include "scalemodel/economics/step.hpp"

namespace scalemodel::bindings {
namespace {

template <class Number>
py::array_t<double> column(const std::vector<SimulatedRun>& runs, const Number& number) {
  py::array_t<double> values(static_cast<py::ssize_t>(runs.size()));
  double* out = values.mutable_data();
  for (const SimulatedRun& run : runs) *out++ = number(run);
  return values;
}

py::dict simulated(const FailingJob& job, const SimulationPlan& plan) {
  const std::vector<SimulatedRun> runs = listening([&] { return simulate_runs(job, plan); });
  py::dict columns;
  columns["time_s"] = column(runs, [](const SimulatedRun& run) { return run.time.base(); });
  columns["repeated_s"] = column(runs, [](const SimulatedRun& run) { return run.repeated.base(); });
  columns["writing_s"] = column(runs, [](const SimulatedRun& run) { return run.writing.base(); });
  columns["restarting_s"] =
      column(runs, [](const SimulatedRun& run) { return run.restarting.base(); });
  columns["queueing_s"] = column(runs, [](const SimulatedRun& run) { return run.queueing.base(); });
  columns["failures"] =
      column(runs, [](const SimulatedRun& run) { return static_cast<double>(run.failures); });
  return columns;
}

void bind_carbon(py::module_& m) {
  bind_record<ChipProcess>(m, "How a chip is made, per cm2 of good die.");
  bind_record<ServerParts>(m, "Footprint of a server beside its accelerators.");
  m.def(
      "operational_kg",
      [](double energy_j, double grid_g_per_kwh) {
        return operational_kg(Joules{energy_j}, grid_g_per_kwh);
      },
      py::arg("energy_j"), py::arg("grid_g_per_kwh"), "kg of CO2e of an energy.");
  m.def(
      "implied_grid_g_per_kwh",
      [](double emitted_kg, double energy_j) {
        return implied_grid_g_per_kwh(emitted_kg, Joules{energy_j});
      },
      py::arg("emitted_kg"), py::arg("energy_j"), "Grid intensity that a footprint implies.");
  m.def("die_kg", &die_kg, py::arg("area_cm2"), py::arg("process"), "kg of CO2e of a die.");
  m.def(
      "memory_kg",
      [](double capacity_bytes, double g_per_gb) {
        return memory_kg(Bytes{capacity_bytes}, g_per_gb);
      },
      py::arg("capacity_bytes"), py::arg("g_per_gb"), "kg of CO2e of memory.");
  m.def("accelerator_share_kg", &accelerator_share_kg, py::arg("accelerator_kg"), py::arg("server"),
        py::arg("accelerators"), "kg of CO2e of an accelerator with its share of the server.");
  m.def(
      "amortised",
      [](double whole, double used_s, double lifetime_s, double utilisation_fraction) {
        return amortised(whole, Seconds{used_s}, Seconds{lifetime_s}, utilisation_fraction);
      },
      py::arg("whole"), py::arg("used_s"), py::arg("lifetime_s"), py::arg("utilisation_fraction"),
      "The part of something bought once that a use carries.");
}

void bind_run(py::module_& m) {
  m.def(
      "facility_energy_j",
      [](double time_s, double accelerator_w, double accelerators, double host_w, double nodes,
         double pue) {
        return facility_energy(Seconds{time_s}, Watts{accelerator_w}, accelerators, Watts{host_w},
                               nodes, pue)
            .base();
      },
      py::arg("time_s"), py::arg("accelerator_w"), py::arg("accelerators"), py::arg("host_w"),
      py::arg("nodes"), py::arg("pue"), "Joules at the meter of the facility.");
  m.def("goodput", &goodput, py::arg("tokens_per_s"), py::arg("ettr_fraction"),
        "Tokens per second that last.");
  m.def(
      "training_time_s",
      [](double tokens, double tokens_per_s, double ettr_fraction) {
        return training_time(tokens, tokens_per_s, ettr_fraction).base();
      },
      py::arg("tokens"), py::arg("tokens_per_s"), py::arg("ettr_fraction"),
      "Seconds to train on this number of tokens.");
  m.def(
      "tokens_in",
      [](double time_s, double tokens_per_s, double ettr_fraction) {
        return tokens_in(Seconds{time_s}, tokens_per_s, ettr_fraction);
      },
      py::arg("time_s"), py::arg("tokens_per_s"), py::arg("ettr_fraction"), "Tokens of a time.");
  m.def(
      "energy_over_run_j",
      [](double step_j, double step_time_s, double time_s) {
        return over_run(Joules{step_j}, Seconds{step_time_s}, Seconds{time_s}).base();
      },
      py::arg("step_j"), py::arg("step_time_s"), py::arg("time_s"), "Joules of a run.");
  m.def(
      "rental_cost_usd",
      [](double time_s, double accelerators, double price_usd_per_s) {
        return rental_cost(Seconds{time_s}, accelerators, DollarsPerSecond{price_usd_per_s}).base();
      },
      py::arg("time_s"), py::arg("accelerators"), py::arg("price_usd_per_s"), "Dollars of a run.");
  m.def(
      "owned_price_usd_per_s",
      [](double capital_usd, double lifetime_s, double utilisation_fraction, double power_w,
         double pue, double usd_per_kwh) {
        return owned_price(Dollars{capital_usd}, Seconds{lifetime_s}, utilisation_fraction,
                           Watts{power_w}, pue, Dollars{usd_per_kwh})
            .base();
      },
      py::arg("capital_usd"), py::arg("lifetime_s"), py::arg("utilisation_fraction"),
      py::arg("power_w"), py::arg("pue"), py::arg("usd_per_kwh"),
      "Dollars per second of use of an owned accelerator.");
  m.def(
      "flop_for_energy",
      [](double energy_j, double model_flop_per_s, double facility_w) {
        return flop_for_energy(Joules{energy_j}, FlopPerSecond{model_flop_per_s}, Watts{facility_w})
            .base();
      },
      py::arg("energy_j"), py::arg("model_flop_per_s"), py::arg("facility_w"),
      "Model work that an energy pays for.");
  m.def(
      "flop_for_money",
      [](double budget_usd, double model_flop_per_s, double price_usd_per_s) {
        return flop_for_money(Dollars{budget_usd}, FlopPerSecond{model_flop_per_s},
                              DollarsPerSecond{price_usd_per_s})
            .base();
      },
      py::arg("budget_usd"), py::arg("model_flop_per_s"), py::arg("price_usd_per_s"),
      "Model work that a sum of money pays for.");
  m.def("joint_factor", &joint_factor, py::arg("first"), py::arg("second"),
        "Half-width factor of a product of two uncertain factors.");
}

void bind_scaling_law(py::module_& m) {
  bind_record<LossLaw>(m, "Loss by parameters and tokens.");
  m.def(
      "loss",
      [](const LossLaw& law, double parameters, double tokens) {
        return loss(law, {parameters, tokens});
      },
      py::arg("law"), py::arg("parameters"), py::arg("tokens"), "Loss of a model and its data.");
  m.def(
      "least_loss_split",
      [](const LossLaw& law, double budget_flop) {
        const ModelAndData split = least_loss_split(law, Flop{budget_flop});
        return py::make_tuple(split.parameters, split.tokens);
      },
      py::arg("law"), py::arg("budget_flop"), "Parameters and tokens of least loss.");
  m.def(
      "fixed_ratio_split",
      [](double tokens_per_parameter, double budget_flop) {
        const ModelAndData split = fixed_ratio_split(tokens_per_parameter, Flop{budget_flop});
        return py::make_tuple(split.parameters, split.tokens);
      },
      py::arg("tokens_per_parameter"), py::arg("budget_flop"),
      "Parameters and tokens at a fixed ratio.");
}

void bind_reliability(py::module_& m) {
  bind_record<FailingJob>(m, "A job that fails and starts again from its last checkpoint.");
  bind_record<SimulationPlan>(m, "What a simulation of failures needs beside the job.");
  m.def(
      "mean_time_to_failure_s",
      [](const FailingJob& job) { return mean_time_to_failure(job).base(); }, py::arg("job"),
      "Seconds between interruptions; infinite without failures.");
  m.def(
      "young_interval_s",
      [](double write_s, double mttf_s) {
        return young_interval(Seconds{write_s}, Seconds{mttf_s}).base();
      },
      py::arg("write_s"), py::arg("mttf_s"), "Young's interval between checkpoints.");
  m.def(
      "daly_interval_s",
      [](double write_s, double mttf_s) {
        return daly_interval(Seconds{write_s}, Seconds{mttf_s}).base();
      },
      py::arg("write_s"), py::arg("mttf_s"), "Daly's interval between checkpoints.");
  m.def(
      "availability_interval_s",
      [](double write_s, double mttf_s, double restart_s) {
        return availability_interval(Seconds{write_s}, Seconds{mttf_s}, Seconds{restart_s}).base();
      },
      py::arg("write_s"), py::arg("mttf_s"), py::arg("restart_s"),
      "Interval of greatest availability.");
  m.def(
      "mean_repeated_s",
      [](const FailingJob& job, double interval_s) {
        return mean_repeated(job, Seconds{interval_s}).base();
      },
      py::arg("job"), py::arg("interval_s"), "Work lost at a failure, in the mean.");
  m.def(
      "first_order_ettr",
      [](const FailingJob& job, double interval_s) {
        return first_order_ettr(job, Seconds{interval_s});
      },
      py::arg("job"), py::arg("interval_s"), "Productive share, first order in the failure rate.");
  m.def(
      "exact_ettr",
      [](const FailingJob& job, double interval_s) { return exact_ettr(job, Seconds{interval_s}); },
      py::arg("job"), py::arg("interval_s"), "Productive share, any failure rate.");
  m.def("simulate_runs", &simulated, py::arg("job"), py::arg("plan"),
        "Columns of independent simulated runs.");
}

void bind_spares(py::module_& m) {
  bind_record<SparePool>(m, "Nodes beside a job, and what goes on while one is missing.");
  m.def("shares_under_repair", &shares_under_repair, py::arg("job"), py::arg("pool"),
        "Share of the time with 0, 1, ... nodes under repair.");
  m.def("staffed_fraction", &staffed_fraction, py::arg("job"), py::arg("pool"),
        "Replicas that have all of their nodes, over all, in the mean.");
  m.def(
      "ettr_with_spares",
      [](const FailingJob& job, double interval_s, const SparePool& pool) {
        return ettr_with_spares(job, Seconds{interval_s}, pool);
      },
      py::arg("job"), py::arg("interval_s"), py::arg("pool"),
      "Productive share with spares and a queue for repaired nodes.");
  m.def("work_per_paid_node", &work_per_paid_node, py::arg("share"), py::arg("nodes"),
        py::arg("spares"), py::arg("spare_price"), "Work per hour paid for, spares included.");
}

void bind_recovery(py::module_& m) {
  bind_record<Recovery>(m, "One way to go on after a loss of nodes.");
  m.def(
      "reload_time_s",
      [](double state_bytes, double nodes, double node_bytes_per_s, double shared_bytes_per_s) {
        return reload_time(Bytes{state_bytes}, nodes, BytesPerSecond{node_bytes_per_s},
                           BytesPerSecond{shared_bytes_per_s})
            .base();
      },
      py::arg("state_bytes"), py::arg("nodes"), py::arg("node_bytes_per_s"),
      py::arg("shared_bytes_per_s") = 0.0, "Seconds to read a state from storage or from peers.");
  m.def(
      "waiting",
      [](const FailingJob& job, double repeated_s, double reload_s) {
        return waiting(job, Seconds{repeated_s}, Seconds{reload_s});
      },
      py::arg("job"), py::arg("repeated_s"), py::arg("reload_s"),
      "The job waits for the repair and starts again.");
  m.def(
      "restarting",
      [](const FailingJob& job, double rate_fraction, double repeated_s, double reload_s,
         double reload_whole_s) {
        return restarting(job, rate_fraction, Seconds{repeated_s}, Seconds{reload_s},
                          Seconds{reload_whole_s});
      },
      py::arg("job"), py::arg("rate_fraction"), py::arg("repeated_s"), py::arg("reload_s"),
      py::arg("reload_whole_s"), "The whole job starts again, and once more after the repair.");
  m.def(
      "without_replicas",
      [](double rate_fraction, double stall_s, double step_s) {
        return without_replicas(rate_fraction, Seconds{stall_s}, Seconds{step_s});
      },
      py::arg("rate_fraction"), py::arg("stall_s"), py::arg("step_s"),
      "Replicas that kept the state go on.");
  m.def(
      "replicas_on_spares",
      [](const FailingJob& job, double lost_fraction, double stall_s, double step_s,
         double reload_s) {
        return replicas_on_spares(job, lost_fraction, Seconds{stall_s}, Seconds{step_s},
                                  Seconds{reload_s});
      },
      py::arg("job"), py::arg("lost_fraction"), py::arg("stall_s"), py::arg("step_s"),
      py::arg("reload_s"), "Replicas go on while spares take the places of lost nodes.");
  m.def(
      "work_done_s",
      [](const Recovery& way, double repair_s, double time_s) {
        return work_done(way, Seconds{repair_s}, Seconds{time_s}).base();
      },
      py::arg("way"), py::arg("repair_s"), py::arg("time_s"),
      "Work done so long after the loss, in seconds of the job as it was.");
  m.def(
      "break_even_repair_s",
      [](const Recovery& way, const Recovery& other) {
        return break_even_repair(way, other).base();
      },
      py::arg("way"), py::arg("other"),
      "Repair time from which on one way does more than another.");
  m.def(
      "overtakes_at_s",
      [](const Recovery& way, const Recovery& other, double repair_s, double horizon_s) {
        return overtakes_at(way, other, Seconds{repair_s}, Seconds{horizon_s}).base();
      },
      py::arg("way"), py::arg("other"), py::arg("repair_s"), py::arg("horizon_s"),
      "When one way is ahead of another for the first time; infinite: not by the horizon.");
}

void bind_checkpoints(py::module_& m) {
  bind_record<CheckpointWrite>(m, "What a job writes of a checkpoint, and over which paths.");
  m.def(
      "checkpoint_blocking_s",
      [](const CheckpointWrite& write, bool asynchronous) {
        return blocking_time(write, asynchronous).base();
      },
      py::arg("write"), py::arg("asynchronous"), "Seconds that the job stands still.");
  m.def(
      "checkpoint_background_s",
      [](const CheckpointWrite& write, bool asynchronous) {
        return background_time(write, asynchronous).base();
      },
      py::arg("write"), py::arg("asynchronous"), "Seconds from then until the checkpoint counts.");
  m.def(
      "checkpoint_host_memory_bytes",
      [](const CheckpointWrite& write, bool asynchronous) {
        return checkpoint_host_memory(write, asynchronous).base();
      },
      py::arg("write"), py::arg("asynchronous"), "Host memory of the busiest node.");
  m.def(
      "two_level_ettr",
      [](const FailingJob& local, double local_interval_s, const FailingJob& remote,
         double remote_interval_s, double beyond_fraction) {
        return two_level_ettr(local, Seconds{local_interval_s}, remote, Seconds{remote_interval_s},
                              beyond_fraction);
      },
      py::arg("local"), py::arg("local_interval_s"), py::arg("remote"),
      py::arg("remote_interval_s"), py::arg("beyond_fraction"),
      "Productive share with frequent checkpoints on nodes and seldom ones in storage.");
}

void bind_data_loading(py::module_& m) {
  bind_record<StoredSample>(m, "One sample as it is stored, and what it becomes.");
  bind_record<DataPath>(m, "What feeds the steps of a job with samples.");
  m.def(
      "loading_rates",
      [](const StoredSample& sample, const DataPath& path) {
        py::dict rates;
        rates["storage"] = storage_rate(sample, path).base();
        rates["network"] = network_rate(sample, path).base();
        rates["decode"] = decode_rate(sample, path).base();
        rates["host_link"] = host_link_rate(sample, path).base();
        return rates;
      },
      py::arg("sample"), py::arg("path"), "Samples per second that each part of a path passes.");
  m.def(
      "loading_rate_per_s",
      [](const StoredSample& sample, const DataPath& path) {
        return loading_rate(sample, path).base();
      },
      py::arg("sample"), py::arg("path"), "Samples per second that a path passes.");
  m.def(
      "exposed_loading_s",
      [](double samples, double rate_per_s, double step_s, bool prefetches) {
        return exposed_loading(samples, Hertz{rate_per_s}, Seconds{step_s}, prefetches).base();
      },
      py::arg("samples"), py::arg("rate_per_s"), py::arg("step_s"), py::arg("prefetches"),
      "Seconds of every step that wait for samples.");
  m.def(
      "loading_cores_needed",
      [](const StoredSample& sample, double needed_per_s, double nodes) {
        return cores_needed(sample, Hertz{needed_per_s}, nodes);
      },
      py::arg("sample"), py::arg("needed_per_s"), py::arg("nodes"),
      "Cores of a node that decode as fast as is asked.");
}

}  // namespace

void bind_economics(py::module_& m) {
  bind_carbon(m);
  bind_run(m);
  bind_scaling_law(m);
  bind_reliability(m);
  bind_spares(m);
  bind_recovery(m);
  bind_checkpoints(m);
  bind_data_loading(m);
}

}  // namespace scalemodel::bindings
