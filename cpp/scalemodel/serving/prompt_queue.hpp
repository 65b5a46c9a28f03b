// How prompts enter steps and wait for them, of one rate or of several side by side.
#pragma once

#include <cstdint>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/serving/prompt_steps.hpp"

namespace scalemodel {
namespace detail {

inline constexpr double kMaxFollowers = 0.95;
inline constexpr int kMaxPromptRounds = 40;
inline constexpr double kSettled = 1e-6, kHardlyEver = 1e-9, kEndless = 1e6;
inline constexpr double kNear = 1e-3;  ///< a secant's step away from what is next to exact

/// share^count of a whole count.
inline double whole_power(double share, double count) noexcept {
  double power = 1;
  for (auto left = static_cast<std::uint64_t>(count); left > 0; left /= 2) {
    if (left % 2 == 1) power *= share;
    share *= share;
  }
  return power;
}
template <std::size_t N>
Lanes<N> whole_power(Lanes<N> share, Lanes<N> count) noexcept {
  Lanes<N> power = 1, left = count;
  if (all(count == Lanes<N>{count[0]})) {  // steps hold as many prompts at any rate nearby
    for (auto same = static_cast<std::uint64_t>(count[0]); same > 0; same /= 2) {
      if (same % 2 == 1) power *= share;
      share *= share;
    }
    return power;
  }
  while (any(left > 0.5)) {
    const Lanes<N> half = floor(0.5 * left);
    power = select(left - 2.0 * half > 0.5, power * share, power);
    share *= share;
    left = half;
  }
  return power;
}

/// Sum of share^floor(s most) over s = 1, 2 ...: steps after the first where the number of prompts
/// is geometric, P(n + 1)/P(n) = share. Later steps of chunked prompts end anywhere.
template <class Number>
Number further_steps(Number share, Number most) noexcept {
  constexpr int kCounted = 4;
  constexpr double kNothing = 1e-6;
  Number sum = 0, term = 1, ended = 0;
  MaskOf<Number> counts = true;
  for (int step = 1; step < kCounted; ++step) {
    const Number end = floor(step * most + 1e-9);
    term *= whole_power(share, end - ended);
    ended = end;
    sum = select(counts, sum + term, sum);
    counts = counts & !(term < kNothing);
    if (!any(counts)) return sum;
  }
  const Number whole = floor(most);
  const Number row = whole_power(share, whole) * (1 - (most - whole) * (1 - share));
  return select(counts, sum + term * row / (1 - row), sum);
}

/// One prompt at a time: the more often another one follows, the more of the last chunk's step it
/// fills.
template <class Number>
StepMomentsOf<Number> one_at_a_time(const PromptStepsOf<Number>& s, HertzOf<Number> rate) noexcept {
  const SecondsOf<Number> each = s.alone / max(Number{0.1}, 1 + rate * (s.alone - s.more));
  const Number load = min(Number{kMaxLoad}, rate * each);
  const Number chunks = s.chunks_of(load);
  StepMomentsOf<Number> m;
  // An arrival finds the rest of a step and what is left of the prompt after it: of one that
  // follows others as much as of any length, of the first of a row whole chunks.
  const Number whole = s.chunks - 1;
  const Number after = whole * (1 - 0.5 * (whole + 1) * s.most);
  const SecondsOf<Number> first = select(whole > 0, (s.alone - s.last) / whole, Seconds{});
  const auto squares =
      (1 - load) * (whole * first * first + s.last * s.last + 2 * after * first * s.more) +
      load * s.more * s.more;
  m.length_biased = rate * squares + (1 - load) * s.decode_only;
  const HertzOf<Number> decode_only = (1 - load) / s.decode_only, busy = load / each * chunks;
  m.busy = busy / (busy + decode_only);
  m.decode_interval = 1 / (s.mixed ? busy + decode_only : decode_only);
  m.each = each - (s.mixed ? chunks : Number{0}) * s.decode_only;
  m.load = load;
  return m;
}

/// Chunked prompts in a row of full steps: the j-th ends j/most steps after the first began.
template <class Number>
struct StepRow {
  Number room = 0;  ///< that its last step leaves to those behind, in steps
  Number done = 0;  ///< of it, before its last step
};

/// Means over the prompts from the `first` on, each of them followed with probability `load`.
template <class Number>
StepRow<Number> later_in_row(Number first, Number load, Number most) noexcept {
  constexpr int kCounted = 6;
  StepRow<Number> row;
  Number share = 1 - load, left = 1;
  for (int place = 0; place < kCounted; ++place) {
    const Number end = (first + place) / most, room = ceil(end - 1e-9) - end;
    row.room += share * room;
    row.done += share * max(Number{0}, 1 - most * (1 - room));
    left = left - share;
    share *= load;
  }
  row.room += 0.5 * left;  // further on, steps end anywhere
  row.done += left * 0.5 / max(Number{1}, most);
  return row;
}

/// The share of steps with a prompt decides on the mean step and follows from it: no prompt came
/// during a decode-only step, or during a longer one.
template <class Number>
StepMomentsOf<Number> mixed_steps(const PromptStepsOf<Number>& s, HertzOf<Number> rate,
                                  Number near) noexcept {
  const SecondsOf<Number> fixed = s.alone - s.more - s.decode_only;
  // What every prompt adds brings prompts of its own; what steps with any cost more is left.
  const Number grown = max(Number{1 - kMaxLoad}, 1 - rate * s.more);
  const Number after_decode_only = exp(-(rate * s.decode_only));
  StepMomentsOf<Number> m;
  const auto become = [&](Number busy) {
    m.busy = clamp(busy, kHardlyEver, kMaxLoad);
    m.decode_interval =
        clamp((s.decode_only + m.busy * fixed) / grown, s.decode_only, max(s.decode_only, s.full));
  };
  Number busy = select(near > 0, near, 1 - after_decode_only), none = 1, last = 0, last_found = 0;
  MaskOf<Number> moves = true;
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    become(busy);
    const Number prompts = rate * m.decode_interval;
    const SecondsOf<Number> longer = fixed + prompts / m.busy * s.more;
    none = select(moves, (1 - m.busy * (1 - exp(-(rate * longer)))) * after_decode_only, none);
    // Prompts of a step without room for them fill the next ones.
    const Number some = min(1 - none, prompts);
    const Number found = some * (1 + further_steps(1 - some / prompts, s.most));
    // Newton's step; from then on the line through the last two.
    const MaskOf<Number> first = (m.busy == last) | (round == 0);
    Number slope = 0;
    if (any(first)) slope = none * (rate * fixed) / grown;
    if (!all(first)) slope = select(first, slope, (found - last_found) / (m.busy - last));
    last = m.busy;
    last_found = found;
    const Number next = last + (found - last) / (1 - min(Number{0.9}, slope));
    busy = select(moves, next, busy);
    moves = moves & (abs(next - last) >= kNear * last);
    if (!any(moves)) break;
  }
  become(busy);
  const Number prompts = rate * m.decode_interval, each = prompts / m.busy;
  const SecondsOf<Number> longer = fixed + each * s.more;
  // Numbers of prompts vary as Poisson's law says, as far as there is room.
  const auto between = m.busy * (1 - m.busy) * longer * longer;
  const Number free = prompts + prompts * (prompts - each);
  const Number room = max(Number{0}, m.busy * (each - 1) * (s.most - each));
  const Number squared = max(Number{1 - kMaxLoad}, 1 - (rate * s.more) * (rate * s.more));
  const auto unbound = (between + free * s.more * s.more) / squared;
  const auto variance = max(between, min(between + room * s.more * s.more, unbound));
  m.length_biased = m.decode_interval + variance / m.decode_interval;
  m.each = s.more + max(none, 1 / s.most) * fixed;
  return m;
}

/// Steps of prompts after a decode-only one, each with what came during the one before and what
/// that had no room for.
template <class Number>
StepMomentsOf<Number> prompts_first(const PromptStepsOf<Number>& s, HertzOf<Number> rate) noexcept {
  const SecondsOf<Number> fixed = s.alone - s.more;
  const Number whole = floor(s.most), gap = exp(-(rate * s.more)) - 1;
  Number reached = 1;  // probability that this step of prompts is run
  Number count = 0;
  SecondsOf<Number> time = s.decode_only, length = s.decode_only;
  auto squares = s.decode_only * s.decode_only;
  Number arrived = rate * s.decode_only, none = exp(-arrived);  // no prompt waits at its start
  MaskOf<Number> goes_on = true;
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    reached *= 1 - none;
    // Their number is taken as geometric: beyond the last place it is as much again.
    const Number waiting = arrived / (1 - none);
    const Number beyond = whole_power(1 - 1 / waiting, whole);
    const Number left = beyond * (waiting - (s.most - whole));
    const Number prompts = waiting - left;
    const SecondsOf<Number> last = length;
    length = select(goes_on, fixed + prompts * s.more, length);
    const Number varied =
        max(Number{0}, min(prompts * (1 + arrived - prompts), (prompts - 1) * (s.most - prompts)));
    // exp(-rate length) over a Poisson number of prompts, given that there are some.
    const Number idle = exp(-arrived);
    const Number spread = (exp(arrived * gap) - idle) / (1 - idle);
    arrived = left + rate * length;
    none = clamp((1 - beyond) * exp(-(rate * fixed)) * spread, kHardlyEver, 1 - kHardlyEver);
    // Once lengths repeat, so does everything: a geometric series is left.
    const MaskOf<Number> repeats =
        (abs(length / last - 1) < 1e-3) | (round + 1 == kMaxPromptRounds);
    const Number runs = select(goes_on, select(repeats, reached / none, reached), Number{0});
    count += runs;
    time += runs * length;
    squares = squares + runs * (length * length + varied * (s.more * s.more));
    goes_on = goes_on & !(repeats | (reached < 1e-4));
    if (!any(goes_on)) break;
  }
  StepMomentsOf<Number> m;
  m.decode_interval = time;
  m.length_biased = squares / time;
  m.busy = count / (1 + count);
  m.each = s.more + max(exp(-(rate * length)), 1 / s.most) * fixed;
  return m;
}

