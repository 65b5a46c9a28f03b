#include "scalemodel/routing/exact/belief_propagation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"
#include "scalemodel/routing/exact/plane_repair.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr std::int32_t kSettled = 80;  ///< iterations after most flows are certain
constexpr double kCertain = 0.9;       ///< mean belief in the most likely plane of a flow
/// Mean belief from which on flows decide for planes, and steps of the strength before and after.
constexpr double kDeciding = 0.25, kFastStep = 2e-3, kSlowStep = 4e-4;
constexpr double kLastStrength = 0.9;  ///< exponent of reinforcement that ends a run
constexpr double kFirstSpread = 0.5;   ///< logarithm of the random fields of the start
constexpr double kMaxRatio = 1e9;      ///< ratio of a message, either way
constexpr double kLeastField = 1e-30;
constexpr std::size_t kNormalised = 4;  ///< flows between two normalisations
constexpr std::size_t kLanes = 4;       ///< a row is a multiple of it

/// Likelihoods of units updated in an effort of one, and those that take as long as one move of a
/// repair; iterations below which none starts, since flows do not decide so soon.
constexpr double kUpdatesPerEffort = 8e6, kUpdatesPerMove = 10, kLeastIterations = 100;
/// Moves of the repair after every run, and runs from repaired planes before all starts again.
constexpr std::int64_t kRepairMoves = 300'000;
constexpr std::int32_t kRestart = 25;
/// A run from repaired planes believes in them by a field of a random logarithm, and starts at a
/// random share of the strength at which the first run ended: both decide how much it changes.
constexpr double kMinTrust = 0.2, kMaxTrust = 1.2, kMinShare = 0.6, kMaxShare = 0.9;

/// Sizes as multiples of the largest number that divides them all, found as Euclid does.
struct Units {
  Numbers of_size;
  std::int32_t full = 0;  ///< of a link
};

std::optional<Units> units_of(const FewSizes& few) {
  const double rounding = kRounding * few.full;
  double unit = 0;
  for (const double size : few.sizes) {
    double larger = size;
    while (unit > rounding) {
      const double rest = std::abs(std::remainder(larger, unit));
      larger = std::exchange(unit, rest);
    }
    unit = larger;
  }
  if (few.full >= (kMaxLinkUnits + 1) * unit) return std::nullopt;
  Units units;
  for (const double size : few.sizes) {
    units.of_size.push_back(static_cast<std::int32_t>(std::lround(size / unit)));
  }
  units.full = static_cast<std::int32_t>(few.full / unit);
  return units;
}

/// What flows believe about their planes.
class PlaneBeliefs {
 public:
  PlaneBeliefs(const FewSizes& few, const Units& units, std::int32_t planes)
      : few_(few),
        planes_(planes),
        full_(units.full),
        wide_((static_cast<std::size_t>(units.full) / kLanes + 1) * kLanes),
        total_(few.sides, 0),
        at_(few.sides),
        plane_(few.flow.size(), 0),
        field_(few.flow.size() * static_cast<std::size_t>(planes)) {
    for (std::size_t entry = 0; entry < few.flow.size(); ++entry) {
      units_.push_back(units.of_size[few.size[entry]]);
      for (const std::int32_t side : {few.up[entry], few.down[entry]}) {
        total_[side] += units_.back();
        at_[side].push_back(static_cast<std::int32_t>(entry));
      }
    }
    std::size_t most = 0;
    for (const Numbers& entries : at_) most = std::max(most, entries.size());
    before_.resize((most + 1) * 2 * wide_);
    after_.resize((most + 1) * 2 * wide_);
    weight_.resize(most * static_cast<std::size_t>(planes));
    sum_.resize(most);
    takes_.resize(most);
  }

  /// Forgets all messages; flows slightly prefer random planes.
  void start(SplitMix& random) {
    for (auto& of_end : ratio_) of_end.assign(field_.size(), 1.0);
    for (double& field : field_) field = std::exp(kFirstSpread * (random.unit() - 0.5));
  }

  /// Prefers these planes by the logarithm `trust`.
  void prefer(const Numbers& planes, double trust) {
    for (std::size_t entry = 0; entry < planes.size(); ++entry) {
      for (std::int32_t plane = 0; plane < planes_; ++plane) {
        if (plane == planes[entry]) continue;
        field_[cell(static_cast<std::int32_t>(entry), plane)] *= std::exp(-trust);
      }
    }
  }

