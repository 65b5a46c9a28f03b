#include "scalemodel/serving/prompt_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace scalemodel {
namespace {

constexpr double kMaxFollowers = 0.95;
constexpr int kMaxPromptRounds = 40;
constexpr double kSettled = 1e-6, kHardlyEver = 1e-9, kEndless = 1e6;
constexpr double kNear = 1e-3;  ///< a secant's step away from what is next to exact

/// share^count of a whole count.
double whole_power(double share, double count) noexcept {
  double power = 1;
  for (auto left = static_cast<std::uint64_t>(count); left > 0; left /= 2) {
    if (left % 2 == 1) power *= share;
    share *= share;
  }
  return power;
}

/// Sum of share^floor(s most) over s = 1, 2 ...: steps after the first where the number of prompts
/// is geometric, P(n + 1)/P(n) = share. Later steps of chunked prompts end anywhere.
double further_steps(double share, double most) noexcept {
  constexpr int kCounted = 4;
  constexpr double kNothing = 1e-6;
  double sum = 0, term = 1, ended = 0;
  for (int step = 1; step < kCounted; ++step) {
    const double end = std::floor(step * most + 1e-9);
    term *= whole_power(share, end - ended);
    ended = end;
    sum += term;
    if (term < kNothing) return sum;
  }
  const double whole = std::floor(most);
  const double row = whole_power(share, whole) * (1 - (most - whole) * (1 - share));
  return sum + term * row / (1 - row);
}

/// One prompt at a time: the more often another one follows, the more of the last chunk's step it
/// fills.
StepMoments one_at_a_time(const PromptSteps& s, Hertz rate) noexcept {
  const Seconds each = s.alone / std::max(0.1, 1 + rate * (s.alone - s.more));
  const double load = std::min(kMaxLoad, rate * each);
  const double chunks = s.chunks_of(load);
  StepMoments m;
  // An arrival finds the rest of a step and what is left of the prompt after it: of one that
  // follows others as much as of any length, of the first of a row whole chunks.
  const double whole = s.chunks - 1;
  const double after = whole * (1 - 0.5 * (whole + 1) * s.most);
  const Seconds first = whole > 0 ? (s.alone - s.last) / whole : Seconds{};
  const auto squares =
      (1 - load) * (whole * first * first + s.last * s.last + 2 * after * first * s.more) +
      load * s.more * s.more;
  m.length_biased = rate * squares + (1 - load) * s.decode_only;
  const auto decode_only = (1 - load) / s.decode_only, busy = load / each * chunks;
  m.busy = busy / (busy + decode_only);
  m.decode_interval = 1 / (s.mixed ? busy + decode_only : decode_only);
  m.each = each - (s.mixed ? chunks : 0.0) * s.decode_only;
  m.load = load;
  return m;
}

/// Chunked prompts in a row of full steps: the j-th ends j/most steps after the first began.
struct StepRow {
  double room = 0;  ///< that its last step leaves to those behind, in steps
  double done = 0;  ///< of it, before its last step
};

/// Means over the prompts from the `first` on, each of them followed with probability `load`.
StepRow later_in_row(double first, double load, double most) noexcept {
  constexpr int kCounted = 6;
  StepRow row;
  double share = 1 - load, left = 1;
  for (int place = 0; place < kCounted; ++place) {
    const double end = (first + place) / most, room = std::ceil(end - 1e-9) - end;
    row.room += share * room;
    row.done += share * std::max(0.0, 1 - most * (1 - room));
    left -= share;
    share *= load;
  }
  row.room += 0.5 * left;  // further on, steps end anywhere
  row.done += left * 0.5 / std::max(1.0, most);
  return row;
}

/// The share of steps with a prompt decides on the mean step and follows from it: no prompt came
/// during a decode-only step, or during a longer one.
StepMoments mixed_steps(const PromptSteps& s, Hertz rate, double near) noexcept {
  const Seconds fixed = s.alone - s.more - s.decode_only;
  // What every prompt adds brings prompts of its own; what steps with any cost more is left.
  const double grown = std::max(1 - kMaxLoad, 1 - rate * s.more);
  const double after_decode_only = std::exp(-(rate * s.decode_only));
  StepMoments m;
  const auto become = [&](double busy) {
    m.busy = std::clamp(busy, kHardlyEver, kMaxLoad);
    m.decode_interval = std::clamp((s.decode_only + m.busy * fixed) / grown, s.decode_only,
                                   max(s.decode_only, s.full));
  };
  double busy = near > 0 ? near : 1 - after_decode_only, none = 1, last = 0, last_found = 0;
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    become(busy);
    const double prompts = rate * m.decode_interval;
    const Seconds longer = fixed + prompts / m.busy * s.more;
    none = (1 - m.busy * (1 - std::exp(-(rate * longer)))) * after_decode_only;
    // Prompts of a step without room for them fill the next ones.
    const double some = std::min(1 - none, prompts);
    const double found = some * (1 + further_steps(1 - some / prompts, s.most));
    // Newton's step; from then on the line through the last two.
    const double slope = round == 0 || m.busy == last ? none * (rate * fixed) / grown
                                                      : (found - last_found) / (m.busy - last);
    last = m.busy;
    last_found = found;
    busy = last + (found - last) / (1 - std::min(0.9, slope));
    if (std::abs(busy - last) < kNear * last) break;
  }
  become(busy);
  const double prompts = rate * m.decode_interval, each = prompts / m.busy;
  const Seconds longer = fixed + each * s.more;
  // Numbers of prompts vary as Poisson's law says, as far as there is room.
  const auto between = m.busy * (1 - m.busy) * longer * longer;
  const double free = prompts + prompts * (prompts - each);
  const double room = std::max(0.0, m.busy * (each - 1) * (s.most - each));
  const double squared = std::max(1 - kMaxLoad, 1 - (rate * s.more) * (rate * s.more));
  const auto unbound = (between + free * s.more * s.more) / squared;
  const auto variance = max(between, min(between + room * s.more * s.more, unbound));
  m.length_biased = m.decode_interval + variance / m.decode_interval;
  m.each = s.more + std::max(none, 1 / s.most) * fixed;
  return m;
}

