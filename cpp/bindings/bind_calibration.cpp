#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "bindings/attention_calls.hpp"
#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "scalemodel/calibration/conformal.hpp"
#include "scalemodel/calibration/fit_kernels.hpp"

namespace scalemodel::bindings {
namespace {

using Counts = py::array_t<int, py::array::c_style | py::array::forcecast>;
/// A free field, its range, and the fields tied to it.
using Ranges = std::vector<std::tuple<std::string, double, double, std::vector<std::string>>>;

std::vector<TimedSample> samples_of(const NumberColumn& time_s, const NumberColumn& weight,
                                    const Counts& fold) {
  if (weight.size() != time_s.size() || fold.size() != time_s.size()) {
    throw MalformedQuestion("time_s, weight and fold: must have the same length");
  }
  std::vector<TimedSample> samples;
  for (py::ssize_t i = 0; i < time_s.size(); ++i) {
    if (!(time_s.at(i) > 0) || !(weight.at(i) > 0) || fold.at(i) < 0) {
      throw MalformedQuestion("time_s, weight, fold: times and weights must be positive");
    }
    samples.push_back({Seconds{time_s.at(i)}, weight.at(i), fold.at(i)});
  }
  if (samples.empty()) throw MalformedQuestion("time_s=[]: at least one sample is needed");
  return samples;
}

template <Record T>
std::vector<FreeField> fields_of(const T& prior, const Ranges& ranges) {
  std::vector<FreeField> fields;
  for (const auto& [name, low, high, tied] : ranges) {
    T probe = prior;
    if (!set_number(probe, name, low)) unknown_field(name, RecordOf<T>::name);
    for (const std::string& other : tied) {
      if (!set_number(probe, other, low)) unknown_field(other, RecordOf<T>::name);
    }
    if (!(low > 0) || !(high > low)) {
      throw MalformedQuestion(name + ": needs a range with 0 < low < high");
    }
    fields.push_back({name, low, high, tied});
  }
  return fields;
}

void require_length(py::ssize_t length, py::ssize_t expected, const char* name) {
  if (length == expected) return;
  throw MalformedQuestion(std::string(name) + ": must be as long as the other columns");
}

std::vector<GemmShape> shapes_of(const NumberColumn& m, const NumberColumn& n,
                                 const NumberColumn& k, const NumberColumn& batch,
                                 py::ssize_t length) {
  for (const auto& [array, name] : {std::pair{&m, "m"}, {&n, "n"}, {&k, "k"}, {&batch, "batch"}}) {
    require_length(array->size(), length, name);
  }
  std::vector<GemmShape> shapes;
  for (py::ssize_t i = 0; i < length; ++i) {
    shapes.push_back({m.at(i), n.at(i), k.at(i), batch.at(i), 2});
  }
  return shapes;
}

std::vector<CollectiveCall> calls_of(const std::vector<Collective>& op,
                                     const NumberColumn& size_bytes, const Counts& ranks,
                                     const Cluster& cluster) {
  const auto length = static_cast<py::ssize_t>(op.size());
  require_length(size_bytes.size(), length, "size_bytes");
  require_length(ranks.size(), length, "ranks");
  std::vector<CollectiveCall> calls;
  for (py::ssize_t i = 0; i < length; ++i) {
    calls.push_back({op[static_cast<std::size_t>(i)], Bytes{size_bytes.at(i)},
                     group_shape(cluster, std::max(1, ranks.at(i)), 1)});
  }
  return calls;
}

template <Record T>
py::tuple answer(const RecordFit<T>& fitted) {
  return py::make_tuple(fitted.record, fitted.fit.fields,
                        py::array_t<double>(py::cast(fitted.fit.predicted_s)),
                        py::array_t<double>(py::cast(fitted.fit.held_out_s)));
}

template <class Bound>
py::array_t<double> bounds(std::size_t count, const Bound& bound) {
  py::array_t<double> times_s(static_cast<py::ssize_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    times_s.mutable_at(static_cast<py::ssize_t>(i)) = bound(i).base();
  }
  return times_s;
}

template <Record T, auto kFit>
void def_gemm_fit(py::module_& m, const char* name, const char* meaning) {
  m.def(
      name,
      [](const Accelerator& accelerator, Precision precision, const NumberColumn& m_,
         const NumberColumn& n, const NumberColumn& k, const NumberColumn& batch,
         const NumberColumn& time_s, const NumberColumn& weight, const Counts& fold,
         const Ranges& ranges) {
        const auto samples = samples_of(time_s, weight, fold);
        const auto shapes = shapes_of(m_, n, k, batch, time_s.size());
        const auto fields = fields_of(T{}, ranges);
        const auto fitted =
            listening([&] { return kFit(accelerator, precision, shapes, samples, fields); });
        return answer(fitted);
      },
      py::arg("accelerator"), py::arg("precision"), py::arg("m"), py::arg("n"), py::arg("k"),
      py::arg("batch"), py::arg("time_s"), py::arg("weight"), py::arg("fold"), py::arg("ranges"),
      meaning);
}

void bind_gemm_fits(py::module_& m) {
  def_gemm_fit<TileGemm, fit_tile_gemm>(
      m, "fit_tile_gemm",
      "Constants of the tile form from measured times: record, fields, predicted_s, held_out_s.");
  def_gemm_fit<GemmKernels, fit_roofline_gemm>(
      m, "fit_roofline_gemm",
      "Constants of the roofline form: record, fields, predicted_s, held_out_s.");
  m.def(
      "gemm_bound_s",
      [](const Accelerator& accelerator, Precision precision, const NumberColumn& m_,
         const NumberColumn& n, const NumberColumn& k, const NumberColumn& batch) {
        const auto shapes = shapes_of(m_, n, k, batch, m_.size());
        return bounds(shapes.size(),
                      [&](std::size_t i) { return gemm_bound(shapes[i], precision, accelerator); });
      },
      py::arg("accelerator"), py::arg("precision"), py::arg("m"), py::arg("n"), py::arg("k"),
      py::arg("batch"), "Seconds that no measurement of a multiplication can undercut.");
}

void bind_gemm_work(py::module_& m) {
  m.def(
      "gemm_work",
      [](Precision precision, double m_, double n, double k, double batch) {
        const GemmShape shape{m_, n, k, batch, 2};
        return py::make_tuple(shape.flop(), gemm_traffic(shape, precision));
      },
      py::arg("precision"), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("batch") = 1.0,
      "Flop of a multiplication, and its bytes when every operand moves once.");
}

void bind_elementwise_fits(py::module_& m) {
  m.def(
      "fit_elementwise",
      [](const Accelerator& accelerator, const std::vector<MemoryBound>& family,
         const NumberColumn& size_bytes, const NumberColumn& time_s, const NumberColumn& weight,
         const Counts& fold, const Ranges& ranges) {
        const auto samples = samples_of(time_s, weight, fold);
        require_length(size_bytes.size(), time_s.size(), "size_bytes");
        require_length(static_cast<py::ssize_t>(family.size()), time_s.size(), "family");
        std::vector<MemoryBoundCall> calls;
        for (std::size_t i = 0; i < family.size(); ++i) {
          calls.push_back({family[i], Bytes{size_bytes.at(static_cast<py::ssize_t>(i))}});
        }
        return answer(
            fit_elementwise(accelerator, calls, samples, fields_of(ElementwiseKernels{}, ranges)));
      },
      py::arg("accelerator"), py::arg("family"), py::arg("size_bytes"), py::arg("time_s"),
      py::arg("weight"), py::arg("fold"), py::arg("ranges"),
      "Constants of memory-bound kernels: record, fields, predicted_s, held_out_s.");
  m.def(
      "memory_bound_s",
      [](const Accelerator& accelerator, const NumberColumn& size_bytes) {
        return bounds(static_cast<std::size_t>(size_bytes.size()), [&](std::size_t i) {
          return memory_bound(Bytes{size_bytes.at(static_cast<py::ssize_t>(i))}, accelerator);
        });
      },
      py::arg("accelerator"), py::arg("size_bytes"),
      "Seconds that no measurement of a memory-bound kernel can undercut.");
}

template <Record T, auto kFit>
void def_attention_fit(py::module_& m, const char* name, const char* meaning) {
  m.def(
      name,
      [](const Accelerator& accelerator, const T& kernel, const NumberColumn& batch,
         const NumberColumn& queries, const NumberColumn& keys, const NumberColumn& heads,
         const NumberColumn& kv_heads, const NumberColumn& head_dim, const NumberColumn& v_head_dim,
         const NumberColumn& window, bool causal, const NumberColumn& time_s,
         const NumberColumn& weight, const Counts& fold, const Ranges& ranges) {
        AttentionCall common;
        common.work.causal = causal;
        const auto samples = samples_of(time_s, weight, fold);
        require_length(batch.size(), time_s.size(), "batch");
        const auto calls = attention_calls(
            common, {&batch, &queries, &keys, &heads, &kv_heads, &head_dim, &v_head_dim, &window});
        const auto fields = fields_of(T{}, ranges);
        const auto fitted =
            listening([&] { return kFit(accelerator, kernel, calls, samples, fields); });
        return answer(fitted);
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("batch"), py::arg("queries"),
      py::arg("keys"), py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"),
      py::arg("v_head_dim"), py::arg("window"), py::kw_only(), py::arg("causal"), py::arg("time_s"),
      py::arg("weight"), py::arg("fold"), py::arg("ranges"), meaning);
}

void bind_attention_fits(py::module_& m) {
  def_attention_fit<PrefillKernel, fit_prefill>(
      m, "fit_prefill",
      "Constants of a whole-prompt attention kernel: record, fields, predicted_s, held_out_s.");
  def_attention_fit<DecodeKernel, fit_decode>(
      m, "fit_decode",
      "Constants of a one-query attention kernel: record, fields, predicted_s, held_out_s.");
  m.def(
      "attention_bound_s",
      [](const Accelerator& accelerator, const NumberColumn& batch, const NumberColumn& queries,
         const NumberColumn& keys, const NumberColumn& heads, const NumberColumn& kv_heads,
         const NumberColumn& head_dim, const NumberColumn& v_head_dim, const NumberColumn& window,
         bool causal) {
        AttentionCall common;
        common.work.causal = causal;
        const auto calls = attention_calls(
            common, {&batch, &queries, &keys, &heads, &kv_heads, &head_dim, &v_head_dim, &window});
        return bounds(calls.size(),
                      [&](std::size_t i) { return attention_bound(calls[i], accelerator); });
      },
      py::arg("accelerator"), py::arg("batch"), py::arg("queries"), py::arg("keys"),
      py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"), py::arg("v_head_dim"),
      py::arg("window"), py::kw_only(), py::arg("causal"),
      "Seconds that no measurement of an attention call can undercut.");
}

void bind_flash_fit(py::module_& m) {
  m.def(
      "fit_flash",
      [](const Accelerator& accelerator, Precision precision, const std::vector<bool>& backward,
         const NumberColumn& batch, const NumberColumn& tokens, const NumberColumn& heads,
         const NumberColumn& head_dim, bool causal, const NumberColumn& time_s,
         const NumberColumn& weight, const Counts& fold, const Ranges& ranges) {
        const auto samples = samples_of(time_s, weight, fold);
        for (const auto& [column, name] : {std::pair{&batch, "batch"},
                                           {&tokens, "tokens"},
                                           {&heads, "heads"},
                                           {&head_dim, "head_dim"}}) {
          require_length(column->size(), time_s.size(), name);
        }
        require_length(static_cast<py::ssize_t>(backward.size()), time_s.size(), "backward");
        std::vector<FlashPass> passes;
        for (py::ssize_t i = 0; i < time_s.size(); ++i) {
          FlashPass pass;
          pass.work.batch = batch.at(i);
          pass.work.queries = pass.work.keys = tokens.at(i);
          pass.work.heads = pass.work.kv_heads = heads.at(i);
          pass.work.head_dim = pass.work.v_head_dim = head_dim.at(i);
          pass.work.causal = causal;
          pass.backward = backward[static_cast<std::size_t>(i)];
          passes.push_back(pass);
        }
        return answer(fit_flash(accelerator, precision, passes, samples,
                                fields_of(AttentionKernels{}, ranges)));
      },
      py::arg("accelerator"), py::arg("precision"), py::arg("backward"), py::arg("batch"),
      py::arg("tokens"), py::arg("heads"), py::arg("head_dim"), py::kw_only(), py::arg("causal"),
      py::arg("time_s"), py::arg("weight"), py::arg("fold"), py::arg("ranges"),
      "Rates and launch of the attention of training: record, fields, predicted_s, held_out_s.");
}

template <Record T, auto kFit>
void def_collective_fit(py::module_& m, const char* name, const char* meaning) {
  m.def(
      name,
      [](const Cluster& cluster, const std::vector<Collective>& op, const NumberColumn& size_bytes,
         const Counts& ranks, const NumberColumn& time_s, const NumberColumn& weight,
         const Counts& fold, const Ranges& ranges) {
        const auto samples = samples_of(time_s, weight, fold);
        const auto calls = calls_of(op, size_bytes, ranks, cluster);
        require_length(size_bytes.size(), time_s.size(), "size_bytes");
        const auto fields = fields_of(T{}, ranges);
        const auto fitted = listening([&] { return kFit(cluster, calls, samples, fields); });
        return answer(fitted);
      },
      py::arg("cluster"), py::arg("op"), py::arg("size_bytes"), py::arg("ranks"), py::arg("time_s"),
      py::arg("weight"), py::arg("fold"), py::arg("ranges"), meaning);
}

void bind_collective_fits(py::module_& m) {
  def_collective_fit<CollectiveFit, fit_collective>(
      m, "fit_collective",
      "Constants of one collective inside a domain: record, fields, predicted_s, held_out_s.");
  def_collective_fit<Fabric, fit_fabric>(
      m, "fit_fabric",
      "Constants of the network between domains: record, fields, predicted_s, held_out_s.");
  m.def(
      "collective_bound_s",
      [](const Cluster& cluster, const std::vector<Collective>& op, const NumberColumn& size_bytes,
         const Counts& ranks) {
        const auto calls = calls_of(op, size_bytes, ranks, cluster);
        return bounds(calls.size(),
                      [&](std::size_t i) { return collective_bound(calls[i], cluster); });
      },
      py::arg("cluster"), py::arg("op"), py::arg("size_bytes"), py::arg("ranks"),
      "Seconds that no measurement of a collective can undercut.");
}

/// Columns of a call: tokens, hidden, topk, experts, ranks, nodes, communication blocks, blocks
/// that send at once, bytes of a value, line rate over that of the constants.
constexpr py::ssize_t kDispatchColumns = 10;

void bind_fit_dispatch(py::module_& m) {
  m.def(
      "fit_dispatch",
      [](const DispatchKernel& prior, const NumberColumn& calls, const NumberColumn& time_s,
         const NumberColumn& weight, const Counts& fold, const Ranges& ranges) {
        if (calls.ndim() != 2 || calls.shape(0) != time_s.size() ||
            calls.shape(1) != kDispatchColumns) {
          throw MalformedQuestion("calls: must have a row per time and ten columns");
        }
        std::vector<DispatchCall> made;
        for (py::ssize_t i = 0; i < calls.shape(0); ++i) {
          const double* c = calls.data() + i * kDispatchColumns;
          made.push_back({{c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]}, c[8], c[9]});
        }
        return answer(
            fit_dispatch(prior, made, samples_of(time_s, weight, fold), fields_of(prior, ranges)));
      },
      py::arg("prior"), py::arg("calls"), py::arg("time_s"), py::arg("weight"), py::arg("fold"),
      py::arg("ranges"),
      "Constants of a direction of token dispatch: record, fields, predicted_s, held_out_s.");
}

void bind_conformal(py::module_& m) {
  m.def(
      "conformal_bound",
      [](const NumberColumn& values, const NumberColumn& weights, double coverage,
         double next_weight) {
        require_length(weights.size(), values.size(), "weights");
        if (!(coverage > 0) || !(coverage < 1)) {
          throw MalformedQuestion("coverage: must lie between 0 and 1");
        }
        if (!(next_weight >= 0) || !std::isfinite(next_weight)) {
          throw MalformedQuestion("next_weight: must be at least 0 and finite");
        }
        for (py::ssize_t i = 0; i < values.size(); ++i) {
          if (!std::isfinite(values.at(i)) || !(weights.at(i) > 0)) {
            throw MalformedQuestion("values, weights: must be finite, weights positive");
          }
        }
        const auto length = static_cast<std::size_t>(values.size());
        return conformal_bound({values.data(), length}, {weights.data(), length}, coverage,
                               next_weight);
      },
      py::arg("values"), py::arg("weights"), py::arg("coverage"), py::arg("next_weight") = 0.0,
      "What the next value does not exceed with that probability; infinite for too few values. It "
      "weighs the mean of their weights, unless next_weight is given.");
}

}  // namespace

void bind_calibration(py::module_& m) {
  py::class_<FittedField>(m, "FittedField", "What a calibration made of one constant.")
      .def_readonly("name", &FittedField::name, "field of the record")
      .def_readonly("value", &FittedField::value, "fitted, in base units")
      .def_readonly("prior", &FittedField::prior, "before the fit")
      .def_readonly("relative_error", &FittedField::relative_error, "standard error of the log")
      .def_readonly("frozen", &FittedField::frozen, "the samples cannot see it: kept")
      .def_readonly("at_bound", &FittedField::at_bound, "ends at an end of its range");
  bind_gemm_fits(m);
  bind_gemm_work(m);
  bind_elementwise_fits(m);
  bind_attention_fits(m);
  bind_flash_fit(m);
  bind_collective_fits(m);
  bind_fit_dispatch(m);
  bind_conformal(m);
}

}  // namespace scalemodel::bindings
