#include "scalemodel/economics/failure_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// Nodes that stand ready, and when those under repair come back.
class NodeQueue {
 public:
  NodeQueue(int spares, Seconds repair) : ready_(spares), repair_(repair) {}

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
  NodeQueue pool(plan.spares, plan.repair);
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

/// A run of replicas that fail one by one, from event to event.
class ReplicaRun {
 public:
  ReplicaRun(const FailingJob& job, const SimulationPlan& plan, SplitMix random)
      : job_(job),
        plan_(plan),
        random_(random),
        nodes_(plan.spares, plan.repair),
        node_share_(job.rate() > Hertz{} ? job.nodes * job.node_rate / job.rate() : 0),
        phase_left_(plan.interval) {}

  SimulatedRun result() {
    draw_failure();
    while (true) {
      poll_point();
      const Seconds event = min(fails_at_, changes_at());
      const Seconds done = until_done(), phase = until_phase_ends();
      const Seconds span = min(event - now(), min(done, phase));
      advance(span);
      if (span == done) return run_;
      if (span == phase) {
        next_phase();
        continue;
      }
      run_.time = event;
      while (!rejoining_.empty() && rejoining_.front() <= now()) rejoining_.pop_front();
      take_repaired();
      if (fails_at_ > now()) continue;
      if (++run_.failures > kMaxFailures) {
        run_.time = Seconds{kInfinity};
        return run_;
      }
      fail();
    }
  }

 private:
  struct Checkpoint {
    Seconds work, usable_at;
  };

  Seconds now() const { return run_.time; }
  int staffed() const { return plan_.replicas - static_cast<int>(waiting_.size()); }
  int caught_up() const { return staffed() - static_cast<int>(rejoining_.size()); }
  bool trains() const { return now() >= stalled_until_ && caught_up() > 0; }
  double share(int replicas) const { return static_cast<double>(replicas) / plan_.replicas; }

  /// When a replica has caught up, a stall ends or a replica gets its node: whichever is first.
  Seconds changes_at() const {
    Seconds at{kInfinity};
    if (!rejoining_.empty()) at = min(at, rejoining_.front());
    if (!waiting_.empty()) at = min(at, waiting_.front());
    if (stalled_until_ > now()) at = min(at, stalled_until_);
    return at;
  }

  /// Time until a checkpoint is due or written, at the rate of now.
  Seconds until_phase_ends() const { return trains() ? phase_left_ : Seconds{kInfinity}; }

  Seconds until_done() const {
    if (!trains() || writing_) return Seconds{kInfinity};
    return (plan_.work - work_) / share(caught_up());
  }

  /// Counts a time in which nothing changes.
  void advance(Seconds span) {
    const double queueing = share(plan_.replicas - staffed());
    if (!trains()) {
      const bool stalled = now() < stalled_until_;
      run_.queueing += (stalled ? 0 : queueing) * span;
      run_.restarting += (stalled ? 1 : 1 - queueing) * span;
    } else {
      phase_left_ = max(Seconds{}, phase_left_ - span);
      if (writing_) {
        run_.writing += span;
      } else {
        work_ += share(caught_up()) * span;
        run_.queueing += queueing * span;
        run_.restarting += share(static_cast<int>(rejoining_.size())) * span;
      }
    }
    run_.time += span;
  }

  void next_phase() {
    writing_ = !writing_;
    phase_left_ = writing_ ? job_.write : plan_.interval;
    if (writing_ && phase_left_ > Seconds{}) return;
    writing_ = false;
    phase_left_ = plan_.interval;
    if (!checkpoints_.empty() && checkpoints_.back().usable_at <= now()) checkpoints_.clear();
    checkpoints_.push_back({work_, now() + job_.background});
  }

  void draw_failure() { fails_at_ = now() + exponential(random_, share(staffed()) * job_.rate()); }

  /// One of the replicas that have their nodes fails.
  void fail() {
    const int which = random_.below(staffed());
    if (which < static_cast<int>(rejoining_.size())) rejoining_.erase(rejoining_.begin() + which);
    stalled_until_ = now() + plan_.stall;
    Seconds wait;
    if (random_.unit() < node_share_) wait = nodes_.replace(now());
    if (wait > Seconds{}) {
      waiting_.push_back(now() + wait);
    } else {
      rejoining_.push_back(now() + job_.restart);
    }
    if (caught_up() == 0) lose_state();
    draw_failure();
  }

  /// No replica has the state any more: back to the last checkpoint that is of use.
  void lose_state() {
    while (!checkpoints_.empty() && checkpoints_.back().usable_at > now()) checkpoints_.pop_back();
    const Seconds saved = checkpoints_.empty() ? Seconds{} : checkpoints_.back().work;
    run_.repeated += work_ - saved;
    work_ = saved;
    writing_ = false;
    phase_left_ = plan_.interval;
  }

  void take_repaired() {
    if (waiting_.empty() || waiting_.front() > now()) return;
    for (; !waiting_.empty() && waiting_.front() <= now(); waiting_.pop_front()) {
      rejoining_.push_back(now() + job_.restart);
    }
    draw_failure();
  }

  FailingJob job_;
  SimulationPlan plan_;
  SplitMix random_;
  NodeQueue nodes_;
  double node_share_;
  SimulatedRun run_;
  Seconds work_, phase_left_, fails_at_, stalled_until_;
  bool writing_ = false;
  std::deque<Seconds> rejoining_;  ///< when replicas have caught up, the first one first
  std::deque<Seconds> waiting_;    ///< when replicas get a node, the first one first
  std::vector<Checkpoint> checkpoints_;
};

SimulatedRun simulated_run(const FailingJob& job, const SimulationPlan& plan, SplitMix random) {
  if (plan.replicas == 1) return simulate_run(job, plan, random);
  return ReplicaRun(job, plan, random).result();
}

}  // namespace

std::vector<SimulatedRun> simulate_runs(const FailingJob& job, const SimulationPlan& plan) {
  SplitMix seeds(static_cast<std::uint64_t>(plan.seed));
  std::vector<SimulatedRun> runs;
  runs.reserve(static_cast<std::size_t>(plan.runs));
  for (int i = 0; i < plan.runs; ++i) {
    poll_point();
    runs.push_back(simulated_run(job, plan, SplitMix(seeds.next())));
  }
  return runs;
}

}  // namespace scalemodel
