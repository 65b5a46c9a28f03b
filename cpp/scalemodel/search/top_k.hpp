// The k best candidates of a search, in a heap by score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <tuple>

namespace scalemodel {

/// The k best candidates seen, one of each kind of strategy (of type S) that means the same.
template <class S>
class TopK {
 public:
  struct Entry {
    double score = 0;
    std::uint64_t row = 0;
    S canonical;

    bool operator<(const Entry& other) const {
      return std::tie(score, row) < std::tie(other.score, other.row);
    }
  };

  explicit TopK(std::size_t count) : count_(count) {}

  /// Whether a candidate of this score could still enter.
  bool admits(double score, std::uint64_t row) const {
    return !full_ || std::tie(score, row) < std::tie(worst_score_, worst_row_);
  }
  void add(const Entry& entry) {
    if (!admits(entry.score, entry.row)) return;
    // Strategies that mean the same score the same.
    for (auto known = entries_.lower_bound({entry.score, 0, {}});
         known != entries_.end() && known->score == entry.score; ++known) {
      if (!(known->canonical == entry.canonical)) continue;
      if (known->row <= entry.row) return;
      entries_.erase(known);
      break;
    }
    entries_.insert(entry);
    if (entries_.size() > count_) entries_.erase(std::prev(entries_.end()));
    full_ = entries_.size() == count_;
    worst_score_ = entries_.rbegin()->score;
    worst_row_ = entries_.rbegin()->row;
  }
  /// The score that a group must be able to reach.
  double threshold() const { return full_ ? worst_score_ : kInfinity; }
  const std::set<Entry>& entries() const { return entries_; }

 private:
  std::size_t count_;
  std::set<Entry> entries_;
  bool full_ = false;
  double worst_score_ = 0;  ///< of the entries
  std::uint64_t worst_row_ = 0;
};

}  // namespace scalemodel
