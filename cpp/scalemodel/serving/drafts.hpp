// Speculative decoding: what proposes tokens, and how many of them are accepted.
#pragma once

#include <memory>
#include <vector>

#include "scalemodel/base/reason.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

/// Candidates of one depth that go on, at most.
inline constexpr int kMaxDraftWidth = 16;

/// Tokens proposed for every sequence of a step: a chain, or a tree of candidates.
struct DraftTree {
  int depth = 0;          ///< passes of the draft one behind the other, >= 0; 0: nothing is drafted
  int width = 1;          ///< candidates that go on at every depth, 1 to 16; 1: a chain
  int nodes = 0;          ///< candidates that are verified, the best of all; 0: `depth` x `width`
  double acceptance = 0;  ///< probability that the best candidate of the first depth is accepted
  double decay = 1;       ///< factor on it with every further depth, 0 to 1
  double power = 0;       ///< of the number of candidates, see `acceptance_of`
};

/// Candidates that a tree can have: `width` of the first depth, and `width` children of each of the
/// `width` that go on from every depth but the last.
double draft_candidates(const DraftTree& tree) noexcept;

/// Draft tokens of a sequence that a step verifies.
double verified_drafts(const DraftTree& tree) noexcept;

/// Probability that the `rank`-th best candidate (1 is the best) of a depth (1 is the first) is
/// accepted where its parent was:
///
///     A(1) = a decay^(depth - 1),   A(1) + ... + A(k) = 1 - (1 - A(1)) k^-power
///
/// None of the best k is accepted with a probability that falls as a power of k, and no candidate
/// is accepted more often than a better one. Source of the power law: Sequoia, arXiv 2402.12374,
/// section 3.1.
double acceptance_of(const DraftTree& tree, int depth, int rank) noexcept;

/// A candidate of a tree that is verified.
struct DraftNode {
  static constexpr int kRoot = -1;
  int parent = kRoot;   ///< its place among the nodes; kRoot: the token before the drafts
  int rank = 1;         ///< among the children of its parent, 1 is the best
  double accepted = 0;  ///< probability that it is accepted with all before it
};

/// The verified candidates, parents before their children.
std::vector<DraftNode> draft_nodes(const DraftTree& tree);

/// Tokens that a sequence gains by a step: its own, and the accepted ones of the tree, each with
/// the product of the probabilities along its path:
///
///     1 + sum over verified nodes of A(path)
///
/// The nodes are the most probable of those that beams of `width` reach. A chain whose acceptance
/// stays gains 1 + a + ... + a^k = (1 - a^(k+1))/(1 - a). Sources: Leviathan et al., arXiv
/// 2211.17192, equation 1; Medusa, arXiv 2401.10774, section 2.3.3 (sum over the nodes of a tree);
/// EAGLE-2, arXiv 2406.16858, section 4 (expansion of `width` candidates a depth, then a choice
/// among all). Trees here are the same at every step; EAGLE-2 chooses anew, which gains more.
double expected_tokens(const DraftTree& tree) noexcept;

/// A model of its own that proposes tokens.
struct DraftModel {
  Model model;
  ServingKernels kernels;
  int tp = 0;  ///< ranks that split each of its layers, of every data-parallel rank; 0: as served
};

/// What proposes tokens beside a served model: nothing, one more layer of its own (multi-token
/// prediction, EAGLE), or a model.
struct Draft {
  bool layer = false;
  std::shared_ptr<const DraftModel> model;
  double verified = 0;  ///< draft tokens of a sequence that a step verifies, >= 0

  bool any() const noexcept { return layer || model != nullptr; }
};

/// How a draft model is spread beside an instance: copies on its data-parallel ranks, no stages.
ServingLayout draft_layout(const DraftModel& draft, const ServingLayout& layout) noexcept;

/// `ok`, or why a draft cannot be spread so beside an instance.
Reason check_draft(const Draft& draft, const ServingLayout& layout,
                   const Cluster& cluster) noexcept;

}  // namespace scalemodel
