// queue_outlet.h - an outlet with a thread, for a program that also reads, hashes and writes, or sends to several
// receivers.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "pipes/outlet.h"

namespace rdmacomm::pipes {

/// The queue has no limit of its own: the number of blocks in the store limits it, because the reading thread waits for
/// a free block. The store must have more blocks than the stream borrows.
/// Threads: abort() from any. `failed` is called on this object's thread.
class QueueOutlet final : public Outlet {
 public:
  /// Throws  std::system_error: no more threads for this user
  QueueOutlet(EndPoint endpoint, RDMAStream stream, Failed failed);
  ~QueueOutlet() override;

  void push(const BufferSlice& slice, std::shared_ptr<const void> keep) override;
  void finish(const Total& total) override;
  void abort(const std::string& reason) override;
  [[nodiscard]] Status join() override;
  void look() override;
  void endpoint_has_ended() override;

 private:
  struct Piece {
    BufferSlice slice{};
    std::shared_ptr<const void> keep = nullptr;
  };
  void run();
  [[nodiscard]] Status send_all();
  [[nodiscard]] Status send(Piece piece, bool last_for_now);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::optional<Total> total_;
  bool aborted_ = false;
  bool over_ = false;  // the thread has ended, or is about to
  Status outcome_;     // valid if over_
  std::thread thread_;
};

}  // namespace rdmacomm::pipes
