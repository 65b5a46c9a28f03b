#include "scalemodel/routing/rates/packing_bound.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {
namespace {

constexpr std::size_t kMaxSums = 4096;       ///< sums of sizes listed for one leaf
constexpr std::size_t kMaxSubsets = 65'536;  ///< numbers of flows by size, one leaf
constexpr std::int32_t kMaxNodes = 2'000;    ///< of the branch and bound of one leaf and load
constexpr int kBisections = 10;              ///< of the largest load that is too small

/// Links that a subset of the flows needs, and the load of the last one.
struct Packed {
  std::int32_t links;
  double load;
  bool operator<(const Packed& other) const {
    return links < other.links || (links == other.links && load < other.load);
  }
};

/// Places flows, the largest first, on links with some capacity left.
class BranchAndBound {
 public:
  BranchAndBound(std::span<const double> loads, std::size_t links, double load)
      : loads_(loads), left_(links, load * (1 + kRounding)) {}

  /// Whether the flows from `next` on fit, or the nodes are spent.
  bool may_fit(std::size_t next) {
    if (next == loads_.size() || ++nodes_ > kMaxNodes) return true;
    poll_point(1 + static_cast<std::int64_t>(left_.size()));
    for (std::size_t link = 0; link < left_.size(); ++link) {
      const double before = left_[link];
      if (before < loads_[next]) continue;
      // A link with as much capacity left as an earlier one gives the same packings.
      const auto same = std::find(left_.begin(), left_.end(), before);
      if (static_cast<std::size_t>(same - left_.begin()) < link) continue;
      left_[link] = before - loads_[next];
      const bool fits = may_fit(next + 1);
      left_[link] = before;
      if (fits) return true;
    }
    return false;
  }

 private:
  std::span<const double> loads_;
  std::vector<double> left_;
  std::int32_t nodes_ = 0;
};

}  // namespace

LeafPacking::LeafPacking(std::span<const double> loads, std::size_t links, double least)
    : loads_(loads.begin(), loads.end()), links_(links), least_(least) {
  std::ranges::sort(loads_, std::greater{});
  for (const double size : loads_) {
    if (sizes_.empty() || sizes_.back() != size) {
      sizes_.push_back(size);
      count_.push_back(0);
    }
    ++count_.back();
    if (sizes_.size() > kMaxFlowSizes) break;
  }
  if (sizes_.size() > kMaxFlowSizes) sizes_.clear();
}

double LeafPacking::next_sum(double load) const {
  // The least such sum exceeds the load by less than one flow.
  const double most = load + sizes_.front();
  std::vector<double> sums{0.0};
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const std::size_t before = sums.size();
    for (std::size_t s = 0; s < before; ++s) {
      poll_point();
      double sum = sums[s];
      for (std::int32_t k = 0; k < count_[i] && (sum += sizes_[i]) <= most * (1 + kRounding); ++k) {
        sums.push_back(sum);
      }
    }
    std::ranges::sort(sums);
    const auto same = [](double a, double b) { return b - a <= kRounding * b; };
    sums.erase(std::unique(sums.begin(), sums.end(), same), sums.end());
    if (sums.size() > kMaxSums) return load;
  }
  const auto next = std::ranges::lower_bound(sums, load * (1 - kRounding));
  return next == sums.end() ? load : std::max(*next, load);
}

/// The fullest link where every flow, the largest first, takes the link with the least load.
double LeafPacking::largest_first() const {
  std::vector<double> sum(links_, 0.0);  // a heap whose top has the least load
  double most = 0;
  for (const double load : loads_) {
    poll_point();
    std::ranges::pop_heap(sum, std::greater{});
    sum.back() += load;
    most = std::max(most, sum.back());
    std::ranges::push_heap(sum, std::greater{});
  }
  return most;
}

bool LeafPacking::may_fit(double load) const {
  if (loads_.front() > load * (1 + kRounding)) return false;
  if (largest_first() <= load * (1 + kRounding)) return true;
  return sizes_.empty() ? may_fit_flows(load) : may_fit_sizes(load);
}

bool LeafPacking::may_fit_flows(double load) const {
  return BranchAndBound(loads_, links_, load).may_fit(0);
}

bool LeafPacking::may_fit_sizes(double load) const {
  std::vector<std::size_t> stride;
  std::size_t subsets = 1;
  for (const std::int32_t count : count_) {
    stride.push_back(subsets);
    subsets *= static_cast<std::size_t>(count) + 1;
    if (subsets > kMaxSubsets) return may_fit_flows(load);
  }
  // Some order of the flows fills the links of a best packing one after the other.
  std::vector<Packed> best(subsets, {0, 0});
  std::vector<std::int32_t> used(count_.size(), 0);
  for (std::size_t subset = 1; subset < subsets; ++subset) {
    poll_point();
    for (std::size_t i = 0; ++used[i] > count_[i]; ++i) used[i] = 0;
    best[subset] = {static_cast<std::int32_t>(links_) + 1, 0};
    for (std::size_t i = 0; i < count_.size(); ++i) {
      if (used[i] == 0) continue;
      Packed with = best[subset - stride[i]];
      if (with.links == 0 || with.load + sizes_[i] > load * (1 + kRounding)) {
        with = {with.links + 1, sizes_[i]};
      } else {
        with.load += sizes_[i];
      }
      best[subset] = std::min(best[subset], with);
    }
  }
  return best.back().links <= static_cast<std::int32_t>(links_);
}

double LeafPacking::raised(double load) const {
  double least = load;
  if (!sizes_.empty()) {
    while (!may_fit(least)) {
      const double next = next_sum(least * (1 + 2 * kRounding));
      if (next <= least * (1 + 4 * kRounding)) break;
      least = next;
    }
    return least;
  }
  if (may_fit(least)) return least;
  double fits = largest_first();
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (least + fits) / 2;
    (may_fit(middle) ? fits : least) = middle;
  }
  return least;
}

double packing_bound(std::span<const LeafPacking> leaves, double least) {
  double bound = least;
  for (const LeafPacking& leaf : leaves) bound = std::max(bound, leaf.least_load());
  for (const LeafPacking& leaf : leaves) bound = leaf.raised(bound);
  return bound;
}

}  // namespace scalemodel
