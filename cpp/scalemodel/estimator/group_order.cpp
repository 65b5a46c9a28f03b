// How a strategy of layer groups issues the transfers of a pass.
#include "scalemodel/estimator/group_schedule.hpp"

namespace scalemodel {

GroupOrder order_of(const GroupStrategy& strategy, bool last_pass) {
  constexpr auto kAll = static_cast<Parts>(~0);
  GroupOrder order;
  order.one_queue = strategy.queues == Queues::one;
  order.recompute = strategy.recompute;
  order.prefetch = strategy.prefetch;
  order.last_pass = last_pass;
  order.one_bucket = strategy.buckets == Buckets::group;
  const Parts forward_once = kGatherOnce, backward_once = kReduceOnce | kReplicas | kBucketed;
  order.forward = static_cast<Parts>(kAll & ~(last_pass ? 0 : forward_once));
  order.backward = static_cast<Parts>(kAll & ~(last_pass ? 0 : backward_once) &
                                      ~(order.one_bucket ? kBucketed | kBucketedEach : 0));
  const bool before =
      strategy.backward_gather == BackwardGather::before && strategy.prefetch != Prefetch::none;
  order.ahead = before ? kGather : Parts{0};
  return order;
}

}  // namespace scalemodel
