#include <array>
#include <string>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/ops/attention_kernels.hpp"

namespace scalemodel::bindings {
namespace {

void require_counts(const char* name, const NumberColumn& column, py::ssize_t rows, double least) {
  const auto fail = [&](const std::string& what) {
    std::string message(name);
    throw MalformedQuestion(message.append(": ").append(what));
  };
  if (column.ndim() != 1 || column.size() != rows) {
    fail("must be one number per call, as `batch` is");
  }
  for (py::ssize_t i = 0; i < rows; ++i) {
    const double value = column.data()[i];
    if (!std::isfinite(value) || value < least) {
      fail("must be finite numbers of at least " + text_of(least));
    }
  }
}

/// Seconds of every row of eight equally long columns.
template <class Kernel, class Time>
NumberColumn times(const Kernel& kernel, const Accelerator& accelerator,
                   const AttentionCall& common, const std::array<const NumberColumn*, 8>& columns,
                   Time time) {
  constexpr std::array<const char*, 8> names{"batch",    "queries",  "keys",       "heads",
                                             "kv_heads", "head_dim", "v_head_dim", "window"};
  const py::ssize_t rows = columns[0]->size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    require_counts(names[i], *columns[i], rows, i + 1 < names.size() ? 1 : 0);
  }
  NumberColumn result(rows);
  double* out = result.mutable_data();
  std::array<const double*, 8> in{};
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = columns[i]->data();
  {
    const py::gil_scoped_release release;
    AttentionCall call = common;
    for (py::ssize_t i = 0; i < rows; ++i) {
      AttentionWork& w = call.work;
      w.batch = in[0][i], w.queries = in[1][i], w.keys = in[2][i], w.heads = in[3][i];
      w.kv_heads = in[4][i], w.head_dim = in[5][i], w.v_head_dim = in[6][i], w.window = in[7][i];
      out[i] = time(call, kernel, accelerator).base();
    }
  }
  return result;
}

template <class Kernel, class Time>
void define_times(py::module_& m, const char* name, Time time, const char* meaning) {
  m.def(
      name,
      [time](const Kernel& kernel, const Accelerator& accelerator, const NumberColumn& batch,
             const NumberColumn& queries, const NumberColumn& keys, const NumberColumn& heads,
             const NumberColumn& kv_heads, const NumberColumn& head_dim,
             const NumberColumn& v_head_dim, const NumberColumn& window, bool causal,
             Precision math, Precision cache, double latent, double rotary, bool resident) {
        AttentionCall common;
        common.work.causal = causal;
        common.math = math;
        common.cache = cache;
        common.latent = latent;
        common.rotary = rotary;
        common.resident = resident;
        return times(kernel, accelerator, common,
                     {&batch, &queries, &keys, &heads, &kv_heads, &head_dim, &v_head_dim, &window},
                     time);
      },
      py::arg("kernel"), py::arg("accelerator"), py::kw_only(), py::arg("batch"),
      py::arg("queries"), py::arg("keys"), py::arg("heads"), py::arg("kv_heads"),
      py::arg("head_dim"), py::arg("v_head_dim"), py::arg("window"), py::arg("causal") = true,
      py::arg("math") = "bf16", py::arg("cache") = "bf16", py::arg("latent") = 0.0,
      py::arg("rotary") = 0.0, py::arg("resident") = false, meaning);
}

}  // namespace

void bind_attention(py::module_& m) {
  bind_record<PrefillKernel>(m, "Constants of an attention kernel that works through prompts.");
  bind_record<DecodeKernel>(m, "Constants of an attention kernel with one query per sequence.");
  define_times<PrefillKernel>(m, "prefill_time_s", &prefill_time,
                              "Seconds of each whole-prompt call; one number per call and column.");
  define_times<DecodeKernel>(m, "decode_time_s", &decode_time,
                             "Seconds of each call with one query per sequence.");
}

}  // namespace scalemodel::bindings
