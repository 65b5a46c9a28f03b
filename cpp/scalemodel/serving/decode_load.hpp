// What an instance's decoding steps are to the law of serving power.
#pragma once

#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/power/serving.hpp"
#include "scalemodel/serving/capacity.hpp"
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

}  // namespace scalemodel