/// The wait where a step takes one prompt or a chunk of one.
template <class Number>
PromptWaitOf<Number> one_after_another(const PromptStepsOf<Number>& s,
                                       const StepMomentsOf<Number>& m,
                                       HertzOf<Number> rate) noexcept {
  PromptWaitOf<Number> found;
  found.wait = 0.5 * m.length_biased / (1 - min(Number{kMaxLoad}, rate * s.more));
  found.full_steps = rate * found.wait / s.most;
  // The last step has room for those behind if somebody came since; else it is shorter.
  const Number first_room = s.chunked ? s.chunks - 1 / s.most : Number{0};
  const Number later_room = s.chunked ? later_in_row(Number{2}, m.load, s.most).room : Number{0};
  const Number room = (1 - m.load) * first_room + m.load * later_room;
  const SecondsOf<Number> drop =
      select(first_room > kHardlyEver, (s.full - s.last) / first_room, Seconds{});
  const SecondsOf<Number> came = found.wait + s.alone - s.last;
  const Number followed = 1 - exp(-(rate * came));
  found.own = s.full - (1 - followed) * room * drop;
  found.computed = (1 - m.load) * (s.alone + followed * (s.full - s.last)) +
                   m.load * (s.more + later_room * (s.full - (1 - followed) * drop));
  // In so long those came that fill it.
  const SecondsOf<Number> begun =
      room * s.most * select(rate * came > kHardlyEver, followed / rate, came);
  found.behind = max(SecondsOf<Number>{}, found.wait + found.computed - found.own - begun);
  return found;
}