  /// Iterates from `strength` on until flows are certain, and leaves the best planes it meets in
  /// `repair`; the strength at its end. Takes what it costs from `updates`.
  double run(double strength, PlaneRepair& repair, double& updates) {
    Numbers best = plane_;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int32_t settled = 0;
    while (strength < kLastStrength && settled < kSettled && updates > 0 && least > 0) {
      for (std::int32_t side = 0; side < few_.sides; ++side) update_side(side);
      reinforce(strength);
      updates -= updates_per_iteration();
      repair.assign(plane_);
      if (repair.excess() < least) {
        least = repair.excess();
        best = plane_;
      }
      strength += certainty_ < kDeciding ? kFastStep : kSlowStep;
      settled += certainty_ > kCertain ? 1 : 0;
    }
    repair.assign(best);
    return strength;
  }

  double updates_per_iteration() const {
    return 2 * static_cast<double>(field_.size()) * static_cast<double>(wide_);
  }
  const Numbers& units() const { return units_; }

 private:
  std::size_t cell(std::int32_t entry, std::int32_t plane) const {
    return static_cast<std::size_t>(entry) * static_cast<std::size_t>(planes_) +
           static_cast<std::size_t>(plane);
  }

  /// Messages of the links of a side, one plane after the other.
  void update_side(std::int32_t side) {
    const Numbers& entries = at_[side];
    const std::size_t count = entries.size();
    poll_point(1 + static_cast<std::int64_t>(count * wide_) * planes_ / 64);
    std::vector<double>& ratio = ratio_[side < few_.sides / 2 ? 0 : 1];
    for (std::size_t i = 0; i < count; ++i) {
      sum_[i] = 0;
      for (std::int32_t plane = 0; plane < planes_; ++plane) {
        const std::size_t at = cell(entries[i], plane);
        const double weight = ratio_[0][at] * ratio_[1][at] * field_[at];
        weight_[i * static_cast<std::size_t>(planes_) + static_cast<std::size_t>(plane)] = weight;
        sum_[i] += weight;
      }
    }
    // A link carries at least what the others of the side cannot.
    const std::int32_t least = std::max(total_[side] - (planes_ - 1) * full_, 0);
    for (std::int32_t plane = 0; plane < planes_; ++plane) {
      for (std::size_t i = 0; i < count; ++i) {
        const double weight =
            weight_[i * static_cast<std::size_t>(planes_) + static_cast<std::size_t>(plane)];
        const double own = weight / ratio[cell(entries[i], plane)];
        takes_[i] = own / (std::max(sum_[i] - weight, 0.0) + own);
      }
      convolve(entries, least);
      for (std::size_t i = 0; i < count; ++i) {
        double& message = ratio[cell(entries[i], plane)];
        double& weight =
            weight_[i * static_cast<std::size_t>(planes_) + static_cast<std::size_t>(plane)];
        const double updated = message_to(i, units_[entries[i]]);
        const double change = weight * (updated / message - 1);
        weight += change;
        sum_[i] += change;
        message = updated;
      }
    }
  }

