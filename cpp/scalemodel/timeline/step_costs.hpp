// What a timeline is made of: the passes, transfers and buffers of one training step, with their
// costs. The estimator fills it from the tables that its closed form reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/schedule/stages.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// What runs side by side on a rank: kernels, one stream per communicator, transfers to and from
/// the neighbouring pipeline stages, and the host link.
enum class Stream : std::uint8_t {
  compute,
  tp,
  cp,
  ep,
  dp,
  send_next,
  send_previous,
  receive_previous,
  receive_next,
  host
};

template <>
struct EnumNames<Stream> {
  static constexpr std::string_view what = "stream";
  static constexpr std::array<std::string_view, 10> names{
      "compute",          "tp",           "cp",  "ep", "dp", "send_next", "send_previous",
      "receive_previous", "receive_next", "host"};
};
inline constexpr std::size_t kStreams = EnumNames<Stream>::names.size();

/// Work of one pass on a stream beside compute.
struct StreamUse {
  Seconds busy;     ///< in all
  Seconds exposed;  ///< while the kernels wait
  Bytes bytes;
};

/// One pass of one micro-batch through one chunk.
struct PassCost {
  Seconds compute;
  Seconds hidden;  ///< communication underneath the compute
  std::array<StreamUse, kStreams> streams{};

  StreamUse& on(Stream stream) { return streams[static_cast<std::size_t>(stream)]; }
  const StreamUse& on(Stream stream) const { return streams[static_cast<std::size_t>(stream)]; }
  Seconds exposed() const {
    Seconds sum;
    for (const StreamUse& use : streams) sum += use.exposed;
    return sum;
  }
};

/// A buffer exchanged once per step in equal buckets, one after the other.
struct Traffic {
  Seconds time;
  Bytes bytes;
  int buckets = 1;
};

/// A contiguous part of the model on one stage.
struct ChunkCost {
  PassCost forward, backward;  ///< backward: recomputation, input and weight gradients
  PassCost paired_forward, paired_backward;  ///< the same where DualPipe runs them as a pair
  Seconds last_layer;       ///< part of the paired backward pass: a layer of the chunk, in the mean
  Seconds recompute;        ///< part of the backward pass's compute
  Seconds weight_gradient;  ///< likewise; deferred where the schedule splits
  std::array<int, kMaxLayerKinds> layers{};  ///< of each kind
  bool embedding = false, head = false;
  Traffic gather;           ///< parameters, before and under the first forward pass
  Traffic reduce;           ///< gradients, under and after the last backward pass
  Seconds encode;           ///< compressing the gradients, before they are reduced
  Bytes activations;        ///< saved for backward, per micro-batch
  Bytes logits, temporary;  ///< live inside a pass

  int total_layers() const { return std::accumulate(layers.begin(), layers.end(), 0); }
};

/// Bytes a rank holds by kind.
struct MemoryKinds {
  Bytes weights, gradients, optimizer, activations, logits, temporary, communication, gathered;
  Bytes reserve;

  Bytes total() const {
    return weights + gradients + optimizer + activations + logits + temporary + communication +
           gathered + reserve;
  }
};

struct StageResources {
  MemoryKinds resident;        ///< with nothing in flight: activations, logits, temporary are zero
  Seconds decode;              ///< of compressed gradients
  Seconds optimizer;           ///< parameter update, once every stage has its gradients
  Seconds optimizer_transfer;  ///< states from and to host memory, in front of it
};

/// One step. Stage s owns the chunks s * chunks_per_stage to (s + 1) * chunks_per_stage - 1.
struct StepCosts {
  Schedule schedule = Schedule::one_f_one_b;
  int stages = 1;
  int chunks_per_stage = 1;
  int micro_batches = 1;
  std::vector<ChunkCost> chunks;
  std::vector<StageResources> resources;
  Seconds hop;  ///< boundary between neighbouring stages, one way
  Bytes boundary;
  bool transfers_block = true;    ///< kernels wait for them
  bool transfers_serial = false;  ///< receiving, too, keeps a stage from running and sending
  bool hide_gather = true, hide_reduce = true;
  double overlap_efficiency = 1;  ///< share of compute that can hide communication
  double overlap_slowdown = 0;  ///< slowdown of compute, seconds per second of hidden communication
  Seconds overhead;             ///< once per step

  const ChunkCost& chunk(int stage, int index) const {
    const auto first = static_cast<std::size_t>(stage) * static_cast<std::size_t>(chunks_per_stage);
    return chunks[first + static_cast<std::size_t>(index)];
  }
};

}  // namespace scalemodel
