// Lower bounds on the fullest link from packings of the flows of single leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace scalemodel {

/// Distinct sizes of flows at most for exact sums; with more of them almost every load is a sum.
inline constexpr std::size_t kMaxFlowSizes = 8;

/// The flows of one leaf as times that they take one of its links, which are equal.
class LeafPacking {
 public:
  /// `loads`: by flow; `least`: what the fullest link takes at least.
  LeafPacking(std::span<const double> loads, std::size_t links, double least);

  /// False where the flows cannot be packed on the links with at most `load` on each; true where
  /// they can, or where the proof would take too long. Few distinct sizes: exact by dynamic
  /// programming over the numbers of flows by size; otherwise branch and bound.
  bool may_fit(double load) const;
  /// A lower bound on the fullest link, not below `load`: the next sum of flows of few distinct
  /// sizes, otherwise the largest load that is proven too small.
  double raised(double load) const;
  /// The bound of this leaf alone before any packing: `raised` for few distinct sizes.
  double least_load() const { return sizes_.empty() ? least_ : next_sum(least_); }

 private:
  double next_sum(double load) const;
  double largest_first() const;
  bool may_fit_sizes(double load) const;
  bool may_fit_flows(double load) const;

  std::vector<double> loads_;        ///< the largest first
  std::vector<double> sizes_;        ///< distinct ones, the largest first; none where they are many
  std::vector<std::int32_t> count_;  ///< flows, by size
  std::size_t links_;
  double least_;
};

/// A lower bound on the fullest link of all leaves: `least`, raised until the flows of every leaf
/// can be packed on its links.
double packing_bound(std::span<const LeafPacking> leaves, double least);

}  // namespace scalemodel
