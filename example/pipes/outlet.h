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

/// Sends blocks of registered memory to one receiver, and hears from it what became of them. A resource; its destructor gives
/// up what was not finished.
///
/// Threads: push(), finish() and join() from one; abort() and look_at_endpoint() from any.
class Outlet {
 public:
  enum class Way {
    /// By a thread. How many blocks wait for it is not bounded but by those there are: who fills them waits for one to be
    /// free. There must be more than the stream borrows.
    kBeside,
    kAtOnce,  ///< push() returns when the block is sent: for who has nothing else to do with it
  };
  struct Callbacks {
    /// Nothing more can be sent. At most once, not after abort(). From the thread; kAtOnce: from push() or join().
    std::function<void(const Outlet&, const Status&)> failed = {};
    /// kAtOnce: ok, or why it is not to go on. Asked now and then, while the receiver takes nothing.
    std::function<Status()> may_go_on = {};
  };
  /// Throws  std::system_error: no more threads for this user (kBeside)
  Outlet(std::shared_ptr<EndPoint> endpoint, std::unique_ptr<RDMAStream> stream, Way way, Callbacks callbacks);
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  ~Outlet();

  /// `keep` owns the slice. Without effect where it has failed.
  void push(const BufferSlice& slice, std::shared_ptr<const void> keep);
  /// All is pushed, and this is what it was. Does not wait: join() does.
  void finish(const Total& total);
  /// Gives up: the receiver is told why. Does not wait. Without effect where it has ended.
  void abort(const std::string& reason);
  /// The session says that an endpoint has ended, which may be this one.
  /// Returns  kAtOnce: why nothing more can be sent, where nobody else finds out; this in place of Callbacks::failed. Else ok
  [[nodiscard]] Status look_at_endpoint();
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
  [[nodiscard]] Status send_at_once(const Piece& piece);
  [[nodiscard]] Status join_at_once();
  [[nodiscard]] Status conclude(const Total& total);
  [[nodiscard]] Status why_ended();
  void end(const Status& outcome);
  [[nodiscard]] bool set_outcome(const Status& outcome);

  const std::shared_ptr<EndPoint> endpoint_;
  const std::unique_ptr<RDMAStream> stream_;
  const Way way_;
  const Callbacks callbacks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::optional<Total> total_;
  bool aborted_ = false;
  bool busy_ = false;  // kAtOnce: push() or join() is under way, and will find out what look_at_endpoint() would
  bool over_ = false;  // nothing is sent any more
  Status outcome_;     // then
  std::thread thread_;
};

}  // namespace rdmacomm::pipes
