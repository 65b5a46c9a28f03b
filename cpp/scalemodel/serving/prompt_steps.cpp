#include "scalemodel/serving/prompt_steps.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

/// Beyond this share of its time spent on prompts an instance is treated as if it were at it.
constexpr double kMostLoad = 0.98;
constexpr double kMostFollowers = 0.95;
constexpr int kMostRounds = 40;
constexpr double kClose = 1e-6, kRarely = 1e-9;

/// One prompt at a time: the more often another one follows, the more of the last part's step it
/// fills.
StepMoments one_at_a_time(const PromptSteps& s, Hertz rate) noexcept {
  const Seconds each = s.alone / std::max(0.1, 1 + rate * (s.alone - s.more));
  const double load = std::min(kMostLoad, rate * each);
  const double parts = s.parts_of(load);
  StepMoments m;
  // Whoever comes meets the rest of a prompt, not only that of a step, and fills up its last one.
  m.met = load * s.more + (1 - load) * s.quiet;
  const auto quiet = (1 - load) / s.quiet, busy = load / each * parts;
  m.busy = busy / (busy + quiet);
  m.round = 1 / (s.mixed ? busy + quiet : quiet);
  m.each = s.more - (s.mixed ? 1 / s.most : 0.0) * s.quiet;
  m.load = load;
  return m;
}

StepMoments mixed_steps(const PromptSteps& s, Hertz rate) noexcept {
  const Seconds fixed = s.alone - s.more - s.quiet;
  StepMoments m;
  m.round = s.quiet;
  auto variance = Seconds{} * Seconds{};
  for (int round = 0; round < kMostRounds; ++round) {
    const double prompts = rate * m.round;
    const double none = std::exp(-prompts) * (1 + 0.5 * (rate * rate * variance));
    m.busy = std::min(kMostLoad, std::max(1 - none, prompts / s.most));
    const Seconds mean = min(s.full, s.quiet + m.busy * fixed + prompts * s.more);
    variance = s.more * s.more * (prompts + rate * rate * variance) +
               fixed * fixed * (m.busy * (1 - m.busy)) +
               2 * prompts * (1 - m.busy) * (fixed * s.more);
    // No spread is wider than that of steps either quiet or full.
    variance = max(0 * variance, min(variance, (mean - s.quiet) * (s.full - mean)));
    const double change = std::abs(mean / m.round - 1);
    m.round = mean;
    if (change < kClose) break;
  }
  m.met = m.round + variance / m.round;
  m.each = max((s.full - s.quiet) / s.most, s.more + std::exp(-(rate * m.round)) * fixed);
  return m;
}

/// Steps of prompts after a quiet one, each with what came during the one before.
StepMoments prompts_first(const PromptSteps& s, Hertz rate) noexcept {
  const Seconds fixed = s.alone - s.more;
  double reached = 1;  // probability that this step of prompts is run
  double count = 0;
  Seconds before = s.quiet, time = s.quiet;
  auto squares = s.quiet * s.quiet;
  double none = std::exp(-(rate * s.quiet));  // nobody comes during the step before
  for (int round = 0; round < kMostRounds; ++round) {
    reached *= 1 - none;
    const double arrived = rate * before;
    const double prompts = arrived / (1 - none);
    const double steps = std::max(1.0, prompts / s.most);
    const Seconds length = steps > 1 ? s.full : fixed + prompts * s.more;
    const Seconds batch = steps * length;
    // exp(-rate length) over a Poisson number of prompts, given that there are some.
    const double idle = std::exp(-arrived);
    const double spread =
        (std::exp(arrived * (std::exp(-(rate * s.more)) - 1)) - idle) / (1 - idle);
    none = steps > 1 ? std::exp(-(rate * batch)) : std::exp(-(rate * fixed)) * spread;
    none = std::max(none, kRarely);
    // Once lengths repeat, so does everything: a geometric series is left.
    const bool repeats = std::abs(batch / before - 1) < 1e-3 || round + 1 == kMostRounds;
    const double runs = repeats ? reached / none : reached;
    count += runs * steps;
    time += runs * batch;
    const double varied = steps > 1 ? 0 : std::max(0.0, prompts * (1 + arrived - prompts));
    squares = squares + runs * (batch * length + varied * (s.more * s.more));
    if (repeats || reached < 1e-4) break;
    before = batch;
  }
  StepMoments m;
  m.round = time;
  m.met = squares / time;
  m.busy = count / (1 + count);
  m.each = max(s.full / s.most, s.more + std::exp(-(rate * before)) * fixed);
  return m;
}

}  // namespace

