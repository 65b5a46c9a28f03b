#include "scalemodel/schedule/pass_program.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/pipeline_run.hpp"

namespace scalemodel::detail {

/// A clock that lists what it is asked for.
class PassRecorder {
 public:
  using Time = std::int32_t;  ///< a node

  /// `turns`: of the first sequence, two or three nodes each.
  PassRecorder(std::size_t classes, std::size_t turns)
      : known_(kPassTimes * classes + Lasting::kOthers), slots_(std::bit_ceil(8 * turns)) {
    nodes_.reserve(4 * turns);
    terms_.push_back({});
    nodes_.push_back({});
  }

  static Time start() { return PassProgram::kStart; }
  Time later(Time a, Time b) { return push({a, b, PassProgram::kNothing}); }
  Time add(Time from, int chunk, std::size_t time, double times) {
    const auto what = static_cast<std::int32_t>(kPassTimes * at(chunk) + time) + Lasting::kOthers;
    return push({from, from, term({what, times})});
  }
  Time hop(Time from, double times = 1) { return push({from, from, term({Lasting::kHop, times})}); }
  Time early(Time from) { return push({from, from, term({Lasting::kEarly, -1})}); }

  /// As few steps as say the same: what the ends do not depend on left out, and terms added to the
  /// step before where nothing else waits for it.
  void finish(std::span<const Time> ends, PassProgram& program) {
    const std::vector<int> uses = uses_up_to(ends);
    std::vector<std::int32_t> step_of(nodes_.size());
    program.steps_.push_back({});
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      if (uses[i] == 0) continue;
      const Node& node = nodes_[i];
      const std::int32_t a = step_of[at(node.a)], b = step_of[at(node.b)];
      if (node.term == PassProgram::kNothing || node.a == start() || uses[at(node.a)] > 1 ||
          program.steps_[at(a)].second != PassProgram::kNothing) {
        step_of[i] = static_cast<std::int32_t>(program.steps_.size());
        program.steps_.push_back({a, b, node.term, PassProgram::kNothing});
        continue;
      }
      step_of[i] = a;
      PassProgram::Step& before = program.steps_[at(a)];
      (before.first == PassProgram::kNothing ? before.first : before.second) = node.term;
    }
    for (const Time end : ends) program.last_.push_back(step_of[at(end)]);
    program.terms_ = std::move(terms_);
  }

 private:
  using Lasting = PassProgram::Lasting;
  using Term = PassProgram::Term;

  /// The later of two others, which are one where there is a term.
  struct Node {
    std::int32_t a = 0, b = 0, term = 0;

    bool operator==(const Node&) const = default;
  };

  /// The same node for what is the same.
  Time push(const Node& node) {
    Time& number = slots_[slot_of(node)];
    if (number != start()) return number;
    nodes_.push_back(node);
    const Time pushed = number = static_cast<Time>(nodes_.size()) - 1;
    if (2 * nodes_.size() >= slots_.size()) add_slots();
    return pushed;
  }

  std::size_t slot_of(const Node& node) const {
    const std::uint64_t mixed = static_cast<std::uint64_t>(node.a) << 32 ^
                                static_cast<std::uint64_t>(node.b) << 12 ^
                                static_cast<std::uint64_t>(node.term);
    std::size_t slot = mixed * 0x9e3779b97f4a7c15ULL >> 32;
    for (;; ++slot) {
      slot &= slots_.size() - 1;
      if (slots_[slot] == start() || nodes_[at(slots_[slot])] == node) return slot;
    }
  }

