// cm_id.h - one connection of rdma_cm, with its events on a channel of its own. Private to the connector layer.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "connector/connector.h"
#include "connector/socket.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A copy of an event of rdma_cm and its data; the event itself is acknowledged already. A value.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;            ///< for an error: -errno, or the transport's reason
  rdma_cm_id* id = nullptr;  ///< CONNECT_REQUEST: the new connection; the receiver of the event owns it
  std::vector<std::byte> private_data = {};

  /// "rejected, status 28": for messages.
  [[nodiscard]] std::string to_text() const;
};

/// How long to wait, and other ends of a wait. A value.
struct CmWait {
  Deadline deadline;
  int cancel_fd = -1;               ///< becomes readable to give up; -1: none
  Connector* connection = nullptr;  ///< the connection that the wait is for: its end ends the wait; nullptr: none

  /// Sleeps until `fd` is readable. kTimeout; kStopped; or why `connection` has ended.
  [[nodiscard]] Status sleep_on(int fd) const;
};

/// Owns an rdma_cm_id and its event channel. A resource. Threads: one at a time; fd() from any.
class CmId {
 public:
  /// kNotSupported: this machine has no rdma_cm.
  [[nodiscard]] static Result<std::unique_ptr<CmId>> create();
  /// Creates an id with a device, a port and a path to `peer`.
  ///
  /// local          the source address, with any port
  /// traffic_class  0: the system's
  /// Returns  kNoDevice: no RDMA device on the route; kTimeout; kStopped; as create(); or the error of rdma_cm
  [[nodiscard]] static Result<std::unique_ptr<CmId>> towards(const SocketAddress& peer, const SocketAddress& local,
                                                             std::uint8_t traffic_class, const CmWait& wait);
  /// Takes over the connection of a CONNECT_REQUEST.
  [[nodiscard]] static Result<std::unique_ptr<CmId>> adopt(rdma_cm_id* incoming);
  CmId(const CmId&) = delete;
  CmId& operator=(const CmId&) = delete;
  ~CmId();

  /// The next event. Returns  as CmWait::sleep_on
  [[nodiscard]] Result<CmEvent> await_event(const CmWait& wait);
  /// The next event, if one is pending.
  [[nodiscard]] std::optional<CmEvent> take_event();

  [[nodiscard]] rdma_cm_id* get() const noexcept { return id_; }
  [[nodiscard]] int fd() const noexcept { return channel_->fd; }
  /// Whether its device is iWARP, which moves queue pairs by itself.
  [[nodiscard]] bool is_iwarp() const noexcept;
  [[nodiscard]] SocketAddress local() const;
  [[nodiscard]] SocketAddress peer() const;

 private:
  CmId() = default;
  Status open_channel();
  Status set_traffic_class(std::uint8_t traffic_class);
  Status resolve(const SocketAddress& peer, const SocketAddress& local, const CmWait& wait);
  Status await_step(rdma_cm_event_type wanted, const std::string& what, const CmWait& wait);

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

/// The parameters of rdma_connect(3) and rdma_accept(3), with private data that must outlive them.
[[nodiscard]] rdma_conn_param connection_parameters(std::span<const std::byte> private_data);

}  // namespace rdmacomm