  /// Likelihood of the units of the flows before each one, and that those from it on end within
  /// the limits, by the units before. Zeros around a row spare questions about its ends.
  void convolve(const Numbers& entries, std::int32_t least) {
    const std::size_t count = entries.size();
    std::fill_n(before(0), wide_, 0.0);
    *before(0) = 1;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t units = units_[entries[i]];
      convolve_one(before(i), before(i) - units, takes_[i], before(i + 1));
      if (i % kNormalised == 0) normalise(before(i + 1));
    }
    for (std::size_t u = 0; u < wide_; ++u) {
      const auto sum = static_cast<std::int32_t>(u);
      after(count)[u] = sum >= least && sum <= full_ ? 1 : 0;
    }
    for (std::size_t i = count; i-- > 0;) {
      const std::int32_t units = units_[entries[i]];
      convolve_one(after(i + 1), after(i + 1) + units, takes_[i], after(i));
      if (i % kNormalised == 0) normalise(after(i));
    }
  }
  void convolve_one(const double* without, const double* with, double takes, double* to) const {
    for (std::size_t u = 0; u < wide_; ++u) to[u] = without[u] * (1 - takes) + with[u] * takes;
  }

  /// Products of many likelihoods would underflow.
  void normalise(double* likelihoods) const {
    double sum = 0;
    for (std::size_t u = 0; u < wide_; ++u) sum += likelihoods[u];
    if (sum <= 0) return;
    for (std::size_t u = 0; u < wide_; ++u) likelihoods[u] /= sum;
  }

  /// How likely the link fits with the i-th flow over how likely it does without it.
  double message_to(std::size_t i, std::int32_t units) {
    const double without = product(before(i), after(i + 1));
    const double with = product(before(i), after(i + 1) + units);
    constexpr double kUnlikely = 1e-12;
    const double ratio = (with + kUnlikely) / (without + kUnlikely);
    return std::clamp(ratio, 1 / kMaxRatio, kMaxRatio);
  }
  double product(const double* a, const double* b) const {
    std::array<double, kLanes> sum{};
    for (std::size_t u = 0; u < wide_; u += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += a[u + lane] * b[u + lane];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  double* before(std::size_t i) { return before_.data() + (i + 1) * 2 * wide_ - wide_; }
  double* after(std::size_t i) { return after_.data() + i * 2 * wide_; }

  /// Takes the most likely planes, and turns beliefs to the power of `strength` into fields.
  void reinforce(double strength) {
    certainty_ = 0;
    for (std::size_t entry = 0; entry < plane_.size(); ++entry) {
      const std::size_t first = cell(static_cast<std::int32_t>(entry), 0);
      double most = 0, sum = 0;
      std::int32_t likely = plane_[entry];
      for (std::int32_t plane = 0; plane < planes_; ++plane) {
        const std::size_t at = first + static_cast<std::size_t>(plane);
        field_[at] *= ratio_[0][at] * ratio_[1][at];
        sum += field_[at];
        if (field_[at] > most) {
          most = field_[at];
          likely = plane;
        }
      }
      for (std::int32_t plane = 0; plane < planes_; ++plane) {
        double& field = field_[first + static_cast<std::size_t>(plane)];
        field = std::max(std::pow(field / most, strength), kLeastField);
      }
      certainty_ += most / sum / static_cast<double>(plane_.size());
      plane_[entry] = likely;
    }
  }

  const FewSizes& few_;
  std::int32_t planes_, full_;
  std::size_t wide_;         ///< of a row of likelihoods
  Numbers units_, total_;    ///< by entry; by side
  std::vector<Numbers> at_;  ///< entries, by side
  Numbers plane_;            ///< by entry
  double certainty_ = 0;     ///< mean belief in the most likely plane
  std::vector<double> field_;
  std::array<std::vector<double>, 2> ratio_;  ///< messages of uplinks and downlinks
  // Of the current side: by flow and units (zeros, then the row; the row, then zeros), by flow and
  // plane, by flow.
  std::vector<double> before_, after_, weight_, sum_, takes_;
};

}  // namespace

std::optional<Choice> propagate_beliefs(const RoutingInstance& instance, double drain_s,
                                        double effort, std::uint64_t seed) {
  const std::int32_t planes = instance.graph.two_tier().planes;
  const std::optional<FewSizes> few = few_sizes(instance, drain_s);
  if (!few || few->flow.empty() || planes < 2) return std::nullopt;
  const std::optional<Units> units = units_of(*few);
  if (!units) return std::nullopt;
  SplitMix random(seed);
  const auto between = [&](double low, double high) { return low + (high - low) * random.unit(); };
  PlaneBeliefs beliefs(*few, *units, planes);
  PlaneRepair repair(*few, beliefs.units(), units->full, planes);
  double updates = kUpdatesPerEffort * effort, first_strength = 0;
  const double least_updates = kLeastIterations * beliefs.updates_per_iteration();
  Numbers trusted;
  std::int64_t least = 0;
  for (std::int32_t run = 0; updates >= least_updates; ++run) {
    beliefs.start(random);
    if (run % kRestart == 0) {
      first_strength = beliefs.run(0, repair, updates);
    } else {
      beliefs.prefer(trusted, between(kMinTrust, kMaxTrust));
      beliefs.run(first_strength * between(kMinShare, kMaxShare), repair, updates);
    }
    updates -= kUpdatesPerMove * static_cast<double>(kRepairMoves);
    if (repair.run(kRepairMoves, random)) {
      Choice choice(instance.size(), PathSets::kNone);
      for (std::size_t i = 0; i < few->flow.size(); ++i) choice[few->flow[i]] = repair.planes()[i];
      return choice;
    }
    if (run % kRestart == 0 || repair.excess() <= least) {
      least = repair.excess();
      trusted = repair.planes();
    }
  }
  return std::nullopt;
}

}  // namespace scalemodel
