// Sets of flows on planes such that none gets in another's way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"

namespace scalemodel {

/// What a set puts on one row; a row is what leaves, or what enters, one leaf.
struct RowLoad {
  std::int32_t row;
  double load;
};

/// Gives every set a plane such that no row of a plane carries more than its room, where two sets
/// either share a row of a plane or do not: planes are the colours of a graph whose edges join sets
/// that together are too much for some row.
///
/// A complete search that learns from its conflicts. Statements "this set is on that plane" are
/// true, false or open; what follows from those made so far is worked out at once: a set takes no
/// plane of a neighbour, every set has a plane, and a row with as many sets as planes, all in each
/// other's way, uses every plane. A contradiction becomes a clause, the fewest statements that led
/// to it as seen from the last decision, and the search returns to where that clause decides
/// something. Large sets that are in many conflicts and have few planes left are decided first, on
/// the plane they had before.
///
/// Tight covers need this: large sets leave room that few combinations fill, and moves that lower a
/// number of conflicts (tabu search) or plain backtracking end far from a solution time and again.
/// Sources: clauses from conflicts, Marques-Silva and Sakallah, IEEE Trans. Comput. 48 (1999)
/// 506-521; two watched statements of a clause and decaying activity, Moskewicz et al., DAC 2001;
/// lengths of runs, Luby, Sinclair and Zuckerman, Inf. Process. Lett. 47 (1993) 173-180.
class SetColouring {
 public:
  /// `room`: by row and plane; 0: the plane is closed to the row. Preconditions: rooms of a row are
  /// alike where they are not 0; at least one set.
  SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
               std::int32_t planes);

  /// Planes by set; nothing where there is no solution, or none was found within about `work`
  /// looks at statements.
  std::optional<std::vector<std::int32_t>> solve(std::int64_t work, SplitMix& random);

 private:
  /// A statement or its negation: twice the statement's number, one more where negated.
  using Literal = std::int32_t;
  /// Why a statement holds: nothing, a clause (from 0 on), or a true statement that excludes it
  /// (from -2 down).
  using Reason = std::int32_t;
  enum class Truth : std::int8_t { open, yes, no };
  enum class Status : std::int8_t { consistent, contradiction };
  struct RowSets {
    std::vector<std::int32_t> sets;
    bool exclusive = false;  ///< any two of them are too much
  };

  std::int32_t statement(std::int32_t set, std::int32_t plane) const {
    return set * planes_ + plane;
  }
  bool holds(Literal literal) const {
    return truth_[literal / 2] == (literal % 2 == 0 ? Truth::yes : Truth::no);
  }
  bool fails(Literal literal) const {
    return truth_[literal / 2] == (literal % 2 == 0 ? Truth::no : Truth::yes);
  }

  /// The negation of a true statement, or a false one.
  Literal opposite_of(std::int32_t of) const { return 2 * of + (truth_[of] == Truth::yes ? 1 : 0); }

  double load_on(std::int32_t set, std::int32_t row) const;
  void join(std::span<const RowSets> rows, std::span<const double> room);
  void state(std::span<const RowSets> rows, std::span<const double> room);
  void spread(std::span<const RowSets> rows);
  Reason require(std::span<const Literal> clause);
  void make(Literal literal, Reason reason);
  Status exclude(std::int32_t excluded, std::int32_t by);
  Status follow_plane(std::int32_t chosen);
  Status follow_clauses(Literal failed);
  Status follow();
  template <class Visit>
  void because(Reason reason, std::int32_t of, Visit visit) const;
  void blame(std::int32_t cause);
  std::size_t learn();
  void shorten();
  void undo(std::size_t decisions);
  bool decide(SplitMix& random);
  std::int32_t plane_for(std::int32_t set, SplitMix& random) const;

  std::span<const std::vector<RowLoad>> sets_;
  std::int32_t planes_;
  std::vector<std::vector<std::int32_t>> edges_;  ///< by set: those it shares no plane with
  bool possible_ = true;

  std::vector<Truth> truth_;            ///< by statement
  std::vector<std::int32_t> depth_;     ///< by statement: decisions made before
  std::vector<Reason> reason_;          ///< by statement
  std::vector<Literal> trail_;          ///< what holds, in order
  std::vector<std::size_t> decisions_;  ///< where on the trail
  std::size_t followed_ = 0;            ///< of the trail
  std::vector<std::int32_t> plane_;     ///< by set
  std::vector<std::int32_t> last_plane_;
  std::vector<std::int32_t> choices_;  ///< by set: planes not excluded

  std::vector<Literal> literals_;  ///< of all clauses, each with an end
  std::vector<std::size_t> first_;
  std::vector<std::vector<Reason>> watchers_;  ///< clauses, by one of two watched literals

  Reason broken_;  ///< a clause of which nothing holds; none: two statements exclude each other
  std::array<std::int32_t, 2> exclude_each_other_{};
  std::vector<Literal> learnt_;
  std::vector<char> blamed_;  ///< by statement
  std::vector<std::int32_t> all_blamed_;
  std::int32_t blamed_now_ = 0;   ///< since the last decision
  std::vector<double> activity_;  ///< by set
  double bump_ = 1;
  std::int64_t work_ = 0;
};

}  // namespace scalemodel
