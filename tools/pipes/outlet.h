// outlet.h - the sender's connection to one receiver.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "pipes/terms.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::pipes {

/// Sends blocks of registered memory to one receiver, and receives its verdict. A resource. The destructor aborts if
/// the transfer is not finished.
/// Threads: one for all functions except abort() and endpoint_has_ended(); the derived classes name the threads for
/// those.
class Outlet {
 public:
  /// Called when nothing more can be sent. At most once, not after abort().
  using Failed = std::function<void(const Outlet&, const Status&)>;

  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  virtual ~Outlet() = default;

  /// `keep` owns the slice. No effect if the outlet has failed.
  virtual void push(const BufferSlice& slice, std::shared_ptr<const void> keep) = 0;
  /// Everything was pushed; `total` describes it. Does not wait; join() does.
  virtual void finish(const Total& total) = 0;
  /// Aborts, and sends `reason` to the receiver. Does not wait. No effect if the outlet has ended.
  virtual void abort(const std::string& reason) = 0;
  /// Waits until the receiver has everything, or the outlet has failed. Returns  ok: the receiver has written
  /// everything, and its total is equal
  [[nodiscard]] virtual Status join() = 0;
  /// The session reports that an endpoint has ended, which may be this one. From any thread.
  virtual void endpoint_has_ended() {}
  /// Call it repeatedly while nothing is pushed. If the endpoint has ended, it calls `failed` before it returns.
  virtual void look() {}

  [[nodiscard]] const EndPoint& endpoint() const noexcept { return endpoint_; }

 protected:
  Outlet(EndPoint endpoint, RDMAStream stream, Failed failed);

  /// Everything is sent: sends the total, and waits for the verdict.
  [[nodiscard]] Status conclude(const Total& total);
  /// Call it after the endpoint has ended. Returns the receiver's last message, if there is one, because it tells more
  /// than the endpoint's status.
  [[nodiscard]] Status why_ended();

  const EndPoint endpoint_;
  RDMAStream stream_;
  const Failed failed_;
};

}  // namespace rdmacomm::pipes
