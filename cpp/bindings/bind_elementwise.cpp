#include <array>
#include <cmath>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/ops/elementwise.hpp"
#include "scalemodel/ops/embedding.hpp"
#include "scalemodel/ops/mixer_work.hpp"
#include "scalemodel/ops/scan.hpp"
#include "scalemodel/ops/work_kernel.hpp"

namespace scalemodel::bindings {
namespace {

void require_equal(const char* name, const NumberColumn& values, py::ssize_t rows) {
  if (values.ndim() == 1 && values.size() == rows) return;
  throw MalformedQuestion(std::string(name) + ": must have one dimension of " +
                          std::to_string(rows) + " values");
}

/// Sizes of one row, in the order of `WorkKind::sizes`.
using Sizes = const double*;

/// A kind of kernel: the sizes that one call of it has, and what it then works on.
struct WorkKind {
  std::string_view name, sizes;
  std::size_t count;
  KernelWork (*work)(Sizes);
};

constexpr double kElement = 2;  ///< bytes of a value in the tables of measurements

/// A size that the engine counts in whole numbers.
int whole(const char* name, double value) {
  constexpr double kMost = 1e9;
  if (value >= 1 && value <= kMost && value == std::floor(value)) return static_cast<int>(value);
  std::ostringstream text;
  text << name << "=" << value << ": must be a whole number from 1 to " << kMost;
  throw MalformedQuestion(text.str());
}

RecurrentShape recurrent_shape(Recurrence kind, Sizes s) {
  RecurrentShape shape;
  shape.kind = kind;
  shape.heads = whole("heads", s[2]);
  shape.groups = whole("groups", s[3]);
  shape.key_dim = whole("key_dim", s[4]);
  shape.value_dim = whole("value_dim", s[5]);
  shape.chunk = whole("chunk", s[6]);
  return shape;
}

template <Recurrence kind>
KernelWork scan_of(Sizes s) {
  return scan_kernel_work({recurrent_shape(kind, s), s[0], s[1]}, kElement);
}

template <Recurrence kind>
KernelWork update_of(Sizes s) {
  return update_work({recurrent_shape(kind, s), s[0], s[1]}, kElement, s[7] > 0);
}

SparseShape sparse_shape(Sizes s) {
  SparseShape shape;
  shape.hidden = s[3];
  shape.heads = s[4];
  shape.projected = s[5];
  shape.indexer = s[6];
  shape.index_width = s[7];
  shape.key_width = s[8];
  shape.cached_values = s[9];
  shape.selected = s[10];
  shape.window = s[11];
  shape.ratio = s[12];
  shape.weight_bytes = s[13];
  shape.cache_bytes = s[14];
  shape.head_tile = s[15];
  return shape;
}

template <KernelWork (*work)(const SparseShape&, const CallSizes&)>
KernelWork sparse_of(Sizes s) {
  return work(sparse_shape(s), {s[0], s[1], s[2]});
}

constexpr std::string_view kScanSizes = "batch, tokens, heads, groups, key_dim, value_dim, chunk";
constexpr std::string_view kSparseSizes =
    "batch, tokens, keys, hidden, heads, projected, indexer, index_width, key_width, "
    "cached_values, selected, window, ratio, weight_bytes, cache_bytes, head_tile";

constexpr std::array kWorkKinds{
    WorkKind{"gated_delta", kScanSizes, 7, &scan_of<Recurrence::gated_delta>},
    WorkKind{"kimi_delta", kScanSizes, 7, &scan_of<Recurrence::kimi_delta>},
    WorkKind{"mamba2", kScanSizes, 7, &scan_of<Recurrence::mamba2>},
    WorkKind{"gated_delta_update", "those of a scan, keeps", 8,
             &update_of<Recurrence::gated_delta>},
    WorkKind{"kimi_delta_update", "those of a scan, keeps", 8, &update_of<Recurrence::kimi_delta>},
    WorkKind{"mamba2_update", "those of a scan, keeps", 8, &update_of<Recurrence::mamba2>},
    WorkKind{"convolution", "batch, tokens, channels, width, updates", 5,
             [](Sizes s) { return convolution_work({s[0], s[1], s[1]}, s[2], s[3], s[4] > 0); }},
    WorkKind{"encoder", "batch, tokens, heads, head_dim", 4,
             [](Sizes s) { return encoder_work({s[0], s[1], s[1]}, s[2], s[3]); }},
    WorkKind{"stream_mixing", "tokens, hidden, streams", 3,
             [](Sizes s) { return stream_mixing_work(s[0], s[1], s[2]); }},
    WorkKind{"fused_experts",
             "tokens_of_rank, hidden, width, experts_per_token, experts, ranks, imbalance", 7,
             [](Sizes s) { return fused_experts_work(s[0], s[1], s[2], s[3], s[4], s[5], s[6]); }},
    WorkKind{"sparse_module", kSparseSizes, 16, &sparse_of<sparse_module_work>},
    WorkKind{"chained_module", kSparseSizes, 16, &sparse_of<chained_module_work>},
    WorkKind{"blocked_module", kSparseSizes, 16, &sparse_of<blocked_module_work>},
    WorkKind{"eager_module", kSparseSizes, 16, &sparse_of<eager_module_work>},
    WorkKind{"sparse_core", kSparseSizes, 16, &sparse_of<sparse_core_work>},
    WorkKind{"index_scores", kSparseSizes, 16, &sparse_of<index_scores_work>},
    WorkKind{"choice", kSparseSizes, 16, &sparse_of<choice_work>},
};

const WorkKind& work_kind(const std::string& name) {
  std::string known;
  for (const WorkKind& kind : kWorkKinds) {
    if (kind.name == name) return kind;
    known.append(known.empty() ? "" : ", ").append(kind.name);
  }
  throw MalformedQuestion("kind='" + name + "': must be one of " + known);
}

/// Flop, bytes, steps and pieces, a row per call.
py::array_t<double> kernel_work(const std::string& name, const std::vector<NumberColumn>& sizes) {
  const WorkKind& kind = work_kind(name);
  if (sizes.size() != kind.count) {
    throw MalformedQuestion("sizes: must be " + std::to_string(kind.count) +
                            " columns: " + std::string(kind.sizes));
  }
  const py::ssize_t rows = sizes.front().size();
  for (const NumberColumn& column : sizes) require_equal("sizes", column, rows);
  constexpr py::ssize_t kParts = 5;
  py::array_t<double> out({rows, kParts});
  auto at = out.mutable_unchecked<2>();
  std::vector<double> row(sizes.size());
  for (py::ssize_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < sizes.size(); ++k) row[k] = sizes[k].data()[i];
    const KernelWork work = kind.work(row.data());
    at(i, 0) = work.flop;
    at(i, 1) = work.bytes;
    at(i, 2) = work.steps;
    at(i, 3) = work.pieces;
    at(i, 4) = work.core;
  }
  return out;
}

void bind_work_kernels(py::module_& m) {
  bind_record<WorkKernel>(m, "Constants of a kernel by what it works on.");
  m.def(
      "kernel_work", &kernel_work, py::arg("kind"), py::arg("sizes"),
      "Flop, bytes, steps, pieces and flop of the core of calls of a kind of kernel, a row each.");
  m.def(
      "work_kernel_time_s",
      [](const WorkKernel& kernel, double l2_bytes, const py::array_t<double>& work) {
        if (work.ndim() != 2 || work.shape(1) != 5) {
          throw MalformedQuestion("work: must be rows of flop, bytes, steps, pieces and core");
        }
        const auto at = work.unchecked<2>();
        py::array_t<double> out(work.shape(0));
        double* const values = out.mutable_data();
        for (py::ssize_t i = 0; i < work.shape(0); ++i) {
          const KernelWork one{at(i, 0), at(i, 1), at(i, 2), at(i, 3), at(i, 4)};
          values[i] = work_kernel_time(one, kernel, Bytes{l2_bytes}).base();
        }
        return out;
      },
      py::arg("kernel"), py::arg("l2_bytes"), py::arg("work"),
      "Seconds of calls of a kernel, one per row of `kernel_work`.");
}

}  // namespace

