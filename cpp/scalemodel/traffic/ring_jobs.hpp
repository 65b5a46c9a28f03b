// Data-parallel jobs whose copies of a model exchange gradients in rings, and where they run.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/fabric/graph.hpp"
#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

/// `copies` copies of a model, each on `copy` NICs (tensor times pipeline parallelism), one per
/// accelerator. Ring i joins the i-th NIC of every copy.
struct RingJob {
  double parameters = 0;  ///< of the model
  double tokens = 0;      ///< that scale the computation between two all-reduces
  std::int32_t copy = 8;
  std::int32_t copies = 2;

  bool operator==(const RingJob&) const = default;
};

template <>
struct RecordOf<RingJob> {
  static constexpr std::string_view name = "RingJob";
  using T = RingJob;
  static constexpr std::tuple fields{
      field("parameters", &T::parameters, 1, 1e18, "of the model"),
      field("tokens", &T::tokens, 0, 1e18, "that scale the computation between all-reduces"),
      field("copy", &T::copy, 1, 1e6, "NICs of a copy of the model"),
      field("copies", &T::copies, 1, 1e6, "copies, the size of a ring")};
};

/// Bytes that a NIC sends in one step of its ring: gradients of four bytes per parameter, spread
/// over the NICs of a copy and over the steps, each rounded up.
Bytes ring_step_bytes(const RingJob& job);

/// Steps of a ring all-reduce, 2 (n - 1).
std::int32_t ring_steps(const RingJob& job);

/// Silence between two all-reduces of a job on accelerators of this peak: 6 parameters tokens / 1e9
/// floating-point operations in units of 1e9, over the peak in units of 1e12 per second, as whole
/// nanoseconds times 1e6. A scaled stand-in that knows neither batch nor accelerators; it comes
/// from the public simulation code of arXiv 2503.05324, whose experiments it reproduces.
Seconds scaled_compute_time(const RingJob& job, FlopPerSecond peak);

/// How jobs are spread over NICs.
enum class JobPlacement : std::uint8_t {
  random_leaves,   // copy by copy, a random leaf with free NICs at a time
  packed,          // the first free NICs
  random_servers,  // copy by copy, random free servers; keeps the place within a server (rail)
};

template <>
struct EnumNames<JobPlacement> {
  static constexpr std::string_view what = "placement";
  static constexpr std::array<std::string_view, 3> names{"random_leaves", "packed",
                                                         "random_servers"};
};

/// NICs of every job, copy by copy. `server` consecutive NICs are a server. With `random_leaves`
/// (the paper's): a leaf is drawn uniformly among those with free NICs; a copy that still needs a
/// full leaf takes all of them, otherwise the first it needs. Throws MalformedQuestion when the
/// jobs do not fit.
std::vector<std::vector<std::int32_t>> place_jobs(const LinkGraph& graph,
                                                  std::span<const RingJob> jobs,
                                                  JobPlacement placement, std::int32_t server,
                                                  std::uint64_t seed);

/// The rings of every job, one step; jobs keep their numbers. A job within one leaf has no flows
/// where `drop_local`.
Flows ring_flows(const LinkGraph& graph, std::span<const RingJob> jobs,
                 std::span<const std::vector<std::int32_t>> nics, bool drop_local);

}  // namespace scalemodel
