#include "scalemodel/economics/failure_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// Nodes that stand ready, and when those under repair come back.
class SparePool {
 public:
  SparePool(int spares, Seconds repair) : ready_(spares), repair_(repair) {}

  /// A node failed at `now`: how long until another one takes its place.
  Seconds replace(Seconds now) {
    if (repair_ == Seconds{}) return Seconds{};
    while (!returns_.empty() && returns_.front() <= now) {
      returns_.pop_front();
      ++ready_;
    }
    returns_.push_back(now + repair_);
    if (ready_ > 0) {
      --ready_;
      return Seconds{};
    }
    // All repairs take equally long, so that the first one sent is the first one back.
    const Seconds back = returns_.front();
    returns_.pop_front();
    return back - now;
  }

 private:
  int ready_;
  Seconds repair_;
  std::deque<Seconds> returns_;
};

Seconds exponential(SplitMix& random, Hertz rate) {
  if (rate == Hertz{}) return Seconds{kInfinity};
  return -std::log1p(-random.unit()) / rate;
}

/// Time that `work` takes when nothing fails: a checkpoint after every interval but the last.
Seconds undisturbed(Seconds work, Seconds interval, Seconds write) {
  const double checkpoints = std::max(0.0, std::ceil(work / interval) - 1);
  return work + checkpoints * write;
}

SimulatedRun simulate_run(const FailingJob& job, const SimulationPlan& plan, SplitMix random) {
  const Hertz rate = job.rate();
  const double node_share = rate > Hertz{} ? job.nodes * job.node_rate / rate : 0;
  const Seconds period = plan.interval + job.write;
  SparePool pool(plan.spares, plan.repair);
  SimulatedRun run;
  Seconds left = plan.work;
  while (true) {
    const Seconds whole = undisturbed(left, plan.interval, job.write);
    Seconds until = exponential(random, rate);
    if (until >= whole) {
      run.time += whole;
      run.writing += whole - left;
      return run;
    }
    // A checkpoint counts once it is written, in the background too.
    const double reached = std::floor(until / period);
    const double kept = std::max(0.0, std::floor((until - job.background) / period));
    const Seconds written = std::min(reached, kept) * job.write;
    const Seconds saved = std::min(reached, kept) * plan.interval;
    left = left - saved;
    run.writing += written;
    run.repeated += until - saved - written;
    run.time += until;
    do {
      poll_point();
      if (++run.failures > kMaxFailures) {
        run.time = Seconds{kInfinity};
        return run;
      }
      if (random.unit() < node_share) {
        const Seconds wait = pool.replace(run.time);
        run.queueing += wait;
        run.time += wait;
      }
      until = exponential(random, rate);
      const Seconds spent = min(until, job.restart);
      run.restarting += spent;
      run.time += spent;
    } while (until < job.restart);
  }
}

}  // namespace

std::vector<SimulatedRun> simulate_runs(const FailingJob& job, const SimulationPlan& plan) {
  SplitMix seeds(static_cast<std::uint64_t>(plan.seed));
  std::vector<SimulatedRun> runs;
  runs.reserve(static_cast<std::size_t>(plan.runs));
  for (int i = 0; i < plan.runs; ++i) {
    poll_point();
    runs.push_back(simulate_run(job, plan, SplitMix(seeds.next())));
  }
  return runs;
}

}  // namespace scalemodel
