// How long many paths of one pipeline last at many samples. Private to the schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"
#include "scalemodel/schedule/sampled_times.hpp"

namespace scalemodel::detail {

/// Sums of times and what paths count of them, at the samples of one batch after the other. What a
/// path of a pipeline counts of one pass, part by part, or of the traffic, many others count too,
/// if not of all parts: each such sum is worked out once per batch, from the one that lacks its
/// last part, and a path is the sum of a few of them.
class PathSums {
 public:
  PathSums() : sums_(1) {}

  /// Adds a path, whose number is how many there are before it.
  void add(const PipelinePath& path);
  /// Goes on to a batch, which must last until the next.
  void set(const SampledTimes& samples) { set(samples, size()); }
  /// The same of the first `paths` alone; nothing is said of the others.
  void set(const SampledTimes& samples, std::size_t paths);

  std::size_t size() const { return paths_.size(); }
  /// How long a path lasts at the samples of the batch.
  Lanes of(std::size_t path) const {
    const std::uint32_t* piece = first_piece(path);
    return sum_of(piece, pieces_.data() + paths_[path].pieces);
  }
  /// The longest of the first `paths`.
  Lanes longest(std::size_t paths) const {
    Lanes longest;
    const std::uint32_t* piece = pieces_.data();
    for (std::size_t path = 0; path < paths; ++path) {
      longest = longest.max(sum_of(piece, pieces_.data() + paths_[path].pieces));
    }
    return longest;
  }
  /// Calls `use(path, samples)` for each path from `first` to `last` that is no less than `least`
  /// at some samples of the batch, a bit for each: few are.
  template <class Use>
  void each_reaching(std::size_t first, std::size_t last, const Lanes& least,
                     const Use& use) const {
    const Lanes needed = least;
    const std::uint32_t* piece = first_piece(first);
    for (std::size_t path = first; path < last; ++path) {
      const std::uint32_t* const end = pieces_.data() + paths_[path].pieces;
      const std::uint32_t reached = sum_of(piece, end).reaches(needed);
      if (reached != 0) use(path, reached);
    }
  }

 private:
  /// A sum: another one, or nothing, and how often it counts a time.
  struct Sum {
    std::uint32_t without = kNothing, place = 0;
    float count = 0;

    bool operator==(const Sum&) const = default;
  };
  /// Where what belongs to a path ends.
  struct Ends {
    std::uint32_t pieces = 0, sums = 0;
  };
  static constexpr std::uint32_t kNothing = 0;

  const std::uint32_t* first_piece(std::size_t path) const {
    return pieces_.data() + (path == 0 ? 0 : paths_[path - 1].pieces);
  }
  /// Of pieces, of which it goes to the end.
  Lanes sum_of(const std::uint32_t*& piece, const std::uint32_t* end) const {
    const Lanes* const sums = sums_.data();
    if (piece == end) return {};
    Lanes sum = sums[*piece];
    while (++piece != end) sum = sum + sums[*piece];
    return sum;
  }

  std::uint32_t number_of(const Sum& sum);
  /// Where the number of a sum is kept, or would be.
  std::size_t slot_of(const Sum& sum) const;
  void add_slots();
  Lanes value(const Sum& sum) const {
    return sums_[sum.without] + sum.count * samples_->of[sum.place];
  }

  std::vector<Sum> listed_{1};  ///< the first is nothing; each comes after the one it goes on from
  std::vector<std::uint32_t> slots_;   ///< numbers of sums by what they are, or `kNothing`
  std::vector<std::uint32_t> pieces_;  ///< the sums of all paths, one path after the other
  std::vector<Ends> paths_;
  const SampledTimes* samples_ = nullptr;
  std::vector<Lanes> sums_;  ///< what is listed, at the samples of the batch
};

}  // namespace scalemodel::detail
