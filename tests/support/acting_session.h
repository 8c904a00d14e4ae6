// acting_session.h - a session whose hooks are members of the class that contains it. Tests use it to play a peer.
#pragma once

#include <utility>

#include "rdmacomm/session.h"

namespace rdmacomm {

/// Base class. The derived class must call stop() in its destructor, because the hooks use its members.
template <typename Session>
class ActingSession {
 public:
  explicit ActingSession(SessionOptions options)
      : session_(
            std::move(options),
            {.lazy_config_hca = [this](HcaConfig& hca, const PeerInfo& peer) { return lazy_config_hca(hca, peer); },
             .post_connecting = [this](const EndPoint& endpoint) { return post_connecting(endpoint); }}) {}
  ActingSession(const ActingSession&) = delete;
  ActingSession& operator=(const ActingSession&) = delete;
  virtual ~ActingSession() = default;

  [[nodiscard]] Status start() const { return session_.start(); }
  [[nodiscard]] std::uint16_t port() const { return session_.port(); }
  [[nodiscard]] Result<EndPoint> accept(Deadline deadline) const { return session_.accept(deadline); }
  [[nodiscard]] Result<EndPoint> connect() const { return session_.connect(); }
  [[nodiscard]] RDMADevice device() const { return session_.device(); }
  void stop() const { session_.stop(); }

 private:
  virtual Status lazy_config_hca(HcaConfig& /*hca*/, const PeerInfo& /*peer*/) { return {}; }
  virtual Status post_connecting(const EndPoint& /*endpoint*/) { return {}; }

  const Session session_;
};

}  // namespace rdmacomm