/// Steps of prompts after a decode-only one, each with what came during the one before and what
/// that had no room for.
StepMoments prompts_first(const PromptSteps& s, Hertz rate) noexcept {
  const Seconds fixed = s.alone - s.more;
  const double whole = std::floor(s.most), gap = std::exp(-(rate * s.more)) - 1;
  double reached = 1;  // probability that this step of prompts is run
  double count = 0;
  Seconds time = s.decode_only, length = s.decode_only;
  auto squares = s.decode_only * s.decode_only;
  double arrived = rate * s.decode_only, none = std::exp(-arrived);  // no prompt waits at its start
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    reached *= 1 - none;
    // Their number is taken as geometric: beyond the last place it is as much again.
    const double waiting = arrived / (1 - none);
    const double beyond = whole_power(1 - 1 / waiting, whole);
    const double left = beyond * (waiting - (s.most - whole));
    const double prompts = waiting - left;
    const Seconds last = length;
    length = fixed + prompts * s.more;
    const double varied = std::max(
        0.0, std::min(prompts * (1 + arrived - prompts), (prompts - 1) * (s.most - prompts)));
    // exp(-rate length) over a Poisson number of prompts, given that there are some.
    const double idle = std::exp(-arrived);
    const double spread = (std::exp(arrived * gap) - idle) / (1 - idle);
    arrived = left + rate * length;
    none =
        std::clamp((1 - beyond) * std::exp(-(rate * fixed)) * spread, kHardlyEver, 1 - kHardlyEver);
    // Once lengths repeat, so does everything: a geometric series is left.
    const bool repeats = std::abs(length / last - 1) < 1e-3 || round + 1 == kMaxPromptRounds;
    const double runs = repeats ? reached / none : reached;
    count += runs;
    time += runs * length;
    squares = squares + runs * (length * length + varied * (s.more * s.more));
    if (repeats || reached < 1e-4) break;
  }
  StepMoments m;
  m.decode_interval = time;
  m.length_biased = squares / time;
  m.busy = count / (1 + count);
  m.each = s.more + std::max(std::exp(-(rate * length)), 1 / s.most) * fixed;
  return m;
}

/// The wait where a step takes one prompt or a chunk of one.
PromptWait one_after_another(const PromptSteps& s, const StepMoments& m, Hertz rate) noexcept {
  PromptWait found;
  found.wait = 0.5 * m.length_biased / (1 - std::min(kMaxLoad, rate * s.more));
  found.full_steps = rate * found.wait / s.most;
  // The last step has room for those behind if somebody came since; else it is shorter.
  const double first_room = s.chunked ? s.chunks - 1 / s.most : 0.0;
  const double later_room = s.chunked ? later_in_row(2, m.load, s.most).room : 0.0;
  const double room = (1 - m.load) * first_room + m.load * later_room;
  const Seconds drop = first_room > kHardlyEver ? (s.full - s.last) / first_room : Seconds{};
  const Seconds came = found.wait + s.alone - s.last;
  const double followed = 1 - std::exp(-(rate * came));
  found.own = s.full - (1 - followed) * room * drop;
  found.computed = (1 - m.load) * (s.alone + followed * (s.full - s.last)) +
                   m.load * (s.more + later_room * (s.full - (1 - followed) * drop));
  // In so long those came that fill it.
  const Seconds begun = room * s.most * (rate * came > kHardlyEver ? followed / rate : came);
  found.behind = max(Seconds{}, found.wait + found.computed - found.own - begun);
  return found;
}

