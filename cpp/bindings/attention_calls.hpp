// Calls of an attention kernel from equally long columns of numbers.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/record.hpp"
#include "scalemodel/ops/attention_kernels.hpp"

namespace scalemodel::bindings {

/// batch, queries, keys, heads, kv_heads, head_dim, v_head_dim, window
using AttentionColumns = std::array<const NumberColumn*, 8>;

inline void require_counts(const char* name, const NumberColumn& column, py::ssize_t rows,
                           double least) {
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

/// One call per row; what the columns do not say is as in `common`.
inline std::vector<AttentionCall> attention_calls(const AttentionCall& common,
                                                  const AttentionColumns& columns) {
  constexpr std::array<const char*, 8> names{"batch",    "queries",  "keys",       "heads",
                                             "kv_heads", "head_dim", "v_head_dim", "window"};
  const py::ssize_t rows = columns[0]->size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    require_counts(names[i], *columns[i], rows, i + 1 < names.size() ? 1 : 0);
  }
  std::vector<AttentionCall> calls(static_cast<std::size_t>(rows), common);
  for (py::ssize_t i = 0; i < rows; ++i) {
    AttentionWork& w = calls[static_cast<std::size_t>(i)].work;
    const std::array<double*, 8> fields{&w.batch,    &w.queries,  &w.keys,       &w.heads,
                                        &w.kv_heads, &w.head_dim, &w.v_head_dim, &w.window};
    for (std::size_t k = 0; k < fields.size(); ++k) *fields[k] = columns[k]->data()[i];
  }
  return calls;
}

}  // namespace scalemodel::bindings
