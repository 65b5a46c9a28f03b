// How long work reports on the way and hears that it is to stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace scalemodel {

/// Asked now and then by the calling thread with (work done, work in all); false stops the work.
/// Work in all is 0 where it is not known.
using Poll = std::function<bool(std::uint64_t, std::uint64_t)>;

/// Between two questions. Python hears an interrupt only when it is asked.
inline constexpr std::chrono::milliseconds kPollEvery{50};

/// Thrown by `poll_point` where the poll says so; only who listens catches it. No std::exception:
/// what refuses a question must not take it for a refusal.
struct Stopped {};

/// While it lives, the loops of this thread ask `poll`. The loops find it by themselves: every
/// function between a question and its innermost loop would have to hand it on otherwise.
class Listening {
 public:
  explicit Listening(Poll poll)
      : poll_(std::move(poll)), last_(Clock::now()), outer_(std::exchange(current, this)) {
    work_left = 0;
  }
  ~Listening() {
    current = outer_;
    work_left = 0;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  /// Work between two looks at the clock.
  static constexpr std::int64_t kWorkPerLook = 4096, kUnheard = std::int64_t{1} << 40;

  friend void poll_point(std::int64_t work);
  friend void report_progress(std::uint64_t done, std::uint64_t total) noexcept;

  static void look() {
    work_left = current == nullptr ? kUnheard : kWorkPerLook;
    if (current != nullptr) current->ask();
  }
  void ask() {
    const auto now = Clock::now();
    if (now - last_ < kPollEvery) return;
    last_ = now;
    if (!poll_(done_, total_)) throw Stopped{};
  }

  static constinit inline thread_local Listening* current = nullptr;
  static constinit inline thread_local std::int64_t work_left = 0;

  Poll poll_;
  Clock::time_point last_;
  std::uint64_t done_ = 0, total_ = 0;
  Listening* outer_;
};

/// To be called by every loop that may take long. `work` since the last call: 1 for some hundred
/// instructions, never more than ten thousand of them between two calls.
inline void poll_point(std::int64_t work = 1) {
  Listening::work_left -= work;
  if (Listening::work_left < 0) Listening::look();
}

/// What the next poll is told.
inline void report_progress(std::uint64_t done, std::uint64_t total) noexcept {
  if (Listening* listening = Listening::current; listening != nullptr) {
    listening->done_ = done;
    listening->total_ = total;
  }
}

/// Loops too tight for a look per item: one in 256 calls.
class PollPoints {
 public:
  void operator()() {
    if ((++calls_ & 0xff) == 0) poll_point(8);
  }

 private:
  std::uint32_t calls_ = 0;
};

/// A comparison for sorting many values, which can be stopped. Lives no longer than `points`.
template <class Less>
auto polled(Less less, PollPoints& points) {
  return [less = std::move(less), &points](const auto& a, const auto& b) {
    points();
    return less(a, b);
  };
}

}  // namespace scalemodel
