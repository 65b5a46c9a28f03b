#include "scalemodel/routing/simulation/time_shift.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

constexpr int kFewestSlots = 8;            ///< of the shortest period
constexpr std::int64_t kMaxCircle = 1024;  ///< slots
constexpr int kShiftStarts = 6;            ///< descents: from no rotations, then from random ones

/// Links with the same capacity and the same demands of the same jobs.
struct LinkClass {
  std::vector<std::pair<std::int32_t, double>> demand;  ///< job, bytes per second
  double capacity = 0;                                  ///< bytes per second of a link
  double links = 0;                                     ///< number of links
};

/// The unified circle of the periods of all jobs.
struct Circle {
  double slot = 0;  ///< seconds
  std::int64_t slots = 0;
  std::vector<std::int32_t> period, busy;  ///< by job, in slots
  double error = 0;                        ///< largest relative change of a period
};

/// The circle with the smallest error among those of at most `kMaxCircle` slots; its number of
/// slots is 0 where there is none.
Circle circle_of(std::span<const double> period, std::span<const double> busy,
                 std::span<const std::int32_t> jobs, int finest) {
  double shortest = kInfinity;
  for (const std::int32_t j : jobs) shortest = std::min(shortest, period[j]);
  Circle best;
  for (int count = kFewestSlots; count <= finest; ++count) {
    Circle circle;
    circle.slot = shortest / count;
    circle.slots = 1;
    circle.period.assign(period.size(), 1);
    circle.busy.assign(period.size(), 0);
    for (const std::int32_t j : jobs) {
      circle.period[j] = static_cast<std::int32_t>(std::lround(period[j] / circle.slot));
      circle.busy[j] =
          std::min(circle.period[j],
                   static_cast<std::int32_t>(std::ceil(busy[j] / circle.slot * (1 - kRounding))));
      circle.error =
          std::max(circle.error, std::abs(circle.period[j] * circle.slot / period[j] - 1));
      circle.slots = std::lcm(circle.slots, static_cast<std::int64_t>(circle.period[j]));
      if (circle.slots > kMaxCircle) break;
    }
    if (circle.slots > kMaxCircle) continue;
    if (best.slots == 0 || circle.error < best.error - kRounding) best = circle;
  }
  return best;
}

/// Rotations of jobs on the circle, and the loads of links by slot.
class Rotations {
 public:
  Rotations(std::vector<LinkClass> classes, const Circle& circle)
      : classes_(std::move(classes)),
        circle_(circle),
        rotation_(circle.period.size(), 0),
        load_(classes_.size(), std::vector<double>(circle.slots, 0.0)) {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      for (const auto& [job, demand] : classes_[c].demand) add(c, job, rotation_[job], demand);
    }
  }

  double excess() const {
    double sum = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      double over = 0;
      for (const double load : load_[c]) over += std::max(load - classes_[c].capacity, 0.0);
      sum += classes_[c].links * over;
    }
    return sum;
  }
  double score() const {
    double capacity = 0;
    for (const LinkClass& c : classes_) capacity += c.links * c.capacity;
    return capacity > 0 ? 1 - excess() / (capacity * static_cast<double>(circle_.slots)) : 1.0;
  }
  std::span<const std::int32_t> values() const { return rotation_; }

  void set_rotation(std::int32_t job, std::int32_t rotation) {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      for (const auto& [of, demand] : classes_[c].demand) {
        if (of != job) continue;
        add(c, job, rotation_[job], -demand);
        add(c, job, rotation, demand);
      }
    }
    rotation_[job] = rotation;
  }

  /// Sets the best rotation of a job, the first one of a tie; whether it lowers the excess.
  bool improve(std::int32_t job) {
    const double before = excess();
    const std::int32_t old = rotation_[job];
    double least = before * (1 - kRounding);
    std::int32_t best = old;
    for (std::int32_t rotation = 0; rotation < circle_.period[job]; ++rotation) {
      if (rotation == old) continue;
      poll_point(static_cast<std::int64_t>(classes_.size()) * (1 + circle_.slots / 64));
      set_rotation(job, rotation);
      if (const double over = excess(); over < least) {
        least = over;
        best = rotation;
      }
    }
    set_rotation(job, best);
    return best != old;
  }

 private:
  void add(std::size_t c, std::int32_t job, std::int32_t rotation, double demand) {
    for (std::int64_t begin = rotation; begin < circle_.slots + rotation;
         begin += circle_.period[job]) {
      for (std::int32_t s = 0; s < circle_.busy[job]; ++s) {
        load_[c][(begin + s) % circle_.slots] += demand;
      }
    }
  }

  std::vector<LinkClass> classes_;
  const Circle& circle_;
  std::vector<std::int32_t> rotation_;
  std::vector<std::vector<double>> load_;
};

}  // namespace

TimeShifts time_shifts(const RoutingInstance& instance, const Routing& routing,
                       std::span<const JobSchedule> schedules, int finest, std::uint64_t seed) {
  const std::vector<double> alone = isolated_values(instance);
  TimeShifts answer;
  std::vector<std::int32_t> jobs;
  for (std::int32_t j = 0; j < instance.flows.jobs; ++j) {
    const bool sends = std::isfinite(alone[j]) && alone[j] > 0;
    answer.busy.push_back(sends ? schedules[j].steps / alone[j] : 0.0);
    answer.period.push_back(answer.busy[j] + schedules[j].compute.base());
    if (sends) jobs.push_back(j);
  }
  answer.shift.assign(instance.flows.jobs, 0.0);
  const Incidence uses = job_links(instance, routing);
  std::vector<LinkClass> of_link(instance.graph.links());
  for (const std::int32_t j : jobs) {
    for (std::int32_t k = uses.first[j]; k < uses.first[j + 1]; ++k) {
      of_link[uses.link[k]].demand.emplace_back(j, uses.weight[k] * alone[j]);
    }
  }
  std::map<std::pair<double, std::vector<std::pair<std::int32_t, double>>>, double> counts;
  for (std::int32_t link = 0; link < instance.graph.links(); ++link) {
    if (of_link[link].demand.size() < 2) continue;
    counts[{instance.graph.capacity(link).base(), of_link[link].demand}] += 1;
  }
  std::vector<LinkClass> classes;
  classes.reserve(counts.size());
  for (const auto& [key, links] : counts) classes.push_back({key.second, key.first, links});
  if (classes.empty()) return answer;

  const Circle circle = circle_of(answer.period, answer.busy, jobs, finest);
  if (circle.slots == 0) return answer;
  answer.slot = circle.slot;
  answer.slots = static_cast<std::int32_t>(circle.slots);
  answer.period_error = circle.error;
  SplitMix random(seed);
  double least = kInfinity;
  for (int start = 0; start < kShiftStarts && least > 0; ++start) {
    Rotations rotations(classes, circle);
    if (start == 0) answer.score_before = rotations.score();
    for (const std::int32_t j : jobs) {
      if (start > 0 && j != jobs.front()) rotations.set_rotation(j, random.below(circle.period[j]));
    }
    for (bool better = true; better;) {
      better = false;
      for (const std::int32_t j : jobs) better |= j != jobs.front() && rotations.improve(j);
    }
    if (const double over = rotations.excess(); over < least * (1 - kRounding)) {
      least = over;
      answer.score = rotations.score();
      for (const std::int32_t j : jobs) answer.shift[j] = rotations.values()[j] * circle.slot;
    }
  }
  return answer;
}

}  // namespace scalemodel