  void add_slots() {
    slots_.assign(2 * slots_.size(), start());
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      slots_[slot_of(nodes_[i])] = static_cast<Time>(i);
    }
  }

  std::int32_t term(const Term& wanted) {
    std::vector<std::int32_t>& alike = known_[at(wanted.what)];
    for (const std::int32_t known : alike) {
      if (terms_[at(known)] == wanted) return known;
    }
    terms_.push_back(wanted);
    return alike.emplace_back(static_cast<std::int32_t>(terms_.size()) - 1);
  }

  /// How many of the nodes that some ends depend on wait for each.
  std::vector<int> uses_up_to(std::span<const Time> ends) const {
    std::vector<int> uses(nodes_.size());
    for (const Time end : ends) ++uses[at(end)];
    for (std::size_t i = nodes_.size() - 1; i > 0; --i) {
      if (uses[i] == 0) continue;
      ++uses[at(nodes_[i].a)];
      if (nodes_[i].term == PassProgram::kNothing) ++uses[at(nodes_[i].b)];
    }
    return uses;
  }

  std::vector<Term> terms_;
  std::vector<std::vector<std::int32_t>> known_;  ///< terms, by what lasts
  std::vector<Node> nodes_;
  std::vector<Time> slots_;  ///< nodes by what they are, or the start
};

PassProgram::PassProgram(std::span<const PassSequence* const> sequences, StepTrafficKind traffic) {
  const PassSequence& first = *sequences.front();
  PassRecorder recorder(first.classes.size(), first.turns.size());
  std::vector<PassRecorder::Time> ends;
  ends.reserve(sequences.size());
  for (const PassSequence* sequence : sequences) {
    ends.push_back(PipelineRun(*sequence, recorder, traffic).end());
  }
  recorder.finish(ends, *this);
  name_what_lasts(first);
  sort();
  place();
}

/// Numbers what the terms name, and nothing else.
void PassProgram::name_what_lasts(const PassSequence& sequence) {
  std::vector<std::int32_t> number(kPassTimes * sequence.classes.size() + Lasting::kOthers);
  for (const Term& term : terms_) number[at(term.what)] = 1;
  number[Lasting::kHop] = number[Lasting::kEarly] = 1;
  for (std::size_t what = 0; what < number.size(); ++what) {
    if (number[what] == 0) continue;
    number[what] = static_cast<std::int32_t>(lasting_.size());
    std::vector<Share>& shares = lasting_.emplace_back().shares;
    if (what < Lasting::kOthers) continue;
    const std::size_t chunk = (what - Lasting::kOthers) / kPassTimes;
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      const double count = PassSequence::count(sequence.classes[chunk], part);
      if (count != 0) shares.push_back({part, (what - Lasting::kOthers) % kPassTimes, count});
    }
  }
  for (Term& term : terms_) term.what = number[at(term.what)];
}

/// Steps that wait for equally many others in a row come one after the other: none of them waits
/// for another, so that a processor works on several at once.
void PassProgram::sort() {
  std::vector<std::int32_t> row(steps_.size()), number(steps_.size());
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    row[i] = 1 + std::max(row[at(steps_[i].a)], row[at(steps_[i].b)]);
    if (at(row[i]) > rows_.size()) rows_.emplace_back();
    Row& own = rows_[at(row[i]) - 1];
    ++(steps_[i].second == kNothing ? own.of_one_term : own.of_two);
  }
  std::vector<Row> next(rows_.size());  // numbers of steps to come
  std::int32_t first = 1;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    next[i] = {first, first + rows_[i].of_one_term};
    first = next[i].of_two + rows_[i].of_two;
  }
  std::vector<Step> sorted(steps_.size());
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    Row& own = next[at(row[i]) - 1];
    number[i] = (step.second == kNothing ? own.of_one_term : own.of_two)++;
    sorted[at(number[i])] = {number[at(step.a)], number[at(step.b)], step.first, step.second};
  }
  steps_ = std::move(sorted);
  for (std::int32_t& last : last_) last = number[at(last)];
}

