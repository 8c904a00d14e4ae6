// answers.h - receives the answers of a sink while its source sends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "rdma_copy/block_hashes.h"
#include "rdma_copy/events.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/work.h"

namespace rdmacomm::copying {

/// Reads on a thread of its own, so that the sink never waits for the source to read. A resource; does not own the
/// stream.
/// Threads: one at a time.
class Answers {
 public:
  /// work  is informed when the caller waits for the sink
  Answers(RDMAStream& stream, const Events& events, Work& work);
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  /// Waits for the end of the stream, or its failure. To give up, abort the stream first.
  ~Answers();

  /// Waits for the sink's answer about the file. Returns  why the stream has ended
  [[nodiscard]] Result<Have> have(std::uint32_t id);
  /// Waits for the hashes of a block. `block` is below have().blocks().
  [[nodiscard]] Result<BlockSums> sums(std::uint64_t block);
  /// From now on, until exit(), entries are sent from this directory.
  void enter(std::uint32_t id) { folders_.push_back(id); }
  void exit() { folders_.pop_back(); }
  /// Whether the sink does not want the rest of the file, or of a directory that contains it. `id` 0: check only
  /// directories
  [[nodiscard]] bool has_failed(std::uint32_t id = 0) const noexcept;
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
  /// Waits for the sink's final counts.
  [[nodiscard]] Result<Counts> result();

 private:
  void run();
  [[nodiscard]] Status read_all();
  [[nodiscard]] Status take(const Frame& frame);
  [[nodiscard]] Status take_sums(std::span<const std::byte> payload);

  /// For the caller's thread.
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    if (condition()) return;
    const Rest rest(&work_);
    changed_.wait(lock, condition);
  }

  RDMAStream& stream_;
  const Events& events_;
  Work& work_;
  std::vector<std::uint32_t> folders_;    // the directories that the source is in
  std::atomic<std::uint32_t> failed_{0};  // the last entry that failed
  std::atomic<std::uint64_t> failures_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Have> have_;     // for the file of the last question
  std::vector<BlockSums> sums_;  // for that file
  std::optional<Counts> result_;
  std::optional<Error> over_;
  std::thread thread_;
};

}  // namespace rdmacomm::copying