double full_steps_ahead(double ahead, double most) noexcept {
  const double lost = std::pow(ahead / (1 + ahead), most);
  return lost / (1 - lost);
}

PromptSteps prompt_steps(const StepTimes& times, const CacheCapacity& capacity,
                         const Demand& demand, double sequences, double prompts) noexcept {
  const Engine& engine = times.engine();
  PromptSteps steps;
  steps.mixed = engine.mixes_phases;
  steps.most = demand.most_prompts(engine, capacity, sequences);
  steps.quiet = times.of(demand.work(sequences)).total;
  const double beside = engine.mixes_phases ? sequences : 0;
  const auto with = [&](double count) { return times.of(demand.work(beside, count)).total; };
  if (steps.most >= 1) {
    const double several = std::min(steps.most, std::max(2.0, prompts + 0.5 * std::sqrt(prompts)));
    steps.alone = steps.last = steps.full = steps.more = with(1);
    if (several <= 1) return steps;
    steps.more = max(Seconds{}, with(several) - steps.alone) / (several - 1);
    steps.full += (steps.most - 1) * steps.more;
    return steps;
  }
  // A cut prompt: full parts, attending to half of it on average, and the rest.
  const double whole = std::ceil(1 / steps.most - 1e-9) - 1;
  const double part = steps.most * demand.fresh, left = demand.fresh - whole * part;
  const double keys = demand.input - left - (whole - 1) / 2 * part;
  steps.parts = whole + 1;
  steps.full = times.of(demand.work(beside, 1, part, keys)).total;
  steps.last = times.of(demand.work(beside, 1, left, demand.input)).total;
  steps.alone = whole * steps.full + steps.last;
  steps.more = steps.full / steps.most;
  return steps;
}

StepMoments step_moments(const PromptSteps& s, Hertz rate) noexcept {
  if (rate * s.full < kRarely) return {s.quiet, s.quiet, s.more, 0, 0};
  if (s.most <= 1) return one_at_a_time(s, rate);
  return s.mixed ? mixed_steps(s, rate) : prompts_first(s, rate);
}

PromptWait prompt_wait(const PromptSteps& s, const StepMoments& m, Hertz rate) noexcept {
  PromptWait found;
  const Seconds half = 0.5 * m.met;
  found.wait = half;
  if (s.most <= 1) {
    found.wait = half / (1 - std::min(kMostLoad, rate * s.more));
    found.full_steps = rate * found.wait / s.most;
    // Whoever came since fills up the last step; behind other prompts that is a part of any size.
    const Seconds came = found.wait + s.alone - s.last;
    const double followed = 1 - std::exp(-(rate * came));
    const Seconds filled = followed * ((1 - m.load) * (s.full - s.last) + m.load * (0.5 * s.full));
    found.own = min(s.full, s.last + filled);
    found.computed = s.alone + filled;
    found.behind = came;
    if (m.load > 0) found.behind = max(Seconds{}, came - (filled / s.more) / rate);
    return found;
  }
  for (int round = 0; round < kMostRounds; ++round) {
    found.full_steps = full_steps_ahead(rate * found.wait, s.most);
    const Seconds wait = half + found.full_steps * s.full;
    const double change = std::abs(wait / found.wait - 1);
    found.wait = wait;
    if (change < kClose || rate * wait > 1e6) break;
  }
  // Those behind find the places that those ahead have left in the step.
  const double ahead = rate * found.wait, taken = ahead - s.most * found.full_steps;
  const double left = std::max(0.0, s.most - 1 - taken);
  found.behind = std::pow(ahead / (1 + ahead), left) * found.wait;
  const double places = s.most - 1;
  found.own = s.alone + places * (1 - std::exp(-(rate * m.met) / places)) * s.more;
  found.computed = found.own;
  return found;
}

double followers(const StepMoments& m, Hertz rate) noexcept {
  return std::min(kMostFollowers, rate * m.each);
}

Seconds time_of_steps(const PromptSteps& s, const StepMoments& m, const PromptWait& wait,
                      Hertz rate, double count) noexcept {
  const Seconds left = wait.behind + wait.own;
  const Seconds ordinary = s.mixed ? (1 + wait.full_steps) * m.round : s.quiet;
  const double g = followers(m, rate);
  const Seconds excess = s.mixed ? max(Seconds{}, left - ordinary) : left - ordinary;
  const double prompts = (rate * excess) / (1 - g);
  // Where steps go on beside prompts, no more of these enter than there are steps for.
  const double places = count * (1 - m.busy) * s.most;
  const double entering = s.mixed ? places * (1 - std::exp(-prompts / places)) : prompts;
  return max(count * s.quiet, count * m.round + entering * m.each);
}

}  // namespace scalemodel
