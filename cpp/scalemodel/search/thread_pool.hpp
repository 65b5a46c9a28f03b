// A thread pool of one call: threads take items one by one, none outlives the call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {

/// The calling thread and `threads - 1` helpers. Work is claimed item by item, so that which thread
/// does what is chance: results must not depend on it.
class ThreadPool {
 public:
  ThreadPool(int threads, Poll poll, std::uint64_t total);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return static_cast<int>(helpers_.size()) + 1; }

  /// Calls body(worker, item) for every item below `items`, in claims of `claim` neighbours.
  /// False: stopped early.
  bool run(std::size_t items, std::size_t claim,
           const std::function<void(std::size_t, std::size_t)>& body);

  /// To be called often by every worker; true: give up.
  bool stopped(std::size_t worker);
  void add_done(std::uint64_t rows) noexcept { done_.fetch_add(rows, std::memory_order_relaxed); }

 private:
  struct Job {
    std::size_t items = 0, claim = 1;
    const std::function<void(std::size_t, std::size_t)>* body = nullptr;
  };

  void help(std::size_t worker);
  void work(std::size_t worker, const Job& job) noexcept;
  void wait_for_helpers();
  bool ask();

  Poll poll_;
  std::uint64_t total_;
  std::chrono::steady_clock::time_point last_poll_;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  Job job_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  std::exception_ptr failure_;  ///< the first; thrown again by `run`
  bool leave_ = false;
  std::vector<std::jthread> helpers_;
};

}  // namespace scalemodel