void PassProgram::place() {
  std::vector<std::size_t> wanted_until(steps_.size());
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    wanted_until[at(steps_[i].a)] = wanted_until[at(steps_[i].b)] = i;
  }
  for (const std::int32_t last : last_) wanted_until[at(last)] = steps_.size();
  wanted_until[at(kStart)] = steps_.size();
  std::vector<std::int32_t> place_of(steps_.size()), free;
  std::int32_t places = 1;  // the first holds the start
  const auto release = [&](std::int32_t step, std::size_t now) {
    if (wanted_until[at(step)] == now) free.push_back(place_of[at(step)]);
  };
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    PlacedStep placed{{place_of[at(step.a)], place_of[at(step.b)], step.first, step.second}, 0};
    release(step.a, i);
    if (step.b != step.a) release(step.b, i);
    if (free.empty()) free.push_back(places++);
    placed.to = place_of[i] = free.back();
    free.pop_back();
    placed_.push_back(placed);
  }
  for (const std::int32_t last : last_) last_places_.push_back(place_of[at(last)]);
  places_.resize(at(places));
  lane_terms_.resize(terms_.size());
  ends_.resize(steps_.size());
  term_lasts_.resize(terms_.size());
  lane_lasts_.resize(lasting_.size());
}

void PassProgram::run(const SampledTimes& times) {
  lane_lasts_[Lasting::kHop] = times.of[SampledTimes::kHop];
  lane_lasts_[Lasting::kEarly] = times.of[SampledTimes::kEarly];
  for (std::size_t i = Lasting::kOthers; i < lasting_.size(); ++i) {
    Lanes sum;
    for (const Share& s : lasting_[i].shares) {
      sum = plus(sum, times.of[SampledTimes::place(s.part, s.time)], s.count);
    }
    lane_lasts_[i] = sum;
  }
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    lane_terms_[i] = static_cast<float>(terms_[i].times) * lane_lasts_[at(terms_[i].what)];
  }
  Lanes* const places = places_.data();
  const Lanes* const terms = lane_terms_.data();
  places[kStart] = Lanes{};
  const PlacedStep* step = placed_.data();
  for (const Row& row : rows_) {
    for (const PlacedStep* const end = step + row.of_one_term; step != end; ++step) {
      places[step->to] = Lanes::later(places[step->a], places[step->b], terms[step->first]);
    }
    for (const PlacedStep* const end = step + row.of_two; step != end; ++step) {
      places[step->to] =
          Lanes::later(places[step->a], places[step->b], terms[step->first], terms[step->second]);
    }
  }
}

void PassProgram::trace(const Traced& lanes) {
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    for (std::size_t k = 0; k < kTraced; ++k) term_lasts_[i][k] = lane_terms_[i][lanes[k]];
  }
  const Ends* const ends = ends_.data();
  const Ends* const terms = term_lasts_.data();
  const auto later = [&](const Step& step) {
    const Ends first = ends[step.a], second = ends[step.b];
    return (second > first ? second : first) + terms[step.first];
  };
  const Step* step = steps_.data();
  Ends* next = ends_.data();
  for (const Row& row : rows_) {
    for (const Step* const last = step + row.of_one_term; step != last;) *++next = later(*++step);
    for (const Step* const last = step + row.of_two; step != last;) {
      ++step;
      *++next = later(*step) + terms[step->second];
    }
  }
}

/// From its end.
PipelinePath PassProgram::path(std::size_t sequence, std::size_t traced) {
  counts_.assign(terms_.size(), 0);
  for (std::int32_t i = last_[sequence]; i != kStart;) {
    const Step& step = steps_[at(i)];
    ++counts_[at(step.first)];
    ++counts_[at(step.second)];
    i = ends_[at(step.b)][traced] > ends_[at(step.a)][traced] ? step.b : step.a;
  }
  taken_.assign(lasting_.size(), 0);
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    taken_[at(terms_[i].what)] += counts_[i] * terms_[i].times;
  }
  PipelinePath path;
  path.hops = taken_[Lasting::kHop];
  path.early = taken_[Lasting::kEarly];
  for (std::size_t i = Lasting::kOthers; i < lasting_.size(); ++i) {
    for (const Share& s : lasting_[i].shares) path.parts[s.part][s.time] += s.count * taken_[i];
  }
  return path;
}

}  // namespace scalemodel::detail
