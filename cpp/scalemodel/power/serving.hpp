// Watts of an accelerator that generates tokens, by how busy and how dense its steps are.
#pragma once

#include <algorithm>
#include <cmath>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Power of decoding, as fractions of the power limit, and what paces a step beside the kernels.
struct ServingPower {
  double floor_fraction = 0;     ///< context open, clocks up, nothing to do
  double busy_fraction = 0;      ///< added while kernels run, however thin
  double activity_fraction = 0;  ///< added by dense arithmetic, see `serving_power`
  Seconds host_step;             ///< CPU overhead between two steps
  Seconds host_sequence;         ///< and for each running sequence of a replica
  Seconds rank_step;             ///< per doubling of the ranks that have to meet

  bool operator==(const ServingPower&) const = default;
};

/// One decoding step of a model on some accelerators, at data-sheet rates.
struct DecodeLoad {
  double parameters = 0, active_parameters = 0;
  double weight_bytes = 2;  ///< per parameter
  Bytes cache;              ///< keys and values of one running sequence
  double sequences = 1;     ///< running at once, in all replicas
  double accelerators = 1, replicas = 1;
  FlopPerSecond peak;
  BytesPerSecond bandwidth;

  bool operator==(const DecodeLoad&) const = default;
};

/// What a decoding step keeps busy.
struct DecodeActivity {
  double busy_fraction = 0;     ///< of the step, kernels run
  double density_fraction = 0;  ///< arithmetic over memory time of the weights, at most 1
};

// Fractions of the data sheet that decoding kernels reach: large GEMMs, weights streamed
// by thin GEMMs, scattered pages of the cache.
inline constexpr double kDenseFraction = 0.7, kStreamFraction = 0.8, kCacheFraction = 0.6;

/// Usual keys and values of one token in 16 bit, for models of which only the size is known:
///
///     128 KiB (active / 8e9)^0.4
///
/// within 25 % of grouped-query models from 3e9 to 4e11 active parameters (Llama 3, Qwen 3).
inline Bytes cache_per_token(double active_parameters) {
  return std::pow(active_parameters / 8e9, 0.4) * (128 * unit::KiB);
}

/// Share of the weights that a step reads, by its number of sequences: experts that no token chose
/// stay unread; a token misses one with probability 1 - active/parameters.
inline double weights_read(double parameters, double active_parameters, double sequences) {
  const double chosen = active_parameters / parameters;
  return std::max(chosen, 1 - std::pow(1 - chosen, sequences));
}

/// Roofline of one decoding step: weights, cache and GEMMs one after the other, on all
/// accelerators alike, while the CPU prepares the next step:
///
///     kernels = weights / B + cache / B + flop / F,  step = max(kernels, CPU overhead)
///
/// Preconditions: positive parameters, sequences, accelerators, replicas and rates;
/// active_parameters <= parameters.
inline DecodeActivity decode_activity(const DecodeLoad& load, const ServingPower& serving) {
  const double read =
      load.parameters * weights_read(load.parameters, load.active_parameters, load.sequences);
  const Seconds weights =
      Bytes{read * load.weight_bytes} / (kStreamFraction * load.accelerators * load.bandwidth);
  const Seconds cache =
      load.sequences * load.cache / (kCacheFraction * load.accelerators * load.bandwidth);
  const Flop work{2 * load.active_parameters * load.sequences};
  const Seconds gemms = work / (kDenseFraction * load.accelerators * load.peak);
  const Seconds kernels = weights + cache + gemms;
  const Seconds host = serving.host_step + load.sequences / load.replicas * serving.host_sequence +
                       std::log2(load.accelerators) * serving.rank_step;
  const double density = (work / load.peak) / (Bytes{read * load.weight_bytes} / load.bandwidth);
  return {kernels / max(kernels, host), std::min(1.0, density)};
}

/// Mean power of one accelerator that decodes:
///
///     P = limit min(1, floor + busy_share (busy + activity sqrt(density)))
///
/// A step that waits for the CPU draws the floor; thin steps stream weights; dense ones, whose
/// arithmetic takes as long as reading the weights, come near the limit. The root is what 135
/// published runs on H100 show: a cube root fits alike, the first power and the logarithm of the
/// batch worse. Never above the limit.
inline Watts serving_power(const ServingPower& serving, Watts limit,
                           const DecodeActivity& activity) {
  const double running =
      serving.busy_fraction + serving.activity_fraction * std::sqrt(activity.density_fraction);
  return std::min(1.0, serving.floor_fraction + activity.busy_fraction * running) * limit;
}

/// The same of one that computes such steps for `busy` of the time at most.
inline Watts serving_power(const ServingPower& serving, Watts limit, const DecodeLoad& load,
                           double busy) {
  DecodeActivity activity = decode_activity(load, serving);
  activity.busy_fraction = std::min(activity.busy_fraction, busy);
  return serving_power(serving, limit, activity);
}

template <>
struct RecordOf<ServingPower> {
  static constexpr std::string_view name = "ServingPower";
  using T = ServingPower;
  static constexpr FieldTable fields{
      field("floor_fraction", &T::floor_fraction, 0, 1,
            "share of the power limit, waiting for the CPU"),
      field("busy_fraction", &T::busy_fraction, 0, 2, "added while kernels run"),
      field("activity_fraction", &T::activity_fraction, 0, 2, "added by dense arithmetic"),
      field("host_step_s", &T::host_step, 0, 1, "CPU overhead between two steps"),
      field("host_sequence_s", &T::host_sequence, 0, 1, "CPU overhead per running sequence"),
      field("rank_step_s", &T::rank_step, 0, 1, "per doubling of the ranks")};
};

template <>
struct RecordOf<DecodeLoad> {
  static constexpr std::string_view name = "DecodeLoad";
  using T = DecodeLoad;
  static constexpr FieldTable fields{
      field("parameters", &T::parameters, 1, 1e16, "of the model"),
      field("active_parameters", &T::active_parameters, 1, 1e16, "read for one token"),
      field("weight_bytes", &T::weight_bytes, 0.1, 8, "per parameter"),
      field("cache_bytes", &T::cache, 0, 1e15, "keys and values of one sequence"),
      field("sequences", &T::sequences, 1e-3, 1e9, "running at once, in all replicas"),
      field("accelerators", &T::accelerators, 1, 1e6, "of all replicas"),
      field("replicas", &T::replicas, 1, 1e6, "copies of the model"),
      field("peak_flop_per_s", &T::peak, 1, 1e20, "dense, of one accelerator"),
      field("bandwidth_bytes_per_s", &T::bandwidth, 1, 1e16, "memory of one accelerator")};
};

}  // namespace scalemodel
