// outlet.h - one receiver, as its sender sees it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "pipes/terms.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::pipes {

/// Sends blocks of registered memory to one receiver, and hears from it what became of them. A resource; its destructor
/// gives up what was not finished.
/// Threads: one for all functions but abort() and endpoint_has_ended(); the classes below say which may call those.
class Outlet {
 public:
  /// Nothing more can be sent. Called at most once, not after abort().
  using Failed = std::function<void(const Outlet&, const Status&)>;

  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  virtual ~Outlet() = default;

  /// `keep` owns the slice. Without effect where it has failed.
  virtual void push(const BufferSlice& slice, std::shared_ptr<const void> keep) = 0;
  /// All is pushed, and this is what it was. Does not wait: join() does.
  virtual void finish(const Total& total) = 0;
  /// Gives up: the receiver is told why. Does not wait. Without effect where it has ended.
  virtual void abort(const std::string& reason) = 0;
  /// Waits until the receiver has everything, or it has failed. Returns  ok: the receiver has written all, and agrees
  [[nodiscard]] virtual Status join() = 0;
  /// The session says that an endpoint has ended, which may be this one. From any thread.
  virtual void endpoint_has_ended() {}
  /// To be called now and then while nothing is pushed: where it has ended, that is told before this returns.
  virtual void look() {}

  [[nodiscard]] const EndPoint& endpoint() const noexcept { return endpoint_; }

 protected:
  Outlet(EndPoint endpoint, RDMAStream stream, Failed failed);

  /// Everything is sent: says so, and waits for the verdict.
  [[nodiscard]] Status conclude(const Total& total);
  /// The endpoint has ended. What the receiver has said before that is still there, and says more.
  [[nodiscard]] Status why_ended();

  const EndPoint endpoint_;
  RDMAStream stream_;
  const Failed failed_;
};

}  // namespace rdmacomm::pipes
