#include "scalemodel/schedule/typical_times.hpp"

#include <array>
#include <cmath>

namespace scalemodel::detail {
namespace {

/// Orders of magnitude between two numbers.
struct Magnitudes {
  double low, doublings;

  Magnitudes(double least, double most) : low(least), doublings(std::log2(most / least)) {}
  double at(double fraction) const { return low * std::exp2(doublings * fraction); }
};

// Of kernels that run alone in units of those in pairs, of the parameters of all layers, and of
// gradients of weights in units of a backward pass.
const Magnitudes kAlone(1, 2.5), kTraffic(0.01, 60), kWeights(0.03, 0.8);
// In units of a layer: an embedding, which hardly takes two, or dozens with a vision tower or an
// encoder; a head; their parameters; the way back in units of the way ahead; a hop.
const Magnitudes kEmbedding(0.01, 2), kTower(0.01, 40), kHead(0.02, 20), kEndParameters(0.1, 20),
    kEmbeddingBack(0.05, 3), kHeadBack(0.05, 2), kHop(0.001, 3);
// Layers of another kind that is nearly alike, or not at all.
const Magnitudes kAlike(0.8, 1.25), kOtherSize(0.2, 30), kOtherParameters(0.03, 120);

}  // namespace

PipelineTimes TypicalTimes::next() {
  const auto any = [this](const Magnitudes& of) { return of.at(fraction()); };
  // Rather near the upper end: a path that is missed costs as much as what it counts.
  const auto mostly_large = [this](const Magnitudes& of) { return of.at(std::sqrt(fraction())); };
  // Nothing otherwise.
  const auto sometimes = [this](double share, const Magnitudes& of) {
    const double at = fraction();
    return at < share ? of.at(std::sqrt(at / share)) : 0;
  };
  ++index_;
  dimension_ = 0;
  const double forward = between(0.15, 0.5);
  const double alone = any(kAlone), overlap_efficiency = between(0.05, 0.95);
  const bool sends = traffic_ != StepTrafficKind::none;
  const double gather = sends ? sometimes(0.7, kTraffic) : 0;
  const double reduce = sends ? sometimes(0.9, kTraffic) : 0;
  // Either of them may hide, or neither.
  const double which = traffic_ == StepTrafficKind::blocking ? 3 * fraction() : 3;
  const PassTime gathering = which > 1 && which < 3 ? kGatheringBefore : kGathering;
  const PassTime reduction = which < 2 ? kReductionAfter : kReduction;
  const auto weights = [&] { return any(kWeights) * (1 - forward); };
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
  // One after the other: compilers may work out arguments of a call in any order.
  const double embedding = any(tower_ ? kTower : kEmbedding), head = any(kHead);
  const double embedding_parameters = any(kEndParameters);
  const double embedding_back = embedding * any(kEmbeddingBack);
  const double head_parameters = any(kEndParameters), head_back = head * any(kHeadBack);
  times.parts[kEmbeddingPart] = part(embedding, embedding_back, embedding_parameters, weight);
  times.parts[kHeadPart] = part(head, head_back, head_parameters, weight);
  times.hop = Seconds{mostly_large(kHop)};
  times.parts[0] = part(1, 1, 1, weight);
  // Layers that differ in a window or a mixer alone are nearly alike, others are not at all: a few
  // tokens of many experts take as long for the gradients of weights as for all else.
  const bool alike = kinds_ > 1 && fraction() < 0.5;
  for (std::size_t k = 1; k < kinds_; ++k) {
    const double size = any(alike ? kAlike : kOtherSize);
    const double parameters = any(alike ? kAlike : kOtherParameters);
    times.parts[k] = part(size, size, parameters, alike ? weight : weights());
  }
  times.early = times.parts[0][kPairedBackward];
  return times;
}

/// In [0, 1), another dimension with every call.
double TypicalTimes::fraction() {
  static const auto roots = [] {
    std::array<double, 30> of{2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31,  37,  41,  43,  47,
                              53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113};
    for (double& each : of) each = std::sqrt(each);
    return of;
  }();
  const double multiple = index_ * roots[dimension_++];
  return multiple - std::floor(multiple);
}

double TypicalTimes::between(double low, double high) { return low + (high - low) * fraction(); }

}  // namespace scalemodel::detail
