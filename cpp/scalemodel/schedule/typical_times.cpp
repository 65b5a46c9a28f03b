#include "scalemodel/schedule/typical_times.hpp"

#include <array>
#include <cmath>

namespace scalemodel::detail {

PipelineTimes TypicalTimes::next() {
  ++index_;
  dimension_ = 0;
  const double forward = between(0.15, 0.5);
  const double alone = any(1, 2.5), overlap_efficiency = between(0.05, 0.95);
  const bool sends = traffic_ != StepTrafficKind::none;
  const double gather = sends ? sometimes(0.7, 0.01, 60) : 0;
  const double reduce = sends ? sometimes(0.9, 0.01, 60) : 0;
  // Either of them may hide, or neither.
  const double which = traffic_ == StepTrafficKind::blocking ? 3 * fraction() : 3;
  const PassTime gathering = which > 1 && which < 3 ? kGatheringBefore : kGathering;
  const PassTime reduction = which < 2 ? kReductionAfter : kReduction;
  const auto weights = [&] { return any(0.03, 0.8) * (1 - forward); };
  const double weight = weights();
  const auto part = [&](double ahead, double back, double parameters, double weight_gradient) {
    PartTimes t;
    t[kPairedForward] = Seconds{ahead * forward};
    t[kPairedBackward] = Seconds{back * (1 - forward)};
    t[kForward] = alone * t[kPairedForward];
    t[kWeightGradient] = Seconds{back * weight_gradient};
    t[kInputGradient] = alone * (t[kPairedBackward] - t[kWeightGradient]);
    t[kForwardOverlappable] = overlap_efficiency * t[kForward];
    t[kInputGradientOverlappable] = overlap_efficiency * t[kInputGradient];
    t[kWeightGradientOverlappable] = overlap_efficiency * t[kWeightGradient];
    t[kPairedForwardOverlappable] = overlap_efficiency * t[kPairedForward];
    t[kPairedBackwardOverlappable] = overlap_efficiency * t[kPairedBackward];
    t[gathering] = Seconds{parameters * gather};
    t[reduction] = Seconds{parameters * reduce};
    return t;
  };
  PipelineTimes times;
  const double embedding = any(0.01, 2), head = any(0.02, 20);
  times.parts[kEmbeddingPart] = part(embedding, embedding * any(0.05, 3), any(0.1, 20), weight);
  times.parts[kHeadPart] = part(head, head * any(0.05, 2), any(0.1, 20), weight);
  times.hop = Seconds{mostly_large(0.001, 3)};
  times.parts[0] = part(1, 1, 1, weight);
  // Layers that differ in a window or a mixer alone are nearly alike, others are not at all: a few
  // tokens of many experts take as long for the gradients of weights as for all else.
  const bool alike = kinds_ > 1 && fraction() < 0.5;
  for (std::size_t k = 1; k < kinds_; ++k) {
    const double size = alike ? any(0.8, 1.25) : any(0.2, 30);
    const double parameters = alike ? any(0.8, 1.25) : any(0.03, 120);
    times.parts[k] = part(size, size, parameters, alike ? weight : weights());
  }
  times.early = times.parts[0][kPairedBackward];
  return times;
}

/// In [0, 1), another dimension with every call.
double TypicalTimes::fraction() {
  static constexpr std::array<double, 30> primes{2,  3,  5,  7,  11, 13,  17,  19,  23,  29,
                                                 31, 37, 41, 43, 47, 53,  59,  61,  67,  71,
                                                 73, 79, 83, 89, 97, 101, 103, 107, 109, 113};
  const double multiple = index_ * std::sqrt(primes[dimension_++]);
  return multiple - std::floor(multiple);
}

double TypicalTimes::between(double low, double high) { return low + (high - low) * fraction(); }

/// Of any order of magnitude between two.
double TypicalTimes::any(double low, double high) { return low * std::pow(high / low, fraction()); }

/// The same, but rather near the upper end: a path that is missed costs as much as what it counts.
double TypicalTimes::mostly_large(double low, double high) {
  return low * std::pow(high / low, std::sqrt(fraction()));
}

/// Nothing otherwise.
double TypicalTimes::sometimes(double share, double low, double high) {
  const double at = fraction();
  return at < share ? low * std::pow(high / low, std::sqrt(at / share)) : 0;
}

}  // namespace scalemodel::detail
