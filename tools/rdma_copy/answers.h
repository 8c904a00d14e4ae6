// answers.h - what a sink says while its source sends.
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

/// Reads on a thread of its own, so that the sink never waits for its source to listen. A resource; does not own the
/// stream.
/// Threads: one calls.
class Answers {
 public:
  /// work  is told when its caller waits for the sink
  Answers(RDMAStream& stream, const Events& events, Work& work);
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  /// Waits for the end of the stream, or its failure: who gives up aborts the stream before.
  ~Answers();

  /// Waits until the sink says what it has of the file. Returns  why the stream has ended
  [[nodiscard]] Result<Have> have(std::uint32_t id);
  /// Waits for what is known of a block. `block` is below have().blocks().
  [[nodiscard]] Result<BlockSums> sums(std::uint64_t block);
  /// Entries are sent from this directory until leave().
  void enter(std::uint32_t id) { folders_.push_back(id); }
  void leave() { folders_.pop_back(); }
  /// Whether the sink does not want the rest of the file, or of a directory that it is in. `id`  0: of directories
  /// alone
  [[nodiscard]] bool has_failed(std::uint32_t id = 0) const noexcept;
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
  /// Waits for what it says at the end.
  [[nodiscard]] Result<Counts> result();

 private:
  void run();
  [[nodiscard]] Status read_all();
  [[nodiscard]] Status take(const Frame& frame);
  [[nodiscard]] Status take_sums(std::span<const std::byte> payload);

  /// Of the caller.
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    if (condition()) return;
    const Rest rest(&work_);
    changed_.wait(lock, condition);
  }

  RDMAStream& stream_;
  const Events& events_;
  Work& work_;
  std::vector<std::uint32_t> folders_;    // that the source is in
  std::atomic<std::uint32_t> failed_{0};  // the last entry of those
  std::atomic<std::uint64_t> failures_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Have> have_;     // of the file that was asked about last
  std::vector<BlockSums> sums_;  // of that
  std::optional<Counts> result_;
  std::optional<Error> over_;
  std::thread thread_;
};

}  // namespace rdmacomm::copying
