// Distribution of the times between tokens that sequences see.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Bins 2 % wide from 10 us, each with the tokens that came after such a time.
class GapHistogram {
 public:
  void add(Seconds gap, double tokens) {
    const double bin = std::log(std::max(gap.base(), kLeast) / kLeast) / kWidth;
    const auto index = static_cast<std::size_t>(std::min(bin, kBins - 1.0));
    bins_[index] += tokens;
    total_ += tokens;
  }
  void merge(const GapHistogram& other) {
    for (std::size_t i = 0; i < bins_.size(); ++i) bins_[i] += other.bins_[i];
    total_ += other.total_;
  }
  Seconds quantile(double share) const {
    double below = 0;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      below += bins_[i];
      if (below >= share * total_ && below > 0) {
        return Seconds{kLeast * std::exp(kWidth * (static_cast<double>(i) + 0.5))};
      }
    }
    return Seconds{};
  }

 private:
  static constexpr double kLeast = 1e-5, kWidth = 0.02;
  static constexpr std::size_t kBins = 1000;
  std::array<double, kBins> bins_{};
  double total_ = 0;
};

}  // namespace scalemodel
