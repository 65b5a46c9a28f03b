// Answers that follow a grammar: what the masks of allowed tokens cost the CPU.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Guided (structured) decoding. Before a token of a guided request is sampled, the CPU advances
/// its grammar by the last one and fills a mask with a bit for every token of the vocabulary
/// (XGrammar, arXiv 2411.15100, section 3).
struct GuidedDecoding {
  double fraction = 0;  ///< of the requests, those whose answers follow a grammar, 0 to 1
  Seconds mask;         ///< CPU time of one mask, the grammar's advance included, mean
  Seconds advance;      ///< of that, taking the last token in, before the next step begins
  Seconds update;       ///< CPU time of taking one sequence's token in, guided or not, where masks
                        ///< of a step that is scheduled ahead wait for it; 0: they do not
  Seconds compile;      ///< a guided request waits for its grammar before it starts, mean

  bool operator==(const GuidedDecoding&) const = default;
  bool any() const noexcept { return fraction > 0; }
};

template <>
struct RecordOf<GuidedDecoding> {
  static constexpr std::string_view name = "GuidedDecoding";
  using T = GuidedDecoding;
  static constexpr FieldTable fields{
      field("guided_fraction", &T::fraction, 0, 1, "of the requests, those that follow a grammar"),
      field("mask_s", &T::mask, 0, 1, "CPU time of one mask of allowed tokens, mean"),
      field("advance_s", &T::advance, 0, 1,
            "of that, taking the last token in, before the next step begins"),
      field("update_s", &T::update, 0, 1e-3,
            "CPU time of taking in the token of any sequence, which masks of steps that are "
            "scheduled ahead wait for"),
      field("compile_s", &T::compile, 0, 1e4,
            "a guided request waits for its grammar before it starts, mean")};
};

/// Bytes of one mask: a bit for every token of the vocabulary.
constexpr Bytes mask_bytes(double vocab) noexcept { return Bytes{vocab / 8}; }

}  // namespace scalemodel
