// Requests that one forward pass answers (encoders, ranking), gathered into batches as they come.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Time of a pass over some requests: `alone` up to `padded` of them, `more` for every further one,
/// never above `most`.
struct BatchPass {
  Seconds alone, more;
  double padded = 1, most = 1;

  Seconds of(double requests) const noexcept {
    return alone + (requests > padded ? requests - padded : 0.0) * more;
  }
  bool operator==(const BatchPass&) const = default;
};

template <>
struct RecordOf<BatchPass> {
  static constexpr std::string_view name = "BatchPass";
  using T = BatchPass;
  static constexpr FieldTable fields{
      field("alone_s", &T::alone, 1e-9, 1e6, "time of the smallest pass"),
      field("more_s", &T::more, 0, 1e6, "time that every further request adds"),
      field("padded", &T::padded, 1, 1e9, "requests of the smallest pass"),
      field("most", &T::most, 1, 1e9, "requests of the largest pass")};
};

/// A server of batches in its steady state.
struct BatchState {
  double batch = 0;        ///< requests of a pass, mean
  Seconds pass;            ///< time of a pass
  Seconds latency;         ///< latency of a request, waiting included; 0: it grows without bound
  double utilisation = 0;  ///< rate over that of full batches
  bool saturated = false;

  bool operator==(const BatchState&) const = default;
};

template <>
struct RecordOf<BatchState> {
  static constexpr std::string_view name = "BatchState";
  using T = BatchState;
  static constexpr FieldTable fields{
      field("batch", &T::batch, "requests of a pass, mean"),
      field("pass_s", &T::pass, "time of a pass"),
      field("latency_s", &T::latency,
            "latency of a request, waiting included; 0 = it grows without bound"),
      field("utilisation", &T::utilisation, "rate over that of full batches"),
      field("saturated", &T::saturated, "more arrive than full batches take")};
};

/// With requests arriving at random. Requests that arrive during a pass are in the next one, and an
/// idle server starts with the first to come, so that a pass of mean time X takes rate X +
/// exp(-rate X) requests; a request waits for half of the pass it meets, for full passes of those
/// ahead (prompt_steps.hpp), and takes its own.
BatchState batch_state_at(const BatchPass& pass, Hertz rate) noexcept;

}  // namespace scalemodel
