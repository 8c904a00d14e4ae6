// checksum_queue.h - computes checksums while other threads read, send and write the same data.
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

/// Adds bytes to checksums, in order: on its own thread, or at once. A resource. The queue has no limit, so the caller
/// must limit the number of blocks.
/// Threads: one at a time.
/// Cost: with its own thread, the bytes move from one processor's cache to another's.
class ChecksumQueue {
 public:
  enum class Way {
    kAtOnce,  // add() computes it before it returns
    kBeside,  // on its own thread
  };
  /// way  kBeside by default only on more than two processors, because a reading thread and a sending or writing thread
  ///      need two. With two processors, kAtOnce makes a pipe a seventh faster (bench/pipes.py)
  /// Throws  std::system_error: no more threads for this user (kBeside)
  explicit ChecksumQueue(Way way = std::thread::hardware_concurrency() > 2 ? Way::kBeside : Way::kAtOnce);
  ChecksumQueue(const ChecksumQueue&) = delete;
  ChecksumQueue& operator=(const ChecksumQueue&) = delete;
  ~ChecksumQueue();

  /// The caller must not use `checksum` until drain(). `keep` owns the bytes; it is released once they are added.
  void add(Checksum& checksum, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  /// Waits until all bytes are added.
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
  std::deque<Piece> pieces_;  // the first one is being added
  bool ended_ = false;
  std::thread thread_;  // empty with kAtOnce
};

}  // namespace rdmacomm::programs
