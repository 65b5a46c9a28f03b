#include "scalemodel/search/thread_pool.hpp"

#include <algorithm>
#include <utility>

namespace scalemodel {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ThreadPool::ThreadPool(int threads, Poll poll, std::uint64_t total)
    : poll_(std::move(poll)), total_(total), last_poll_(Clock::now()) {
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this, i] { help(static_cast<std::size_t>(i)); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    leave_ = true;
  }
  wake_.notify_all();
}

void ThreadPool::help(std::size_t worker) {
  std::uint64_t seen = 0;
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return leave_ || round_ != seen; });
      if (leave_) return;
      seen = round_;
      job = job_;
    }
    work(worker, job);
    {
      const std::lock_guard lock(mutex_);
      --busy_;
    }
    finished_.notify_one();
  }
}

void ThreadPool::work(std::size_t worker, const Job& job) noexcept {
  // One item may take long as well: its own loops hear that the others have stopped.
  const Listening listening([this, worker](std::uint64_t, std::uint64_t) {
    return worker == 0 ? ask() : !stop_.load(std::memory_order_relaxed);
  });
  try {
    for (;;) {
      const std::size_t begin = next_.fetch_add(job.claim, std::memory_order_relaxed);
      if (begin >= job.items) return;
      const std::size_t end = std::min(job.items, begin + job.claim);
      for (std::size_t item = begin; item < end; ++item) {
        if (stopped(worker)) return;
        (*job.body)(worker, item);
      }
    }
  } catch (const Stopped&) {
    stop_.store(true);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stop_.store(true);
  }
}

void ThreadPool::wait_for_helpers() {
  std::unique_lock lock(mutex_);
  // The caller has no item left, but it must still hear an interrupt.
  while (!finished_.wait_for(lock, kPollEvery, [&] { return busy_ == 0; })) {
    lock.unlock();
    stopped(0);
    lock.lock();
  }
}

bool ThreadPool::stopped(std::size_t worker) {
  if (stop_.load(std::memory_order_relaxed)) return true;
  // Without a poll there is nothing to ask, and on a page a look at the clock takes long.
  if (worker != 0 || !poll_ || Clock::now() - last_poll_ < kPollEvery) return false;
  return !ask();
}

/// The calling thread asks whether to go on.
bool ThreadPool::ask() {
  last_poll_ = Clock::now();
  if (poll_ && !poll_(done_.load(std::memory_order_relaxed), total_)) stop_.store(true);
  return !stop_.load();
}

bool ThreadPool::run(std::size_t items, std::size_t claim,
                     const std::function<void(std::size_t, std::size_t)>& body) {
  next_.store(0);
  const Job job{items, std::max<std::size_t>(1, claim), &body};
  if (!helpers_.empty()) {
    {
      const std::lock_guard lock(mutex_);
      job_ = job;
      busy_ = helpers_.size();
      ++round_;
    }
    wake_.notify_all();
  }
  work(0, job);
  if (!helpers_.empty()) wait_for_helpers();
  if (failure_) std::rethrow_exception(failure_);
  return !stop_.load();
}

}  // namespace scalemodel
