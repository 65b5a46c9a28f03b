// How long the answers of a step of reinforcement learning are.
#pragma once

#include <cstddef>
#include <vector>

namespace scalemodel {

/// Value that a standard normal variable stays below with this probability, to 1e-15 relative.
/// Source: Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484.
/// Precondition: 0 < probability < 1.
double normal_quantile(double probability);

/// Log-normal lengths that the context cuts.
struct AnswerLengths {
  double mean = 1;    ///< tokens of an answer, those that were cut included
  double room = 1;    ///< tokens that the context leaves for an answer
  double spread = 0;  ///< standard deviation of the logarithm before the cut; 0 = all alike

  bool operator==(const AnswerLengths&) const = default;
};

/// Lengths in tokens as even quantiles, the longest first: min(room, scale e^(spread z_i)) with the
/// scale that gives them their mean. Preconditions: 1 <= mean <= room, count >= 1.
std::vector<double> answer_lengths(const AnswerLengths& lengths, std::size_t count);

/// Moments of the lengths of whole sequences, prompt and answer.
struct SequenceLengths {
  double mean = 0;
  /// Length of equal sequences whose attention costs as much for the same tokens: packed sequences
  /// attend to their own tokens alone, so that E[l^2] / E[l] counts.
  double equal = 0;

  bool operator==(const SequenceLengths&) const = default;
};

SequenceLengths sequence_lengths(double prompt_tokens, const std::vector<double>& answers);

/// Length that the longest of `group` of these is expected to have, drawn at random with
/// replacement: the sum of l_i (((n - i) / n)^group - ((n - i - 1) / n)^group). What a micro-batch
/// is padded to. Preconditions: the longest stands first; group >= 1.
double expected_longest(const std::vector<double>& lengths, double group);

}  // namespace scalemodel
