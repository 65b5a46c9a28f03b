// Points of a plane of which none covers another: the front of two objectives as it grows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace scalemodel {

/// Points of a plane, asked whether one of them lies nowhere above and nowhere right of a given
/// one. Holds those that no other one covers: their ordinates fall as their abscissae rise. They
/// are few also where many were inserted, and stay in the cache; in blocks, so that an insertion
/// moves few of them where they are many.
class Staircase {
  struct Step {
    double abscissa, ordinate;
  };
  static constexpr std::size_t kMaxSteps = 256;

  template <class Vector>
  static auto at(Vector& values, std::size_t place) {
    return values.begin() + static_cast<std::ptrdiff_t>(place);
  }
  /// How many of the first values a value does not stay below. Halves without a branch on the
  /// comparison: where a value lies is anyone's guess, and a wrong guess costs more than a step.
  template <class Values, class Abscissa>
  static std::size_t not_beyond(const Values& values, double abscissa, const Abscissa& of) {
    std::size_t begin = 0, count = values.size();
    while (count > 1) {
      const std::size_t half = count / 2;
      begin += of(values[begin + half - 1]) <= abscissa ? half : 0;
      count -= half;
    }
    return begin + (count == 1 && of(values[begin]) <= abscissa ? 1 : 0);
  }
  /// The last block that does not start beyond an abscissa; the first where all do.
  std::size_t block_of(double abscissa) const {
    const std::size_t after = not_beyond(first_, abscissa, [](double first) { return first; });
    return after - (after == 0 ? 0 : 1);
  }
  template <class Steps>
  static auto beyond(Steps& steps, double abscissa) {
    return at(steps, not_beyond(steps, abscissa, [](const Step& step) { return step.abscissa; }));
  }

 public:
  /// Whether the point is new: no other one covers it.
  bool insert(double abscissa, double ordinate) {
    if (blocks_.empty()) {
      blocks_.push_back({{abscissa, ordinate}});
      first_.push_back(abscissa);
      return true;
    }
    const std::size_t block = block_of(abscissa);
    std::vector<Step>& steps = blocks_[block];
    auto from = beyond(steps, abscissa);
    // What a point covers is next to it, and little of it on average.
    auto to = from;
    if (from != steps.begin()) {
      const Step& before = *(from - 1);
      if (before.ordinate <= ordinate) return false;
      if (before.abscissa == abscissa) --from;
    }
    while (to != steps.end() && to->ordinate >= ordinate) ++to;
    const bool reaches_end = to == steps.end();
    if (from == to) {
      steps.insert(from, {abscissa, ordinate});
    } else {
      *from = {abscissa, ordinate};
      steps.erase(from + 1, to);
    }
    first_[block] = steps.front().abscissa;
    if (reaches_end) drop_covered(block + 1, ordinate);
    if (blocks_[block].size() > kMaxSteps) split(block);
    return true;
  }

  bool covers(double abscissa, double ordinate) const {
    if (blocks_.empty()) return false;
    const std::vector<Step>& steps = blocks_[block_of(abscissa)];
    const auto after = beyond(steps, abscissa);
    return after != steps.begin() && (after - 1)->ordinate <= ordinate;
  }

 private:
  void drop_covered(std::size_t block, double ordinate) {
    std::size_t end = block;
    while (end < blocks_.size() && blocks_[end].back().ordinate >= ordinate) ++end;
    blocks_.erase(at(blocks_, block), at(blocks_, end));
    first_.erase(at(first_, block), at(first_, end));
    if (block == blocks_.size()) return;
    std::vector<Step>& steps = blocks_[block];
    const auto is_covered = [&](const Step& step) { return step.ordinate >= ordinate; };
    steps.erase(steps.begin(), std::partition_point(steps.begin(), steps.end(), is_covered));
    first_[block] = steps.front().abscissa;
  }

  void split(std::size_t block) {
    std::vector<Step>& steps = blocks_[block];
    std::vector<Step> later(at(steps, steps.size() / 2), steps.end());
    steps.resize(steps.size() / 2);
    first_.insert(at(first_, block + 1), later.front().abscissa);
    blocks_.insert(at(blocks_, block + 1), std::move(later));
  }

  std::vector<std::vector<Step>> blocks_;  ///< ascending, none empty
  std::vector<double> first_;              ///< abscissae of the first steps
};

