// What runs a pipeline's passes at any times: sums and maxima, listed once. Private to the
// schedules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/schedule/pass_sequence.hpp"
#include "scalemodel/schedule/sampled_times.hpp"

namespace scalemodel::detail {

/// When the passes of a sequence end, as a list of steps in an order in which each comes after
/// those it waits for. The list does not depend on how long anything takes: it is made once, and
/// run at every sample.
class PassProgram {
 public:
  PassProgram(const PassSequence& sequence, StepTrafficKind traffic);

  /// The end of the last pass and of the traffic, at each sample of a batch.
  Lanes end(const SampledTimes& times);
  /// The longest paths at two samples, found side by side.
  std::array<PipelinePath, 2> paths(const PipelineTimes& a, const PipelineTimes& b);

 private:
  friend class PassRecorder;

  /// How often a chunk has a time of a part.
  struct Share {
    std::size_t part = 0, time = 0;
    double count = 0;
  };
  /// What lasts: a hop, what a pair hands on early, or a time of a class of chunks.
  struct Lasting {
    static constexpr std::int32_t kHop = 0, kEarly = 1, kOthers = 2;

    std::vector<Share> shares;  ///< of a class of chunks
  };
  /// A thing that lasts, and how often.
  struct Term {
    std::int32_t what = Lasting::kHop;
    double times = 0;

    bool operator==(const Term&) const = default;
  };
  /// Ends at the later of two others' ends and two terms.
  struct Step {
    std::int32_t a = 0, b = 0;
    std::int32_t first = kNothing, second = kNothing;
  };
  /// The same with places in which ends are kept as long as they are wanted.
  struct PlacedStep : Step {
    std::int32_t to = 0;
  };
  static constexpr std::int32_t kStart = 0;    ///< step at time zero
  static constexpr std::int32_t kNothing = 0;  ///< term

  /// Times at two samples. In a vector the later of two is one instruction, where it is a branch
  /// for most compilers, which nothing can foresee.
  using Pair = double __attribute__((vector_size(2 * sizeof(double))));

  void name_what_lasts(const PassSequence& sequence);
  void place();
  PipelinePath path_back(std::size_t sample);

  std::vector<Lasting> lasting_;
  std::vector<Term> terms_;
  std::vector<Step> steps_;
  std::int32_t last_ = kStart;
  std::vector<PlacedStep> placed_;
  std::int32_t last_place_ = 0;
  // Room for a run.
  std::vector<Lanes> places_, lane_lasts_, lane_terms_;
  std::vector<Pair> ends_, lasts_, term_lasts_;
  std::vector<double> taken_;
};

}  // namespace scalemodel::detail
