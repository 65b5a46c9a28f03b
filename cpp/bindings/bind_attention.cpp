#include <vector>

#include "bindings/attention_calls.hpp"
#include "bindings/bind.hpp"

namespace scalemodel::bindings {
namespace {

template <class Kernel, class Time>
NumberColumn times(const Kernel& kernel, const Accelerator& accelerator,
                   const AttentionCall& common, const AttentionColumns& columns, Time time) {
  const std::vector<AttentionCall> calls = attention_calls(common, columns);
  NumberColumn result(static_cast<py::ssize_t>(calls.size()));
  double* out = result.mutable_data();
  {
    const py::gil_scoped_release release;
    for (const AttentionCall& call : calls) *out++ = time(call, kernel, accelerator).base();
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
