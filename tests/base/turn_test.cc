// Waiting with a deadline, and taking turns. No test depends on the duration of anything.
#include "base/turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/wait.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

TEST(Wait, EndsWithItsDeadline) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(wait(changed, lock, 1ms, [] { return false; }));
  EXPECT_FALSE(wait(changed, lock, Deadline::after(0s), [] { return false; }));
  EXPECT_TRUE(wait(changed, lock, Deadline::after(0s), [] { return true; }));
}

TEST(Wait, WithoutADeadlineWaitsUntilItIsDone) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(wait(changed, lock, Deadline::never(), [&] { return done; }));
  }
  other.join();
}

/// A source of numbers that one thread at a time may read. Each thread gets its own numbers.
class Source {
 public:
  explicit Source(std::size_t readers) : found_(readers) {}

  void write(std::size_t for_whom) {
    const std::lock_guard lock(source_mutex_);
    source_.push_back(for_whom);
    came_.notify_all();
  }

  /// Takes a number for `me`.
  void take(std::size_t me) {
    std::unique_lock lock(mutex_);
    while (found_[me] == 0) {
      if (turn_.taken()) {
        turn_.follow(lock, Deadline::never());
      } else {
        const std::size_t whose = turn_.lead(lock, [this] { return read(); });
        ++found_[whose];
      }
    }
    --found_[me];
  }

 private:
  std::size_t read() {
    EXPECT_EQ(readers_.fetch_add(1), 0) << "one at a time";
    std::unique_lock lock(source_mutex_);
    came_.wait(lock, [this] { return !source_.empty(); });
    const std::size_t one = source_.front();
    source_.pop_front();
    readers_.fetch_sub(1);
    return one;
  }

  std::mutex source_mutex_;
  std::condition_variable came_;
  std::deque<std::size_t> source_;
  std::atomic<int> readers_{0};

  std::mutex mutex_;  // guards the members below
  Turn<> turn_;
  std::vector<int> found_;
};

TEST(Turn, EachThreadGetsItsOwnResultsWhicheverThreadReads) {
  constexpr std::size_t kThreads = 4;
  constexpr int kEach = 500;
  Source source(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&source, me] {
      for (int i = 0; i < kEach; ++i) source.take(me);
    });
  }
  for (int i = 0; i < kEach; ++i) {
    for (std::size_t me = kThreads; me-- > 0;) source.write(me);
  }
  for (std::thread& each : threads) each.join();
}

TEST(Turn, AFollowerGivesUpAtItsDeadline) {
  std::mutex mutex;
  Turn<> turn;
  std::unique_lock lock(mutex);
  turn.lead(lock, [&] {
    std::unique_lock other(mutex);
    EXPECT_TRUE(turn.taken());
    EXPECT_FALSE(turn.follow(other, 1ms));
  });
  EXPECT_FALSE(turn.taken());
  EXPECT_TRUE(lock.owns_lock());
}

TEST(Turn, NotifyMakesFollowersCheckAgain) {
  std::mutex mutex;
  Turn<std::condition_variable_any> turn;
  bool there = false;
  std::unique_lock lock(mutex);
  turn.lead(lock, [&] {
    std::thread follows([&] {
      std::unique_lock own(mutex);
      while (!there) EXPECT_TRUE(turn.follow(own, Deadline::never()));
    });
    {
      const std::lock_guard own(mutex);
      there = true;
      turn.notify();
    }
    follows.join();
    EXPECT_TRUE(turn.taken()) << "all of that while this one reads";
  });
}

TEST(Turn, IsFreeAgainAfterAnException) {
  std::mutex mutex;
  Turn<> turn;
  std::unique_lock lock(mutex);
  EXPECT_THROW(turn.lead(lock, [] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_FALSE(turn.taken());
  EXPECT_TRUE(lock.owns_lock());
}

}  // namespace
}  // namespace rdmacomm