/// The wait where a step takes several. Chunked prompts ahead count as what is left of them, and
/// the first one beyond a step begins a row.
template <class Number>
PromptWaitOf<Number> several_at_once(const PromptStepsOf<Number>& s, const StepMomentsOf<Number>& m,
                                     HertzOf<Number> rate) noexcept {
  PromptWaitOf<Number> found;
  const SecondsOf<Number> half = 0.5 * m.length_biased;
  const Number places = floor(s.most);
  Number ahead = rate * half;
  StepRow<Number> row;
  if (s.chunked) {
    const auto fill = whole_power(ahead / (1 + ahead), places) > kSettled;
    if (any(fill)) {
      row = later_in_row(places + 1, min(Number{kMaxFollowers}, rate * s.full / s.most), s.most);
      row = {select(fill, row.room, Number{0}), select(fill, row.done, Number{0})};
    }
  }
  MaskOf<Number> moves = true;
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    const Number before = ahead;
    Number begun = 0, full_steps = 0;
    if (s.chunked) {
      const Number beyond = whole_power(ahead / (1 + ahead), places);
      full_steps = beyond * ((places + 1 + ahead) / s.most + row.room - 1);
      begun = beyond * row.done;
    } else {
      full_steps = further_steps(ahead / (1 + ahead), s.most);
    }
    found.full_steps = select(moves, full_steps, found.full_steps);
    ahead = select(moves, rate * (half + (full_steps - begun) * s.full), ahead);
    moves = moves & (abs(ahead - before) >= kSettled * before) & (ahead <= kEndless);
    if (!any(moves)) break;
  }
  found.wait = half + found.full_steps * s.full;
  // Those behind find the places that those ahead have left in the step.
  const Number beside = ahead - s.most * found.full_steps, came = rate * found.wait;
  const Number left = max(Number{0}, s.most - 1 - beside);
  constexpr double kAllFit = 14;  // e-folds
  const auto some_wait = left < kAllFit * (1 + came);
  if (any(some_wait)) {
    found.behind = select(some_wait, pow(came / (1 + came), left) * found.wait, Seconds{});
  }
  found.own = s.alone + (beside + rate * (found.wait - found.behind)) * s.more;
  found.computed = found.own;
  return found;
}

}  // namespace detail

