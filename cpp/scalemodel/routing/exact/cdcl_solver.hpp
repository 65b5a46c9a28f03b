// A solver of constraints over finite domains by conflict-driven clause learning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"

namespace scalemodel {

/// Every pair of a variable and a value is an atom, "the variable has the value"; a literal is an
/// atom or its negation. Propagation derives what the assigned literals imply: a variable has one
/// value, every clause has a true literal, and a derived class adds implications of its problem
/// (`append_implications`). A conflict is analysed back to the first unique implication point; the
/// solver learns the clause, minimised, and backtracks to the level at which the clause propagates.
/// The next decision takes the variable with the largest weight plus activity over the size of its
/// remaining domain, and the value that the variable had last.
///
/// Sources: clause learning, Marques-Silva and Sakallah, IEEE Trans. Comput. 48 (1999) 506-521; two
/// watched literals of a clause and decaying activities, Moskewicz et al., DAC 2001; intervals
/// between restarts, Luby, Sinclair and Zuckerman, Inf. Process. Lett. 47 (1993) 173-180.
class CdclSolver {
 public:
  /// Twice the number of an atom; one more for its negation.
  using Literal = std::int32_t;

  virtual ~CdclSolver() = default;
  CdclSolver(const CdclSolver&) = delete;
  CdclSolver& operator=(const CdclSolver&) = delete;

  /// Values of the decision variables; nothing where no solution exists, or where the solver found
  /// none within about `work` inspections of literals.
  std::optional<std::vector<std::int32_t>> solve(std::int64_t work, SplitMix& random);

 protected:
  /// One decision variable per entry of `weights`; every one of them takes one of `values` values.
  /// The `auxiliary` variables numbered after them take one value or none.
  CdclSolver(std::vector<double> weights, std::int32_t auxiliary, std::int32_t values);

  /// The literal "the variable has the value".
  Literal literal(std::int32_t variable, std::int32_t value) const {
    return 2 * (variable * values_ + value);
  }
  static Literal negation(Literal of) { return of ^ 1; }
  static bool is_positive(Literal of) { return of % 2 == 0; }
  std::int32_t variable_of(Literal of) const { return of / 2 / values_; }
  std::int32_t value_of(Literal of) const { return of / 2 % values_; }
  std::int32_t values() const { return values_; }

  bool is_true(Literal of) const {
    return truth_[of / 2] == (is_positive(of) ? Truth::yes : Truth::no);
  }
  bool is_false(Literal of) const {
    return truth_[of / 2] == (is_positive(of) ? Truth::no : Truth::yes);
  }
  /// One of the literals must be true.
  void add_clause(std::span<const Literal> clause) { store_clause(clause); }
  /// Records that no solution exists.
  void mark_infeasible() { feasible_ = false; }

  /// Appends the literals that `assigned` implies beyond clauses and single values.
  virtual void append_implications(Literal assigned, std::vector<Literal>& into) const = 0;

 private:
  /// Why an atom is assigned: a clause (from 0 on), one literal that implies it (from -2 down), or
  /// neither for decisions and facts (-1).
  using Reason = std::int32_t;
  enum class Truth : std::int8_t { unassigned, yes, no };
  enum class Status : std::int8_t { consistent, conflict };

  /// The literal of an assigned atom that is false.
  Literal false_literal(std::int32_t atom) const {
    return 2 * atom + (truth_[atom] == Truth::yes ? 1 : 0);
  }
  bool is_decision_variable(std::int32_t variable) const {
    return variable < static_cast<std::int32_t>(weights_.size());
  }

  Reason store_clause(std::span<const Literal> clause);
  void enqueue(Literal literal, Reason reason);
  Status propagate_implications(Literal assigned);
  Status propagate_clauses(Literal falsified);
  Status propagate();
  template <class Visit>
  void for_each_antecedent(Reason reason, std::int32_t atom, Visit visit) const;
  void mark_antecedent(std::int32_t atom);
  std::size_t analyse();
  void minimise();
  void backtrack(std::size_t level);
  bool decide(SplitMix& random);
  std::int32_t select_value(std::int32_t variable, SplitMix& random) const;

  std::int32_t values_;
  std::vector<double> weights_;  ///< by decision variable
  bool feasible_ = true;

  std::vector<Truth> truth_;         ///< by atom
  std::vector<std::int32_t> level_;  ///< by atom: number of decisions before its assignment
  std::vector<Reason> reason_;       ///< by atom
  std::vector<Literal> trail_;       ///< true literals in the order of assignment
  std::vector<std::size_t>
      level_start_;                  ///< by level above 0: position of its decision in `trail_`
  std::size_t propagated_ = 0;       ///< literals at the front of `trail_` that are propagated
  std::vector<std::int32_t> value_;  ///< by decision variable
  std::vector<std::int32_t> saved_value_;  ///< by decision variable: the value that it had last
  std::vector<std::int32_t> domain_size_;  ///< by decision variable: values not excluded

  std::vector<Literal> literals_;              ///< of all clauses, each clause with an end mark
  std::vector<std::size_t> first_;             ///< by clause: position of its first literal
  std::vector<std::vector<Reason>> watchers_;  ///< by literal: clauses that watch it
  std::vector<Literal> implied_;               ///< by the literal that is propagated

  Reason conflict_;  ///< a clause whose literals are all false; none: `conflicting_atoms_`
  std::array<std::int32_t, 2> conflicting_atoms_{};  ///< atoms that exclude each other
  std::vector<Literal> learnt_;                      ///< the clause of the last conflict
  std::vector<char> seen_;                           ///< by atom: part of the analysis
  std::vector<std::int32_t> seen_atoms_;
  std::int32_t unresolved_ = 0;   ///< seen atoms of the current level without their antecedents
  std::vector<double> activity_;  ///< by decision variable
  double activity_increment_ = 1;
  std::int64_t work_ = 0;  ///< inspections of literals so far
};

}  // namespace scalemodel
