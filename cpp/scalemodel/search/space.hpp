// Which strategies are looked at: values of every knob and the rules between them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/search/relation.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// Strategies that agree with `values` in every field of `fields` (a bit per field) are left out.
struct Exclusion {
  Strategy values;
  std::uint32_t fields = 0;

  bool operator==(const Exclusion&) const = default;
};

template <class Fields>
struct ValuesOf;
template <class... M>
struct ValuesOf<const FieldTable<Field<Strategy, M>...>> {
  using type = std::tuple<std::vector<M>...>;
};

/// A declarative space of strategies: a list of values for every field of Strategy, in the order of
/// its field table. An empty list stands for the field's default. Of the product of all lists it
/// holds the legal strategies that keep every relation and match no exclusion; a knob that changes
/// nothing where it stands keeps its default there, so that no strategy occurs twice.
struct Space {
  using Values = ValuesOf<decltype(RecordOf<Strategy>::fields)>::type;

  Values values;
  std::vector<Relation> relations;
  std::vector<Exclusion> exclusions;
  /// Fields (a bit each) that take all of their values even where they change nothing.
  std::uint32_t redundant = 0;
  /// Instead of a list of placements: every axis of more than one rank is assigned to an inner or
  /// an outer network tier; the inner ones are placed first, each tier in the order tp, pp, dp.
  /// Assignments to the same order are one placement, unless `redundant` holds it.
  bool tiers = false;

  template <auto Member>
  const auto& of() const {
    return std::get<field_index(Member)>(values);
  }
  bool operator==(const Space&) const = default;
};

/// Knobs without effect back at their defaults: equal for strategies that mean the same.
Strategy canonical(const Strategy& strategy, const Model& model, const Cluster& cluster,
                   const Task& task);

/// What `Freedom` speaks of, in the order of rows: option groups that leave nothing else open share
/// one list.
struct OptionMembers {
  std::vector<Strategy> rows;   ///< no other field of them means anything
  std::vector<Change> changes;  ///< of each row from the one before it
  Freedom freedom;
};

/// Rows of an option list that share everything but what `Freedom` speaks of.
struct OptionGroup {
  Strategy leader;            ///< the first of them
  std::uint32_t members = 0;  ///< number of their list
  std::uint64_t begin = 0, end = 0;
};

/// Neighbouring option groups [begin, end) of one placement.
struct PlacedRun {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t placement = 0;  ///< its number in the list of options
  /// Runs of one kind differ in nothing but their placement.
  std::uint32_t kind = 0;
  Freedom freedom;                  ///< of all its groups together
  bool recomputes_in_part = false;  ///< a group of it recomputes some layers of a stage
};

/// Everything beside the degrees, for the points where the same knobs matter. Holds a strategy per
/// group, not the rows.
struct Options {
  std::vector<OptionGroup> groups;
  std::vector<OptionMembers> members;
  std::vector<PlacedRun> runs;  ///< of all groups, in their order
  std::vector<Placement> placements;
  std::uint32_t kinds = 0;  ///< of runs

  std::uint64_t size() const noexcept { return groups.empty() ? 0 : groups.back().end; }
  const OptionMembers& members_of(const OptionGroup& group) const noexcept {
    return members[group.members];
  }
  const Freedom& freedom(const OptionGroup& group) const noexcept {
    return members_of(group).freedom;
  }
  /// Precondition: row < size().
  const OptionGroup& group_of(std::uint64_t row) const noexcept;
  Strategy at(std::uint64_t row) const noexcept;
};

/// Degrees, micro-batch and schedule; the options complete them.
struct Point {
  Strategy degrees;
  std::uint32_t options = 0;
  std::uint64_t first_row = 0;
};

/// What kept combinations of listed values out of a space.
enum class Rule : std::uint8_t { strategy, relation, exclusion };

template <>
struct EnumNames<Rule> {
  static constexpr std::string_view what = "rule";
  static constexpr std::array<std::string_view, 3> names{"strategy", "relation", "exclusion"};
};

/// Combinations that one rule kept out.
struct Refusal {
  Rule rule = Rule::strategy;
  Reason reason = Reason::ok;  ///< of the strategy
  std::uint32_t relation = 0;  ///< number of the relation
  Strategy first;              ///< of these combinations
  std::uint64_t combinations = 0;
};

/// The legal strategies of a space, numbered. Holds the points and the option groups per kind of
/// point, not the rows.
class Enumeration {
 public:
  Enumeration(const Space& space, const Model& model, const Cluster& cluster, const Task& task);

  /// Equal for copies of the same enumeration alone, and never zero.
  std::uint64_t number() const noexcept { return number_; }
  std::uint64_t size() const noexcept { return size_; }
  std::span<const Point> points() const noexcept { return points_; }
  const Options& options(const Point& point) const noexcept { return options_[point.options]; }
  std::uint64_t groups() const noexcept { return groups_; }

  /// Combinations of degrees, micro-batches and schedules without a row, by the first rule that
  /// each breaks.
  std::span<const Refusal> refusals() const noexcept { return refusals_; }

  /// The point that holds a row. Precondition: row < size().
  std::size_t point_of(std::uint64_t row) const noexcept;
  /// The row nearest to one, the sooner of two, with which a point begins, if it is no more than
  /// `most` rows from it; else the row itself. Precondition: row < size().
  std::uint64_t cut_near(std::uint64_t row, std::uint64_t most) const noexcept;
  /// First rows of `count` parts of nearly equal size, then the size. A part begins up to a quarter
  /// of a part sooner or later where that is between points. Precondition: count > 0.
  std::vector<std::uint64_t> parts(std::uint64_t count) const;
  /// Strategy number `row`.
  Strategy at(std::uint64_t row) const noexcept;

 private:
  std::uint64_t number_;
  std::vector<Point> points_;
  std::vector<Options> options_;
  std::vector<Refusal> refusals_;
  std::uint64_t size_ = 0, groups_ = 0;
};

/// `options` with the degrees of `point`.
Strategy joined(const Strategy& point, const Strategy& options) noexcept;

}  // namespace scalemodel