/// The wait where a step takes several. Chunked prompts ahead count as what is left of them, and
/// the first one beyond a step begins a row.
PromptWait several_at_once(const PromptSteps& s, const StepMoments& m, Hertz rate) noexcept {
  PromptWait found;
  const Seconds half = 0.5 * m.length_biased;
  const double places = std::floor(s.most);
  double ahead = rate * half;
  StepRow row;
  if (s.chunked && whole_power(ahead / (1 + ahead), places) > kSettled) {
    row = later_in_row(places + 1, std::min(kMaxFollowers, rate * s.full / s.most), s.most);
  }
  for (int round = 0; round < kMaxPromptRounds; ++round) {
    const double before = ahead;
    double begun = 0;
    if (s.chunked) {
      const double beyond = whole_power(ahead / (1 + ahead), places);
      found.full_steps = beyond * ((places + 1 + ahead) / s.most + row.room - 1);
      begun = beyond * row.done;
    } else {
      found.full_steps = further_steps(ahead / (1 + ahead), s.most);
    }
    ahead = rate * (half + (found.full_steps - begun) * s.full);
    if (std::abs(ahead - before) < kSettled * before || ahead > kEndless) break;
  }
  found.wait = half + found.full_steps * s.full;
  // Those behind find the places that those ahead have left in the step.
  const double beside = ahead - s.most * found.full_steps, came = rate * found.wait;
  const double left = std::max(0.0, s.most - 1 - beside);
  constexpr double kAllFit = 14;  // e-folds
  if (left < kAllFit * (1 + came)) found.behind = std::pow(came / (1 + came), left) * found.wait;
  found.own = s.alone + (beside + rate * (found.wait - found.behind)) * s.more;
  found.computed = found.own;
  return found;
}

}  // namespace

double full_steps_ahead(double ahead, double most) noexcept {
  return further_steps(ahead / (1 + ahead), most);
}

StepsOfMix::StepsOfMix(const StepTimes& times, const CacheCapacity& capacity,
                       const Demand& demand) noexcept
    : times_(times), capacity_(capacity), demand_(demand) {
  if (demand.prefilled || demand.max_prompts(times.engine(), capacity, 0) < 1) return;
  one_ = times.prefill_attention(demand.work(0, 1));
  two_ = times.prefill_attention(demand.work(0, 2));
}

Seconds StepsOfMix::decode_only(double sequences) const noexcept {
  const StepWork work = demand_.work(sequences);
  return times_.total(work, times_.decode_attention(work));
}

/// Of a step with prompts, next to the decode attention.
Seconds StepsOfMix::with(const StepWork& work, Seconds decode) const noexcept {
  return times_.total(work, times_.prefill_attention(work) + decode);
}

namespace {

/// Mean of Poisson's law whose mean is `prompts` where it is not zero.
double mean_of_any(double prompts) noexcept {
  constexpr int kRounds = 8;
  double mean = 2 * (prompts - 1);
  for (int round = 0; round < kRounds; ++round) mean = prompts * (1 - std::exp(-mean));
  return mean;
}

/// What a prompt beyond the first adds to a step in the mean, where steps with any hold `prompts`.
/// Data-parallel ranks take them in turns: only one that a rank has to start anew adds anything, so
/// that few prompts are counted one by one. Of many, and of one rank, the number varies about its
/// mean: what is added counts at two points, a deviation apart.
template <class Several>
Seconds added_by_each(const PromptSteps& steps, int ranks, double prompts,
                      const Several& several) noexcept {
  constexpr double kFewPrompts = 4;
  if (ranks > 1 && prompts < kFewPrompts && steps.most > 2) {
    const double mean = mean_of_any(prompts), least = 1e-3;
    double share = mean * mean / 2, beyond = 0;
    Seconds added;
    for (double count = 2; share > least * beyond; ++count) {
      const double taken = std::min(count, steps.most);
      added += share * max(Seconds{}, several(taken) - steps.alone);
      beyond += share * (taken - 1);
      if (count >= steps.most) break;
      share *= mean / (count + 1);
    }
    if (beyond > 0) return added / beyond;
  }
  const double spread = std::sqrt(std::max(0.0, prompts - 1));
  const double few = std::clamp(prompts - spread, std::min(2.0, steps.most), steps.most);
  const double many = std::clamp(prompts + spread, few, steps.most);
  Seconds sum = several(few);
  if (many > few) sum = 0.5 * (sum + several(many));
  return max(Seconds{}, sum - steps.alone) / (0.5 * (few + many) - 1);
}

}  // namespace

