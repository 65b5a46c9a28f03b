// Values for variables such that all clauses hold: a complete search that learns from conflicts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"

namespace scalemodel {

/// Statements "this variable has that value" are true, false or open. What follows from those made
/// so far is worked out at once: a variable has one value, clauses have a literal that holds, and
/// what a problem adds itself (`follow_from`). A contradiction becomes a clause, the fewest
/// statements that led to it as seen from the last decision, and the search returns to where that
/// clause decides something. Variables that weigh much, are in many conflicts and have few values
/// left are decided first, on the value they had before.
///
/// Sources: clauses from conflicts, Marques-Silva and Sakallah, IEEE Trans. Comput. 48 (1999)
/// 506-521; two watched literals of a clause and decaying activity, Moskewicz et al., DAC 2001;
/// lengths of runs, Luby, Sinclair and Zuckerman, Inf. Process. Lett. 47 (1993) 173-180.
class ClauseSearch {
 public:
  /// A statement or its negation: twice the statement's number, one more where negated.
  using Literal = std::int32_t;

  virtual ~ClauseSearch() = default;
  ClauseSearch(const ClauseSearch&) = delete;
  ClauseSearch& operator=(const ClauseSearch&) = delete;

  /// Values of the variables that need one; nothing where there is no solution, or none was found
  /// within about `work` looks at statements.
  std::optional<std::vector<std::int32_t>> solve(std::int64_t work, SplitMix& random);

 protected:
  /// `weights` of variables that need a value; `helpers` more have one or none, and are numbered
  /// after them.
  ClauseSearch(std::vector<double> weights, std::int32_t helpers, std::int32_t values);

  std::int32_t statement(std::int32_t variable, std::int32_t value) const {
    return variable * values_ + value;
  }
  std::int32_t values() const { return values_; }
  bool excluded(std::int32_t of) const { return truth_[of] == Truth::no; }
  /// Adds a clause: one of its literals holds.
  void require(std::span<const Literal> clause) { add(clause); }
  /// There is no solution.
  void give_up() { possible_ = false; }

  /// Appends what must hold where `literal` does, beyond clauses and that variables have one value.
  virtual void follow_from(Literal literal, std::vector<Literal>& into) const = 0;

 private:
  /// Why a statement holds: nothing, a clause (from 0 on), or a literal that implies it (from -2
  /// down).
  using Reason = std::int32_t;
  enum class Truth : std::int8_t { open, yes, no };
  enum class Status : std::int8_t { consistent, contradiction };

  bool holds(Literal literal) const {
    return truth_[literal / 2] == (literal % 2 == 0 ? Truth::yes : Truth::no);
  }
  bool fails(Literal literal) const {
    return truth_[literal / 2] == (literal % 2 == 0 ? Truth::no : Truth::yes);
  }
  /// The literal of a known statement that does not hold.
  Literal opposite_of(std::int32_t of) const { return 2 * of + (truth_[of] == Truth::yes ? 1 : 0); }
  bool needs_value(std::int32_t variable) const {
    return variable < static_cast<std::int32_t>(weights_.size());
  }

  Reason add(std::span<const Literal> clause);
  void make(Literal literal, Reason reason);
  Status follow_directly(Literal literal);
  Status follow_clauses(Literal failed);
  Status follow();
  template <class Visit>
  void because(Reason reason, std::int32_t of, Visit visit) const;
  void blame(std::int32_t cause);
  std::size_t learn();
  void shorten();
  void undo(std::size_t decisions);
  bool decide(SplitMix& random);
  std::int32_t value_for(std::int32_t variable, SplitMix& random) const;

  std::int32_t values_;
  std::vector<double> weights_;
  bool possible_ = true;

  std::vector<Truth> truth_;            ///< by statement
  std::vector<std::int32_t> depth_;     ///< by statement: decisions made before
  std::vector<Reason> reason_;          ///< by statement
  std::vector<Literal> trail_;          ///< what holds, in order
  std::vector<std::size_t> decisions_;  ///< where on the trail
  std::size_t followed_ = 0;            ///< of the trail
  std::vector<std::int32_t> value_;     ///< by variable that needs one
  std::vector<std::int32_t> last_value_;
  std::vector<std::int32_t> choices_;  ///< by variable that needs one: values not excluded

  std::vector<Literal> literals_;  ///< of all clauses, each with an end
  std::vector<std::size_t> first_;
  std::vector<std::vector<Reason>> watchers_;  ///< clauses, by one of two watched literals
  std::vector<Literal> implied_;

  Reason broken_;  ///< a clause of which nothing holds; none: two statements exclude each other
  std::array<std::int32_t, 2> exclude_each_other_{};
  std::vector<Literal> learnt_;
  std::vector<char> blamed_;  ///< by statement
  std::vector<std::int32_t> all_blamed_;
  std::int32_t blamed_now_ = 0;   ///< since the last decision
  std::vector<double> activity_;  ///< by variable that needs a value
  double bump_ = 1;
  std::int64_t work_ = 0;
};

}  // namespace scalemodel
