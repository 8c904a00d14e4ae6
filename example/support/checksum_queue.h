// checksum_queue.h - checksums that are computed while what they are of is written.
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

/// Adds bytes to checksums on a thread of its own, in order. A resource. It has no bound of its own: whoever adds has a
/// bounded number of blocks.
/// Threads: one calls.
class ChecksumQueue {
 public:
  ChecksumQueue();
  ChecksumQueue(const ChecksumQueue&) = delete;
  ChecksumQueue& operator=(const ChecksumQueue&) = delete;
  ~ChecksumQueue();

  /// `checksum` is left alone until drain(); `keep` owns the bytes, and is dropped by the thread.
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
  std::thread thread_;
};

}  // namespace rdmacomm::programs
