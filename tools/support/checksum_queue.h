// checksum_queue.h - checksums that are computed while what they are of is read, sent and written.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "support/checksum.h"

namespace rdmacomm::programs {

/// Adds bytes to checksums, in order: on a thread of its own, or at once. A resource. It has no bound of its own:
/// whoever adds has a bounded number of blocks.
/// Threads: one calls.
/// Cost: on a thread of its own, bytes go from one processor's cache to another's.
class ChecksumQueue {
 public:
  enum class Way {
    kAtOnce,  // add() does it, and does not return before
    kBeside,  // by a thread
  };
  /// way  by default by a thread only where one that reads and one that sends or writes leave it a processor: with two
  ///      of them, a pipe is a seventh faster at once (bench/pipes.py)
  /// Throws  std::system_error: no more threads for this user (kBeside)
  explicit ChecksumQueue(Way way = std::thread::hardware_concurrency() > 2 ? Way::kBeside : Way::kAtOnce);
  ChecksumQueue(const ChecksumQueue&) = delete;
  ChecksumQueue& operator=(const ChecksumQueue&) = delete;
  ~ChecksumQueue();

  /// `checksum` is left alone until drain(); `keep` owns the bytes, and is dropped when they are added.
  void add(Checksum& checksum, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  /// Waits until all is added.
  void drain();

 private:
  struct Piece {
    Checksum* checksum = nullptr;
    std::span<const std::byte> bytes = {};
    std::shared_ptr<const void> keep = nullptr;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;  // the first one is worked on
  bool ended_ = false;
  std::thread thread_;  // none: at once
};

}  // namespace rdmacomm::programs
