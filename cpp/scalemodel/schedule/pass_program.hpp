// What runs a pipeline's passes at any times: sums and maxima, listed once. Private to the
// schedules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/pass_sequence.hpp"
#include "scalemodel/schedule/sampled_times.hpp"

namespace scalemodel::detail {

/// When the passes of some sequences end, as a list of steps in an order in which each comes after
/// those it waits for. The list does not depend on how long anything takes: it is made once, and
/// run at every sample. What sequences of one pipeline have in common, as a step and a longer one
/// have most of it, is listed once.
class PassProgram {
 public:
  /// All of them of one pipeline.
  PassProgram(std::span<const PassSequence* const> sequences, StepTrafficKind traffic);

  /// Runs the passes at each sample of a batch.
  void run(const SampledTimes& times);
  /// The end of the last pass of a sequence and of its traffic in that run.
  const Lanes& end(std::size_t sequence) const { return places_[at(last_places_[sequence])]; }

  /// Samples whose paths are looked for at once.
  static constexpr std::size_t kTraced = 4;
  using Traced = std::array<std::size_t, kTraced>;  ///< lanes, not all of which need differ
  /// Runs the passes at some samples of the last batch once more, keeping when each of them ends.
  void trace(const Traced& lanes);
  /// The longest path of a sequence at one of these.
  PipelinePath path(std::size_t sequence, std::size_t traced);

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
  /// Steps in a row of which none waits for another, those with one term first.
  struct Row {
    std::int32_t of_one_term = 0, of_two = 0;
  };
  static constexpr std::int32_t kStart = 0;    ///< step at time zero
  static constexpr std::int32_t kNothing = 0;  ///< term

  /// Times at the samples that are traced. In a vector the later of two is one instruction, where
  /// it is a branch for most compilers, which nothing can foresee. In single precision: of two ends
  /// that it cannot tell apart either may be the later.
  using Ends = float __attribute__((vector_size(kTraced * sizeof(float))));

  void name_what_lasts(const PassSequence& sequence);
  void sort();
  void place();

  std::vector<Lasting> lasting_;
  std::vector<Term> terms_;
  std::vector<Step> steps_;
  std::vector<std::int32_t> last_;  ///< by sequence, the step that ends it
  std::vector<Row> rows_;
  std::vector<PlacedStep> placed_;
  std::vector<std::int32_t> last_places_;
  // Room for a run.
  std::vector<Lanes> places_, lane_lasts_, lane_terms_;
  std::vector<Ends> ends_, term_lasts_;
  std::vector<std::int32_t> counts_;  ///< of terms
  std::vector<double> taken_;         ///< of what lasts
};

}  // namespace scalemodel::detail
