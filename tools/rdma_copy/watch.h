// watch.h - ends a copy that makes no progress.   Wire form: docs/wire_format.md "Copies"
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "rdma_copy/work.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::copying {

/// How long a copy may make no progress, by default. 0: for ever.
inline constexpr std::chrono::milliseconds kTimeout{60'000};

/// Measures how long neither peer has done anything. A value.
class StallClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// limit   0: none
  /// period  the approximate interval between calls of step(). If an interval is longer, this process was stopped, and
  ///         the extra time does not count
  StallClock(std::chrono::milliseconds limit, std::chrono::milliseconds period, TimePoint now)
      : limit_(limit), period_(period), last_(now) {}

  /// moved    there was progress since the last call
  /// Returns  whether there was no progress for the limit
  [[nodiscard]] bool step(TimePoint now, bool moved) noexcept;

 private:
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds period_;
  TimePoint last_;
  std::chrono::steady_clock::duration idle_{0};
};

/// Watches a copy on a thread of its own. The local process may be at work without sending data: it reads a large file
/// that the peer already has, or waits for its disk. Then this informs the peer once a second. If the local process
/// only waits, and the peer neither transfers data nor reports that it is at work, the stream is aborted. A resource;
/// does not own the stream. Threads: one at a time.
class Watch {
 public:
  /// limit    how long both may make no progress; 0: for ever
  /// Returns  std::errc::resource_unavailable_try_again: no more threads for this user
  [[nodiscard]] static Result<std::unique_ptr<Watch>> start(const EndPoint& endpoint, RDMAStream& stream,
                                                            std::chrono::milliseconds limit);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// Call it when the local process waits for the peer.
  [[nodiscard]] Work& work() noexcept { return work_; }

 private:
  Watch(const EndPoint& endpoint, RDMAStream& stream, std::chrono::milliseconds limit);
  void run();
  [[nodiscard]] bool hear();
  [[nodiscard]] bool has_moved();

  const EndPoint& endpoint_;
  RDMAStream& stream_;
  const std::chrono::milliseconds limit_;
  const std::chrono::milliseconds period_;
  Work work_;
  std::uint64_t changes_ = 0;  // of work_, at the last check
  std::uint64_t blocks_ = 0;   // sent and received until then
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace rdmacomm::copying
