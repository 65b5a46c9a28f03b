// Failures, checkpoints and what they leave of a long run.
#pragma once

#include <cmath>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// A job that fails now and then and starts again from its last checkpoint.
struct FailingJob {
  double nodes = 1;
  Hertz node_rate;     ///< failures of one node
  Hertz other_rate;    ///< interruptions of the job that no node causes
  Seconds restart;     ///< from a failure to the first step again: detect, schedule, load
  Seconds write;       ///< the job stands still for a checkpoint
  Seconds background;  ///< writing goes on beside the job; until then the checkpoint is no use

  constexpr Hertz rate() const { return nodes * node_rate + other_rate; }
  bool operator==(const FailingJob&) const = default;
};

/// Mean time between interruptions: MTTF(n) = 1 / (N r_f + r_other). Infinite without failures.
constexpr Seconds mean_time_to_failure(const FailingJob& job) { return 1.0 / job.rate(); }

/// Young's interval between checkpoints: sqrt(2 w M). Source: Young, CACM 17 (1974) 530.
inline Seconds young_interval(Seconds write, Seconds mttf) {
  return Seconds{std::sqrt(2 * write.base() * mttf.base())};
}

/// Daly's, of lower order: sqrt(2 w M) - w, and M where writing takes longer than half of that.
/// Source: Daly, Future Generation Computer Systems 22 (2006) 303.
inline Seconds daly_interval(Seconds write, Seconds mttf) {
  if (write >= 0.5 * mttf) return mttf;
  return young_interval(write, mttf) - write;
}

/// The interval of greatest availability: w + sqrt(w^2 + 2 (M + R) w), R the restart.
/// Source: arXiv 2410.18124.
inline Seconds availability_interval(Seconds write, Seconds mttf, Seconds restart) {
  const double w = write.base();
  return Seconds{w + std::sqrt(w * w + 2 * (mttf + restart).base() * w)};
}

/// Work lost at a failure, in the mean: half an interval, and what a checkpoint that is still being
/// written in the background would have saved.
constexpr Seconds mean_repeated(const FailingJob& job, Seconds interval) {
  return 0.5 * interval + job.background;
}

/// Expected productive share of the time, to first order in the failure rate:
///
///     E[ETTR] = (1 - rate (restart + background + interval/2)) / (1 + write/interval)
///
/// Zero where the numerator is not positive. Source: Kokolis et al., arXiv 2410.21680, whose
/// writes are blocking (background = 0). Precondition: interval > 0.
constexpr double first_order_ettr(const FailingJob& job, Seconds interval) {
  const double lost = job.rate() * (job.restart + job.background + 0.5 * interval);
  return lost < 1 ? (1 - lost) / (1 + job.write / interval) : 0;
}

/// Expected productive share of the time, exact for failures that strike at any time, restarts and
/// checkpoints included:
///
///     ETTR = rate interval / (exp(rate (restart + background)) (exp(rate (interval + write)) - 1))
///
/// Source: the expected wall time of Daly 2006. A checkpoint still being written is taken to cost
/// its background time at each failure, exact to first order; without failures write/interval is
/// all that is lost. Precondition: interval > 0.
inline double exact_ettr(const FailingJob& job, Seconds interval) {
  const double span = job.rate() * (interval + job.write);
  const double share = span > 0 ? span / std::expm1(span) : 1;
  const double again = std::exp(-(job.rate() * (job.restart + job.background)));
  return share * again / (1 + job.write / interval);
}

template <>
struct RecordOf<FailingJob> {
  static constexpr std::string_view name = "FailingJob";
  using T = FailingJob;
  static constexpr FieldTable fields{
      field("nodes", &T::nodes, 1e-3, 1e9, "of the job"),
      field("node_rate_per_s", &T::node_rate, 0, 1, "failures of one node"),
      field("other_rate_per_s", &T::other_rate, 0, 1, "interruptions that no node causes"),
      field("restart_s", &T::restart, 0, 1e8, "from a failure to the first step again"),
      field("write_s", &T::write, 0, 1e8, "standing still for a checkpoint"),
      field("background_s", &T::background, 0, 1e8, "until a checkpoint is of use")};
};

}  // namespace scalemodel
