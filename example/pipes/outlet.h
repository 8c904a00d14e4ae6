// outlet.h - one receiver, as its sender sees it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "pipes/terms.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/endpoint/endpoint.h"
#include "rdmacomm/stream/rdma_stream.h"

namespace rdmacomm::pipes {

/// Sends blocks of registered memory to one receiver, on a thread of its own, and hears from it what became of them. A
/// resource; its destructor gives up what was not finished.
///
/// How many blocks wait here is not bounded but by those there are: who fills them waits for one to be free. There must be
/// more than the stream borrows.
/// Threads: push(), finish() and join() from one; abort() and look_at_endpoint() from any.
class Outlet {
 public:
  /// failed   called at most once, on the thread of this, when nothing more can be sent; not after abort()
  Outlet(std::shared_ptr<EndPoint> endpoint, std::unique_ptr<RDMAStream> stream,
         std::function<void(const Outlet&, const Status&)> failed);
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  ~Outlet();

  /// `keep` owns the slice. Without effect where it has failed.
  void push(const BufferSlice& slice, std::shared_ptr<const void> keep);
  /// All is pushed, and this is what it was. Does not wait.
  void finish(const Total& total);
  /// Gives up: the receiver is told why. Does not wait. Without effect where it has ended.
  void abort(const std::string& reason);
  /// The session says that an endpoint has ended, which may be this one.
  void look_at_endpoint();
  /// Waits until the receiver has everything, or it has failed. Returns  ok: the receiver has written all, and agrees
  [[nodiscard]] Status join();
  [[nodiscard]] const EndPoint& endpoint() const noexcept { return *endpoint_; }

 private:
  struct Piece {
    BufferSlice slice{};
    std::shared_ptr<const void> keep = nullptr;
  };
  void run();
  [[nodiscard]] Status send_all();
  [[nodiscard]] Status send(Piece piece, bool last_for_now);
  [[nodiscard]] Status conclude(const Total& total);
  [[nodiscard]] Status why_ended();

  const std::shared_ptr<EndPoint> endpoint_;
  const std::unique_ptr<RDMAStream> stream_;
  const std::function<void(const Outlet&, const Status&)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::optional<Total> total_;
  bool aborted_ = false;
  bool over_ = false;  // the thread has ended, or will at once
  Status outcome_;     // then
  std::thread thread_;
};

}  // namespace rdmacomm::pipes
