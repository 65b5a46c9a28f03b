// What an instance's decoding steps are to the law of serving power.
#pragma once

#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/power/serving.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/expert_pool.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/serving/steady_state.hpp"

namespace scalemodel {

/// An instance whose decoding steps draw power. The references outlive it.
struct DecodingInstance {
  const Model& model;
  const Cluster& cluster;
  const ServingLayout& layout;
  const CacheBlocks& blocks;
  const CacheCapacity& capacity;
  bool experts = false;  ///< shards of which its data-parallel ranks hold
  bool narrow = false;   ///< its products are of 8 bit or less, where the accelerator has them
};

/// One of its steps with `sequences` running, at the mean context of a request. Prompts are left
/// out: the law was fitted to runs whose steps mostly decode.
DecodeLoad decode_load(const DecodingInstance& instance, const RequestMix& mix, double sequences);

/// The same of the pool that holds the experts of such an instance alone, on `accelerator`s.
DecodeLoad expert_pool_load(const DecodingInstance& instance, const Accelerator& accelerator,
                            double sequences);

/// An accelerator of an instance, and how it draws power. The reference outlives it.
struct ServedAccelerator {
  const Accelerator& accelerator;
  ServingPower power;
};

/// Mean power of the accelerators of such an instance, those of an expert pool among them. A pool
/// that waits for the other, busy for a part of the step alone, draws what one does that waits for
/// its CPU. `busy`: of a step with `sequences`; without a pool neither it nor `experts` counts.
Watts instance_power(const DecodingInstance& instance, const RequestMix& mix, double sequences,
                     const ServedAccelerator& own, const ServedAccelerator& experts,
                     const PoolLoad& busy);

/// Price of the accelerators of an instance; 0 where that of one of its pools is unknown.
DollarsPerSecond instance_price(const ServingLayout& layout, DollarsPerSecond own,
                                DollarsPerSecond experts) noexcept;

}  // namespace scalemodel