template <class Number>
StepMomentsOf<Number> step_moments(const PromptStepsOf<Number>& s, HertzOf<Number> rate,
                                   std::type_identity_t<Number> near) noexcept {
  return outlined<Number>([&] {
    const auto idle = rate * s.full < detail::kHardlyEver, single = s.most <= 1;
    const StepMomentsOf<Number> never{s.decode_only, s.decode_only, s.more, Number{0}, Number{0}};
    if (all(idle)) return never;
    StepMomentsOf<Number> found;
    if (!all(single)) {
      found = s.mixed ? detail::mixed_steps(s, rate, near) : detail::prompts_first(s, rate);
    }
    if (any(single)) assign_where(single, found, detail::one_at_a_time(s, rate));
    if (any(idle)) assign_where(idle, found, never);
    return found;
  });
}

template <class Number>
PromptWaitOf<Number> prompt_wait(const PromptStepsOf<Number>& s, const StepMomentsOf<Number>& m,
                                 HertzOf<Number> rate) noexcept {
  return outlined<Number>([&] {
    const auto single = s.most <= 1;
    PromptWaitOf<Number> found;
    if (!all(single)) found = detail::several_at_once(s, m, rate);
    if (any(single)) assign_where(single, found, detail::one_after_another(s, m, rate));
    return found;
  });
}

template <class Number>
Number followers(const StepMomentsOf<Number>& m, HertzOf<Number> rate) noexcept {
  return min(Number{detail::kMaxFollowers}, rate * m.each);
}

template <class Number>
SecondsOf<Number> time_of_steps(const PromptStepsOf<Number>& s, const StepMomentsOf<Number>& m,
                                const PromptWaitOf<Number>& wait, HertzOf<Number> rate,
                                double count) noexcept {
  const SecondsOf<Number> left = wait.behind + wait.own;
  const SecondsOf<Number> ordinary =
      s.mixed ? (1 + wait.full_steps) * m.decode_interval : s.decode_only;
  const Number g = followers(m, rate);
  SecondsOf<Number> excess = left - ordinary;
  if (s.mixed) excess = max(SecondsOf<Number>{}, excess);
  const Number first = rate * excess, prompts = first / (1 - g);
  // Where steps go on beside prompts, no more of these enter than there are steps for.
  const Number places = count * (1 - m.busy) * s.most;
  Number entering = prompts, starting = 1;
  const auto some = prompts > 0;
  if (s.mixed && any(some)) {
    entering = select(some, prompts * (1 - exp(-places / prompts)), prompts);
  }
  // Those that came during one step share the next, and what any step of prompts costs more.
  const auto shared = (s.most > 1) & (first > detail::kHardlyEver);
  if (s.mixed && any(shared)) {
    const Number later = exp(rate * max(SecondsOf<Number>{}, s.alone - s.decode_only));
    starting = select(shared, min(Number{1}, (1 - exp(-first)) * later / prompts), Number{1});
  }
  const SecondsOf<Number> each = s.more + starting * (m.each - s.more);
  return max(count * s.decode_only, count * m.decode_interval + entering * each);
}

}  // namespace scalemodel
