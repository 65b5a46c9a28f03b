#include "scalemodel/strategy/interleaving.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

/// One step of interleaved 1F1B (arXiv 2104.04473) on chunks of the given weights: whole groups of
/// pp micro-batches pass chunk after chunk; stage s runs 2 (pp - s - 1) + (vpp - 1) pp forward
/// passes ahead, then one pass each way in turn.
class Run {
 public:
  Run(const std::vector<double>& weights, int pp, int groups)
      : weights_(weights),
        pp_(pp),
        vpp_(static_cast<int>(weights.size()) / pp),
        total_(groups * pp * vpp_),
        forward_end_(weights.size() * static_cast<std::size_t>(groups * pp), -1),
        backward_end_(forward_end_),
        stages_(static_cast<std::size_t>(pp)) {}

  double duration() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int s = 0; s < pp_; ++s) {
        while (advance(s)) progress = true;
      }
    }
    double end = 0;
    for (const Stage& stage : stages_) end = std::max(end, stage.free);
    return end;
  }

 private:
  struct Stage {
    int forwards = 0, backwards = 0;
    double free = 0;
  };

  /// The chunk, in the order of the model, and the micro-batch of a stage's n-th pass one way.
  struct Place {
    int chunk, micro_batch;
  };
  Place place(int stage, int n, bool backward) const {
    const int group = n / (pp_ * vpp_), turn = n / pp_ % vpp_;
    return {(backward ? vpp_ - 1 - turn : turn) * pp_ + stage, group * pp_ + n % pp_};
  }
  double& end_of(std::vector<double>& ends, Place p) const {
    return ends[static_cast<std::size_t>(p.micro_batch) * weights_.size() +
                static_cast<std::size_t>(p.chunk)];
  }

  /// Runs the next pass of a stage; false when it is done or its input has not arrived.
  bool advance(int s) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    if (stage.backwards == total_) return false;
    const int ahead = std::min(2 * (pp_ - s - 1) + (vpp_ - 1) * pp_, total_);
    const bool backward = stage.forwards == std::min(total_, ahead + stage.backwards + 1);
    const Place at = place(s, backward ? stage.backwards : stage.forwards, backward);
    const int last = static_cast<int>(weights_.size()) - 1;
    double ready = 0;
    if (backward && at.chunk < last) {
      ready = end_of(backward_end_, {at.chunk + 1, at.micro_batch});
    } else if (backward) {
      ready = end_of(forward_end_, at);
    } else if (at.chunk > 0) {
      ready = end_of(forward_end_, {at.chunk - 1, at.micro_batch});
    }
    if (ready < 0) return false;
    constexpr double kForwardShare = 1.0 / 3;
    const double weight = weights_[static_cast<std::size_t>(at.chunk)];
    stage.free =
        std::max(stage.free, ready) + (backward ? 1 - kForwardShare : kForwardShare) * weight;
    end_of(backward ? backward_end_ : forward_end_, at) = stage.free;
    ++(backward ? stage.backwards : stage.forwards);
    return true;
  }

  const std::vector<double>& weights_;
  int pp_, vpp_, total_;
  std::vector<double> forward_end_, backward_end_;
  std::vector<Stage> stages_;
};

}  // namespace

InterleavedPace::InterleavedPace(const std::vector<int>& chunk_layers, int pp) {
  const bool interleaved = pp > 1 && chunk_layers.size() > static_cast<std::size_t>(pp);
  const bool equal =
      std::ranges::adjacent_find(chunk_layers, std::ranges::not_equal_to{}) == chunk_layers.end();
  if (!interleaved || equal) return;
  group_ = pp;
  std::vector<double> weights(chunk_layers.begin(), chunk_layers.end());
  for (std::size_t h = 0; h < kHeads.size(); ++h) {
    weights.back() = chunk_layers.back() + kHeads[h];
    for (std::size_t g = 0; g < kGroups.size(); ++g) {
      durations_[h][g] = Run(weights, pp, kGroups[g]).duration();
    }
    const double many = Run(weights, pp, kManyGroups).duration();
    further_[h] = (many - durations_[h].back()) / (kManyGroups - kGroups.back());
    // What the first groups leave to the later ones must not let a heavier head look faster.
    if (h > 0) further_[h] = std::max(further_[h], further_[h - 1]);
  }
}

double InterleavedPace::duration(double micro_batches, double head) const noexcept {
  const double groups = micro_batches / group_;
  std::size_t h = 0;
  while (h + 2 < kHeads.size() && head > kHeads[h + 1]) ++h;
  const double heavy = (head - kHeads[h]) / (kHeads[h + 1] - kHeads[h]);
  const auto at = [&](std::size_t weight) {
    const auto& known = durations_[weight];
    if (groups > kGroups.back()) {
      return known.back() + (groups - kGroups.back()) * further_[weight];
    }
    const std::size_t g = groups > kGroups[1] ? 1 : 0;
    const double late = (groups - kGroups[g]) / (kGroups[g + 1] - kGroups[g]);
    return known[g] + late * (known[g + 1] - known[g]);
  };
  return at(h) + heavy * (at(h + 1) - at(h));
}

}  // namespace scalemodel
