// Documents of unequal lengths that fill the sequences of a training step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

/// Which packs a data-parallel rank takes, and over how many context ranks a document is split.
/// `plain`: as they come, over all of them. `balanced`: packs of like attention at once, and a
/// light one beside a heavy one. `dynamic_cp`: balanced, and a document over as few context ranks
/// as hold its tokens. Source: verl, balance_batch; Megatron-Core, dynamic context parallelism.
enum class PackOrder : std::uint8_t { plain, balanced, dynamic_cp };

template <>
struct EnumNames<PackOrder> {
  static constexpr std::string_view what = "packing";
  static constexpr std::array<std::string_view, 3> names{"plain", "balanced", "dynamic_cp"};
};

/// Lengths in tokens of the documents of a batch, or of a sample of them. Without any, every
/// sequence is one document.
struct Packing {
  std::vector<int> lengths;
  PackOrder order = PackOrder::plain;

  bool packed() const { return !lengths.empty(); }
  bool operator==(const Packing&) const = default;
};

/// Degrees that documents are split by.
struct PackSplit {
  int tp = 1;  ///< that share a sequence (sequence parallelism), else 1
  int cp = 1;

  bool operator==(const PackSplit&) const = default;
};

/// Packs as equal sequences of the same tokens and the same attention, on one rank.
struct PackShape {
  double fill = 1;  ///< tokens of documents in a slot of the sequence
  /// Length of equal documents of the same tokens and attention: sum l^2 / sum l, for attention
  /// stays within a document.
  double attended = 0;
  double context = 1;    ///< ranks that a token's document is split over, in the mean
  double exchange = 1;   ///< tokens that context ranks exchange, of those of whole sequences
  double documents = 1;  ///< in a slot of the sequence, in the mean

  bool operator==(const PackShape&) const = default;
};

/// Attention of packs over that of the mean pack.
struct PackSpread {
  double deviation = 0, skew = 0;
  double lightest = 1, heaviest = 1;

  bool operator==(const PackSpread&) const = default;
};

/// The fewest packs by a greedy rule, the longest document first into the fullest pack that has
/// room: at most 11/9 of the optimum and a pack more (Johnson, 1973), mostly the optimum itself.
/// Documents of each pack by their place in `lengths`. Precondition: 1 <= length <= sequence.
std::vector<std::vector<int>> pack_documents(const std::vector<int>& lengths, int sequence);

/// Documents are padded to what their ranks divide: two chunks of a context rank, each of a
/// multiple of `tp` tokens. A sample that fills few packs is taken again until it fills many.
/// Source: Megatron-Core, packed sequences with context parallelism.
/// Precondition: lengths from 1 to `sequence`.
PackShape pack_shape(const Packing& packing, int sequence, const PackSplit& split);

PackSpread pack_spread(const Packing& packing, int sequence);

/// Ranks that wait for each other, and how many packs each works through until then.
struct PackGroup {
  double ranks = 1, packs = 1;
};

/// Attention of the rank with most of it, beyond that of a mean rank and over it, once `packs`
/// packs are done.
///
/// Plain: the expected maximum of sums of independent packs, Cornish and Fisher's expansion to the
/// third moment, and never beyond as many of the heaviest. Balanced: a rank that has the heaviest
/// pack takes the lightest beside it.
double pack_imbalance(const PackSpread& spread, PackOrder order, const PackGroup& group);

/// The same where ranks wait for each other after every one of `rounds` rounds of such a group.
/// Balanced, packs of like attention run at once: the excess of all rounds is at most the range of
/// packs, and half of it in the mean.
double pack_imbalance_in_step(const PackSpread& spread, PackOrder order, const PackGroup& group,
                              double rounds);

}  // namespace scalemodel
