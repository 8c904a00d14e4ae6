// delivery.h - a program's own thread gets the completions of its endpoints, whoever polls for them.
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <span>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/endpoint/endpoint.h"
#include "rdmacomm/session/rdma_session.h"

namespace rdmacomm::programs {

/// Completions on their way from the threads of a session, which call hooks, to the thread that waits for them.
/// Threads: any.
class Delivery {
 public:
  void put(const EndPoint& endpoint, const Completion& completion);
  /// Nothing will be put any more for `endpoint`.
  void end(const EndPoint& endpoint);
  /// Frees what was kept for it.
  void forget(const EndPoint& endpoint);

  /// As EndPoint::poll() and wait(), in every ThreadMode.
  [[nodiscard]] Polled poll(EndPoint& endpoint, std::span<Completion> out);
  [[nodiscard]] Result<std::span<Completion>> wait(EndPoint& endpoint, std::span<Completion> out, Deadline deadline);

 private:
  struct Inbox {
    std::deque<Completion> completions = {};
    bool ended = false;
  };

  [[nodiscard]] static bool served(const EndPoint& endpoint) noexcept {
    return endpoint.config().thread_mode != ThreadMode::kApplication;
  }
  static std::span<Completion> take(Inbox& inbox, std::span<Completion> out);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const EndPoint*, Inbox> inboxes_;
};

/// A session whose hooks put what they get into `delivery`.
template <std::derived_from<RDMASession> Base>
class DeliveringSession : public Base {
 public:
  using Base::Base;

  void on_send_done(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_recv_done(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_write_done(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_read_done(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_atomic_done(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_recv_write_imm_done(EndPoint& endpoint, const Completion& completion) override {
    delivery.put(endpoint, completion);
  }
  void on_failed(EndPoint& endpoint, const Completion& completion) override { delivery.put(endpoint, completion); }
  void on_disconnected(EndPoint& endpoint, const Status& /*why*/) override { delivery.end(endpoint); }

  Delivery delivery;
};

}  // namespace rdmacomm::programs
