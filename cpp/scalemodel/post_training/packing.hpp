// Packed sequences of a training step, as equal ones of the same tokens and the same attention.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/post_training/answers.hpp"

namespace scalemodel {

/// How a training pool cuts what it packs.
struct PackingRanks {
  int tp = 1, cp = 1;
  int replicas = 1;  ///< data-parallel: each takes packs of its own
};

/// A batch for the estimate of a training step.
struct PackedBatch {
  double sequence = 1;     ///< tokens of each of the equal sequences
  double micro_batch = 1;  ///< of them in a pack
  double batch = 1;        ///< of them in all: whole packs for every replica
};

/// As few packs as hold a replica's sequences, and these in equal parts: packers fill by the
/// longest first or balance. Lengths are padded to what context and tensor ranks divide: 2 cp
/// chunks of a multiple of tp. Source: Megatron-Core, packed sequences with context parallelism;
/// NVIDIA-NeMo/RL, modified first-fit decreasing; verl, rearrange_micro_batches.
inline PackedBatch packed_batch(const SequenceLengths& lengths, double sequences,
                                double pack_tokens, const PackingRanks& ranks) {
  const double multiple = (ranks.cp > 1 ? 2.0 * ranks.cp : 1.0) * ranks.tp;
  PackedBatch packed;
  packed.sequence = multiple * std::max(1.0, std::ceil(lengths.equal / multiple));
  const double equal = sequences * lengths.mean / packed.sequence;
  const double holds = std::max(1.0, std::nearbyint(pack_tokens / packed.sequence));
  const double each = equal / ranks.replicas;
  const double packs = std::ceil(each / holds);
  packed.micro_batch = std::ceil(each / packs);
  packed.batch = packs * packed.micro_batch * ranks.replicas;
  return packed;
}

}  // namespace scalemodel
