// Sequences of a training step as equal ones: packed, of the same attention, or padded.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

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

/// Tokens that a sequence is padded to: what context and tensor ranks divide, 2 cp chunks of a
/// multiple of tp. Source: Megatron-Core, packed sequences with context parallelism.
inline double padded_length(double tokens, const PackingRanks& ranks) {
  const double multiple = (ranks.cp > 1 ? 2.0 * ranks.cp : 1.0) * ranks.tp;
  return multiple * std::max(1.0, std::ceil(tokens / multiple));
}

/// As few packs as hold a replica's sequences, and these in equal parts: packers fill by the
/// longest first or balance. Source: NVIDIA-NeMo/RL, modified first-fit decreasing; verl,
/// rearrange_micro_batches.
inline PackedBatch packed_batch(const SequenceLengths& lengths, double sequences,
                                double pack_tokens, const PackingRanks& ranks) {
  PackedBatch packed;
  packed.sequence = padded_length(lengths.equal, ranks);
  const double equal = sequences * lengths.mean / packed.sequence;
  const double holds = std::max(1.0, std::nearbyint(pack_tokens / packed.sequence));
  const double each = equal / ranks.replicas;
  const double packs = std::ceil(each / holds);
  packed.micro_batch = std::ceil(each / packs);
  packed.batch = packs * packed.micro_batch * ranks.replicas;
  return packed;
}

/// Micro-batches of sequences that are padded to the longest of `group` of them, every replica as
/// many: pads cost what tokens do. Source: huggingface/trl pads what a device takes at once,
/// NVIDIA-NeMo/RL (preference_collate_fn, make_microbatch_iterator) a batch of all devices.
/// Precondition: the longest stands first.
inline PackedBatch padded_batch(const std::vector<double>& lengths, double sequences,
                                double micro_batch, double group, const PackingRanks& ranks) {
  PackedBatch padded;
  padded.sequence = padded_length(expected_longest(lengths, group), ranks);
  padded.micro_batch = std::min(micro_batch, std::ceil(sequences / ranks.replicas));
  const double each = std::ceil(sequences / ranks.replicas / padded.micro_batch);
  padded.batch = each * padded.micro_batch * ranks.replicas;
  return padded;
}

}  // namespace scalemodel
