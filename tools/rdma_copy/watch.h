// watch.h - ends a copy that has come to a stop.   Wire form: docs/wire_format.md "Copies"
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

/// How long a copy may stand still, unless its user says otherwise. 0: for ever.
inline constexpr std::chrono::milliseconds kTimeout{60'000};

/// How long neither side has done anything. A value.
class StallClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// limit   0: none
  /// period  about how often step() is called: of longer times between two calls this process was stopped, and has not
  ///         waited
  StallClock(std::chrono::milliseconds limit, std::chrono::milliseconds period, TimePoint now)
      : limit_(limit), period_(period), last_(now) {}

  /// moved    something has happened since the last call
  /// Returns  whether nothing has for the limit
  [[nodiscard]] bool step(TimePoint now, bool moved) noexcept;

 private:
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds period_;
  TimePoint last_;
  std::chrono::steady_clock::duration idle_{0};
};

/// Looks after a copy on a thread of its own: while this side is at work without sending anything (it reads a large
/// file that the peer has already, or waits for its disk), it says so to the peer once a second. When this side only
/// waits, and the peer sends and takes no data and does not say that it is at work either, the stream is aborted. A
/// resource; does not own the stream. Threads: one.
class Watch {
 public:
  /// limit    so long both may rest; 0: for ever
  /// Returns  std::errc::resource_unavailable_try_again: no more threads for this user
  [[nodiscard]] static Result<std::unique_ptr<Watch>> start(const EndPoint& endpoint, RDMAStream& stream,
                                                            std::chrono::milliseconds limit);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// To be told when this side waits.
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
  std::uint64_t changes_ = 0;  // of work_, when it was asked last
  std::uint64_t blocks_ = 0;   // sent and taken until then
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace rdmacomm::copying
