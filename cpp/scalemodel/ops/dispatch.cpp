#include "scalemodel/ops/dispatch.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {
namespace {

constexpr double kOverlap = 3;  ///< of copies inside and between nodes that a node forwards

/// Seconds per byte inside the domain; rates blend as a minimum, so their inverses as a maximum.
double domain_cost(const DispatchWork& work, const DispatchKernel& kernel) {
  const double domain = 1 / kernel.domain_rate.base();
  if (work.communication_blocks <= 0 || kernel.block_rate <= BytesPerSecond{}) return domain;
  return smooth_max(1 / (work.communication_blocks * kernel.block_rate.base()), domain,
                    kernel.blend);
}

}  // namespace

double distinct_places(double places, double topk) noexcept {
  return places * (1 - std::pow(1 - 1 / places, topk));
}

Seconds dispatch_time(const DispatchWork& work, const DispatchKernel& kernel) noexcept {
  const double ranks = work.ranks, nodes = work.nodes;
  const double per_copy = work.tokens * work.hidden * kernel.value_bytes;
  double inside = 0, between = 0;
  if (ranks > 1 && kernel.domain_rate > BytesPerSecond{}) {
    const double copies = kernel.copies_once ? distinct_places(ranks, work.topk) * (ranks - 1)
                                             : work.topk * (ranks / nodes - 1);
    inside = per_copy * copies / ranks * domain_cost(work, kernel);
  }
  if (nodes > 1 && kernel.network_rate > BytesPerSecond{}) {
    const double places = kernel.copies_once ? distinct_places(nodes, work.topk) : work.topk;
    const double share = nodes > kernel.spine_nodes ? kernel.spine_fraction : 1;
    between = per_copy * places * (nodes - 1) / nodes / (share * kernel.network_rate.base());
  }
  const double transfer =
      kernel.copies_once ? smooth_max(inside, between, kOverlap) : inside + between;
  const double span = std::log2(std::max(kernel.counts_ranks ? ranks : nodes, 1.0));
  const double senders = std::max(std::min(work.experts, work.sending_blocks), 1.0);
  return kernel.launch + span * kernel.doubling + work.topk * kernel.choice +
         (work.tokens / senders) * kernel.sender + Seconds{transfer};
}

}  // namespace scalemodel