void bind_elementwise(py::module_& m) {
  bind_record<StreamingKernel>(m, "Constants of an elementwise or row-wise operation.");
  bind_record<LookupKernel>(m, "Constants of an embedding lookup kernel.");
  bind_work_kernels(m);
  m.def(
      "streaming_time_s",
      [](const Accelerator& accelerator, const StreamingKernel& kernel, const NumberColumn& rows,
         const NumberColumn& columns, const NumberColumn& value_bytes) {
        const py::ssize_t count = rows.size();
        require_equal("rows", rows, count);
        require_equal("columns", columns, count);
        require_equal("value_bytes", value_bytes, count);
        const double *r = rows.data(), *c = columns.data(), *b = value_bytes.data();
        py::array_t<double> out(count);
        double* const values = out.mutable_data();
        {
          const py::gil_scoped_release released;
          for (py::ssize_t i = 0; i < count; ++i) {
            values[i] = streaming_time(r[i], c[i], b[i], kernel, accelerator).base();
          }
        }
        return out;
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("rows"), py::arg("columns"),
      py::arg("value_bytes"), "Seconds of one operation over matrices, one per row.");
  m.def(
      "lookup_time_s",
      [](const Accelerator& accelerator, const LookupKernel& kernel, const NumberColumn& tables,
         const NumberColumn& batch, const NumberColumn& pooling, const NumberColumn& dim,
         const NumberColumn& value_bytes) {
        const py::ssize_t count = tables.size();
        require_equal("tables", tables, count);
        require_equal("batch", batch, count);
        require_equal("pooling", pooling, count);
        require_equal("dim", dim, count);
        require_equal("value_bytes", value_bytes, count);
        const double *t = tables.data(), *n = batch.data(), *p = pooling.data(), *d = dim.data(),
                     *b = value_bytes.data();
        py::array_t<double> out(count);
        double* const values = out.mutable_data();
        {
          const py::gil_scoped_release released;
          for (py::ssize_t i = 0; i < count; ++i) {
            values[i] = lookup_time({t[i], n[i], p[i], d[i], b[i]}, kernel, accelerator).base();
          }
        }
        return out;
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("tables"), py::arg("batch"),
      py::arg("pooling"), py::arg("dim"), py::arg("value_bytes"),
      "Seconds of one embedding lookup, one per row.");
}

}  // namespace scalemodel::bindings