/// From the least to the most of the abscissae that are finite.
struct AbscissaRange {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void include(double abscissa) {
    if (!std::isfinite(abscissa)) return;
    least = std::min(least, abscissa);
    most = std::max(most, abscissa);
  }
};

/// A staircase over parts of its abscissae, equally wide, that knows the least ordinate up to the
/// end of each. Most points lie so far above or below the steps that this alone tells whether one
/// covers them; others are compared with the steps of their part. Neither time depends on the
/// number of steps. Where one part gets many of them all the same, a `Staircase` takes over.
class PartedStaircase {
 public:
  PartedStaircase(const AbscissaRange& range, int parts)
      : range_(range), parts_per_width_(parts / (range.most - range.least)) {
    // Of abscissae that are all the same, or too far apart for a number, there is one part.
    const bool apart = parts_per_width_ > 0 && std::isfinite(parts_per_width_);
    if (!apart) parts = 1;
    last_part_ = parts - 1;
    parts_.resize(static_cast<std::size_t>(parts));
  }

  void insert(double abscissa, double ordinate) {
    std::size_t part = part_of(abscissa);
    if (surely_covers(part, ordinate) || !insert_in(part, abscissa, ordinate)) return;
    for (; part < parts_.size() && !(parts_[part].least <= ordinate); ++part) {
      parts_[part].least = ordinate;
    }
  }

  bool covers(double abscissa, double ordinate) const {
    const std::size_t part = part_of(abscissa);
    if (surely_covers(part, ordinate)) return true;
    if (!(parts_[part].least <= ordinate)) return false;
    if (crowded_) return ordered_.covers(abscissa, ordinate);
    for (std::uint32_t i = parts_[part].first; i != kNone; i = steps_[i].next) {
      if (steps_[i].abscissa <= abscissa && steps_[i].ordinate <= ordinate) return true;
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr int kCrowd = 32;  ///< steps of a part, at most

  struct Step {
    double abscissa, ordinate;
    std::uint32_t next;  ///< of the same part
  };
  struct Part {
    double least = std::numeric_limits<double>::quiet_NaN();  ///< ordinate; before the first step
    std::uint32_t first = kNone;                              ///< step
  };

  /// It never falls as the abscissa rises.
  std::size_t part_of(double abscissa) const {
    const double inside = std::clamp(abscissa, range_.least, range_.most) - range_.least;
    return static_cast<std::size_t>(
        static_cast<std::int32_t>(std::min(last_part_, parts_per_width_ * inside)));
  }

  /// Steps of earlier parts are nowhere right of a point.
  bool surely_covers(std::size_t part, double ordinate) const {
    return part > 0 && parts_[part - 1].least <= ordinate;
  }

  /// Whether the point is new: no step of its part covers it. Drops the steps that it covers.
  bool insert_in(std::size_t part, double abscissa, double ordinate) {
    if (crowded_) return ordered_.insert(abscissa, ordinate);
    int others = 0;
    for (std::uint32_t* link = &parts_[part].first; *link != kNone;) {
      Step& step = steps_[*link];
      if (step.abscissa <= abscissa && step.ordinate <= ordinate) return false;
      if (step.abscissa >= abscissa && step.ordinate >= ordinate) {
        const std::uint32_t dropped = std::exchange(*link, step.next);
        step.next = std::exchange(dropped_, dropped);
      } else {
        ++others;
        link = &step.next;
      }
    }
    const std::uint32_t place = free_place();
    steps_[place] = {abscissa, ordinate, parts_[part].first};
    parts_[part].first = place;
    if (others >= kCrowd) put_in_order();
    return true;
  }

  /// That of a dropped step where there is one: what is looked through stays in the cache.
  std::uint32_t free_place() {
    if (dropped_ != kNone) return std::exchange(dropped_, steps_[dropped_].next);
    steps_.emplace_back();
    return static_cast<std::uint32_t>(steps_.size() - 1);
  }

  void put_in_order() {
    crowded_ = true;
    for (const Part& part : parts_) {
      for (std::uint32_t i = part.first; i != kNone; i = steps_[i].next) {
        ordered_.insert(steps_[i].abscissa, steps_[i].ordinate);
      }
    }
  }

  AbscissaRange range_;
  double parts_per_width_, last_part_;
  std::vector<Part> parts_;
  std::vector<Step> steps_;
  std::uint32_t dropped_ = kNone;  ///< the last dropped step, which names the one before
  bool crowded_ = false;
  Staircase ordered_;  ///< all steps once a part is crowded
};

}  // namespace scalemodel
