// delivery.h - passes completions to the program's own thread, in every ThreadMode.
#pragma once

#include <span>

#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"

namespace rdmacomm::programs {

/// Hooks that keep each endpoint's completions for the thread that waits for them. They use the context of the
/// endpoints.
class DeliveringHooks : public SessionHooks {
 public:
  /// Derived classes call it first.
  [[nodiscard]] Status post_connecting(const EndPoint& endpoint) override;
  void on_completion(const EndPoint& endpoint, const Completion& completion) override;
  void on_disconnected(const EndPoint& endpoint, const Status& why) override;
};

/// As EndPoint::poll() and wait(), in every ThreadMode, for an endpoint of a session with DeliveringHooks.
[[nodiscard]] Polled poll_delivered(const EndPoint& endpoint, std::span<Completion> out);
[[nodiscard]] Result<std::span<Completion>> wait_delivered(const EndPoint& endpoint, std::span<Completion> out,
                                                           Deadline deadline);

}  // namespace rdmacomm::programs