PromptSteps StepsOfMix::beside(double sequences, double prompts) const noexcept {
  const Engine& engine = times_.engine();
  PromptSteps steps;
  steps.mixed = engine.mixed_batches;
  steps.chunked = engine.chunked_prefill;
  steps.most = demand_.max_prompts(engine, capacity_, sequences);
  const StepWork running = demand_.work(sequences);
  Seconds decode = times_.decode_attention(running);
  steps.decode_only = times_.total(running, decode);
  if (demand_.prefilled) {
    // Sequences whose cache has come take part in the next step like any other.
    steps.mixed = true;
    steps.chunked = false;
    steps.alone = steps.last = steps.full = steps.decode_only;
    return steps;
  }
  const double beside = engine.mixed_batches ? sequences : 0;
  if (beside <= 0) decode = Seconds{};
  if (steps.most < 1) return chunked(steps, beside, decode);
  const Seconds alone = times_.total(demand_.work(beside, 1), one_ + decode);
  steps.alone = steps.last = steps.full = steps.more = alone;
  if (steps.most <= 1) return steps;
  const auto several = [&](double count) {
    if (engine.chunked_prefill && count >= steps.most) return row_step(beside, steps.most, decode);
    const StepWork work = demand_.work(beside, count);
    return count == 2 ? times_.total(work, two_ + decode) : with(work, decode);
  };
  steps.more = added_by_each(steps, times_.layout().dp, prompts, several);
  steps.full += (steps.most - 1) * steps.more;
  return steps;
}

/// A full step in a row of chunked prompts: it ends `most` of them and begins as many, so that it
/// holds 1 + most chunks, which attend to what a chunk of any place does on average.
Seconds StepsOfMix::row_step(double sequences, double most, Seconds decode) const noexcept {
  const double chunks = 1 + most, tokens = most * demand_.uncached_prompt_tokens;
  const double keys = demand_.input - 0.5 * demand_.uncached_prompt_tokens + tokens / (2 * chunks);
  return with(demand_.work(sequences, chunks, tokens, keys), decode);
}

/// A chunked prompt: full chunks, attending to half of it on average, and the rest.
PromptSteps StepsOfMix::chunked(PromptSteps steps, double sequences,
                                Seconds decode) const noexcept {
  const double uncached = demand_.uncached_prompt_tokens, input = demand_.input;
  const double whole = std::ceil(1 / steps.most - 1e-9) - 1;
  const double chunk = steps.most * uncached, left = uncached - whole * chunk;
  const double keys = input - left - (whole - 1) / 2 * chunk;
  steps.chunks = whole + 1;
  const Seconds first = with(demand_.work(sequences, 1, chunk, keys), decode);
  steps.full = row_step(sequences, steps.most, decode);
  steps.last = with(demand_.work(sequences, 1, left, input), decode);
  steps.alone = whole * first + steps.last;
  steps.more = steps.full / steps.most;
  return steps;
}

StepMoments step_moments(const PromptSteps& s, Hertz rate, double near) noexcept {
  if (rate * s.full < kHardlyEver) return {s.decode_only, s.decode_only, s.more, 0, 0};
  if (s.most <= 1) return one_at_a_time(s, rate);
  return s.mixed ? mixed_steps(s, rate, near) : prompts_first(s, rate);
}

PromptWait prompt_wait(const PromptSteps& s, const StepMoments& m, Hertz rate) noexcept {
  return s.most <= 1 ? one_after_another(s, m, rate) : several_at_once(s, m, rate);
}

double followers(const StepMoments& m, Hertz rate) noexcept {
  return std::min(kMaxFollowers, rate * m.each);
}

Seconds time_of_steps(const PromptSteps& s, const StepMoments& m, const PromptWait& wait,
                      Hertz rate, double count) noexcept {
  const Seconds left = wait.behind + wait.own;
  const Seconds ordinary = s.mixed ? (1 + wait.full_steps) * m.decode_interval : s.decode_only;
  const double g = followers(m, rate);
  const Seconds excess = s.mixed ? max(Seconds{}, left - ordinary) : left - ordinary;
  const double first = rate * excess, prompts = first / (1 - g);
  // Where steps go on beside prompts, no more of these enter than there are steps for.
  const double places = count * (1 - m.busy) * s.most;
  const double entering =
      s.mixed && prompts > 0 ? prompts * (1 - std::exp(-places / prompts)) : prompts;
  // Those that came during one step share the next, and what any step of prompts costs more.
  double starting = 1;
  if (s.mixed && s.most > 1 && first > kHardlyEver) {
    const double later = std::exp(rate * max(Seconds{}, s.alone - s.decode_only));
    starting = std::min(1.0, (1 - std::exp(-first)) * later / prompts);
  }
  const Seconds each = s.more + starting * (m.each - s.more);
  return max(count * s.decode_only, count * m.decode_interval + entering * each);
}

}  // namespace scalemodel
