// Why a question has no `ok` answer: one list of codes for verdicts, skip reasons and messages.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

enum class Reason : std::uint8_t {
  ok,
  out_of_memory,
  mesh,            // tp pp cp dp does not equal the accelerators of the cluster
  tp_heads,        // tp does not divide the attention heads
  tp_ffn,          // tp does not divide the width of the feed-forward layer
  pp_layers,       // more pipeline stages than layers, or chunks than layers, embedding and LM head
  vpp_without_pp,  // interleaving needs a pipeline
  vpp_schedule,    // the schedule has no interleaved form, or needs one
  dualpipe_stages,     // DualPipe needs an even number of stages and twice as many micro-batches
  cp_sequence,         // cp does not divide the sequence
  cp_heads,            // all-to-all context parallelism: tp cp does not divide the heads
  sp_sequence,         // sequence parallelism: tp does not divide the sequence of a rank
  ep_experts,          // ep does not divide the experts, or the model has none
  ep_mesh,             // ep etp does not divide the ranks of a pipeline stage
  etp_ffn,             // etp does not divide the expert width
  batch,               // the global batch is not a multiple of dp micro_batch
  shard_degree,        // the sharding group does not divide the data-parallel ranks
  recompute_layers,    // more recomputed layers than the model has
  precision,           // the accelerator has no rate for this precision
  offload,             // host memory is smaller than what is offloaded
  dualpipe_v_batches,  // DualPipeV needs twice as many micro-batches as stages
  quantized_sharding,  // only parameters that are gathered are quantised, and their gradients
  secondary_degree     // parameters are not gathered, or the copy's ranks do not divide the shard's
};

template <>
struct EnumNames<Reason> {
  static constexpr std::string_view what = "reason";
  static constexpr std::array<std::string_view, 23> names{"ok",
                                                          "out_of_memory",
                                                          "mesh",
                                                          "tp_heads",
                                                          "tp_ffn",
                                                          "pp_layers",
                                                          "vpp_without_pp",
                                                          "vpp_schedule",
                                                          "dualpipe_stages",
                                                          "cp_sequence",
                                                          "cp_heads",
                                                          "sp_sequence",
                                                          "ep_experts",
                                                          "ep_mesh",
                                                          "etp_ffn",
                                                          "batch",
                                                          "shard_degree",
                                                          "recompute_layers",
                                                          "precision",
                                                          "offload",
                                                          "dualpipe_v_batches",
                                                          "quantized_sharding",
                                                          "secondary_degree"};
};

/// A strategy that cannot run at all, as opposed to one that runs out of memory.
constexpr bool is_illegal(Reason reason) {
  return reason != Reason::ok && reason != Reason::out_of_memory;
}

}  // namespace scalemodel
