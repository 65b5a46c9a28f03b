// Data-parallel jobs whose copies of a model all-reduce gradients in rings, and their placement.
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
/// accelerator. Ring i connects the i-th NIC of every copy.
struct RingJob {
  double parameters = 0;    ///< parameters of the model, >= 1
  double tokens = 0;        ///< tokens that scale the computation between two all-reduces
  std::int32_t copy = 8;    ///< NICs of a copy, >= 1
  std::int32_t copies = 2;  ///< members of a ring, >= 1

  bool operator==(const RingJob&) const = default;
};

template <>
struct RecordOf<RingJob> {
  static constexpr std::string_view name = "RingJob";
  using T = RingJob;
  static constexpr FieldTable fields{
      field("parameters", &T::parameters, 1, 1e18, "of the model"),
      field("tokens", &T::tokens, 0, 1e18, "that scale the computation between all-reduces"),
      field("copy", &T::copy, 1, 1e6, "NICs of a copy of the model"),
      field("copies", &T::copies, 1, 1e6, "copies, the size of a ring")};
};

/// Bytes that a NIC sends in one step of its ring: gradients of four bytes per parameter, divided
/// by the NICs of a copy and by the members of a ring, each quotient rounded up.
Bytes ring_step_bytes(const RingJob& job);

/// Steps of a ring all-reduce, 2 (n - 1).
std::int32_t ring_steps(const RingJob& job);

/// Computation between two all-reduces of a job on accelerators of this peak: 6 parameters tokens /
/// 1e9 floating-point operations in units of 1e9, over the peak in units of 1e12 per second, as
/// whole nanoseconds times 1e6. This scaled time depends neither on the batch nor on the number of
/// accelerators; it is that of the public simulation code of arXiv 2503.05324, whose experiments it
/// reproduces.
Seconds scaled_compute_time(const RingJob& job, FlopPerSecond peak);

/// Placement of jobs on NICs.
enum class JobPlacement : std::uint8_t {
  random_leaves,   // copy by copy, on random leaves with free NICs
  packed,          // the first free NICs
  random_servers,  // copy by copy, on random free servers; keeps the rail of every NIC
};

template <>
struct EnumNames<JobPlacement> {
  static constexpr std::string_view what = "placement";
  static constexpr std::array<std::string_view, 3> names{"random_leaves", "packed",
                                                         "random_servers"};
};

/// NICs of every job, copy by copy. `server` consecutive NICs are a server. `random_leaves` is the
/// placement of the paper: it draws a leaf uniformly among those with free NICs; a copy that still
/// needs at least a full leaf takes all of its free NICs, otherwise the first ones that it needs.
/// Throws MalformedQuestion where the jobs need more NICs than the fabric has.
std::vector<std::vector<std::int32_t>> place_jobs(const LinkGraph& graph,
                                                  std::span<const RingJob> jobs,
                                                  JobPlacement placement, std::int32_t server,
                                                  std::uint64_t seed);

/// Flows of one step of the rings of every job; jobs keep their numbers. With `drop_local` a job
/// within one leaf has no flows.
Flows ring_flows(const LinkGraph& graph, std::span<const RingJob> jobs,
                 std::span<const std::vector<std::int32_t>> nics, bool drop_local);

}  // namespace scalemodel
