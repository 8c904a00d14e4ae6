// cm_connector.h - a connection to a peer by rdma_cm, the RDMA connection manager.
// Layer: connector. Uses: base.   Messages: handshake.h
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "connector/connector.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class CmRegistry;
class CmRequests;
class CmStream;

/// A Connector by rdma_cm, without a TCP connection. Its messages are sent over a queue pair of its own, and each queue
/// pair of the endpoint becomes a connection of rdma_cm. iWARP can be connected only in this way. On InfiniBand, only
/// rdma_cm asks the subnet manager for the path. How to choose: docs/addressing.md "TCP or rdma_cm".
/// Needs rdma_cm (/dev/infiniband/rdma_cm) and one of its devices. For soft0 that is the case under softdev-run only.
class CmConnector final : public Connector {
 public:
  /// Connects to a server that listens by CmListener. Tries every address of the host, and repeats this while no
  /// program listens there, until options.connect_timeout has passed.
  ///
  /// The exception is siw, which connects its TCP in the kernel before rdma_connect(3) returns. If a host drops TCP's
  /// SYN packets (a firewall), neither options.connect_timeout nor cancel_fd has an effect until TCP gives up: 127 s
  /// with the usual net.ipv4.tcp_syn_retries of 6, 15 s with 3. The same applies to link().
  ///
  /// cancel_fd  becomes readable (and stays so) to give up; -1: none
  /// Returns    std::errc::connection_refused: no program listens there; kPeerRefused; kTimeout: no answer; kStopped;
  ///            kNoDevice: no RDMA device on the route to the server; kNotSupported: no rdma_cm on this machine;
  ///            kInvalidArgument: options.validate(), or a host that has no address; kVersionMismatch;
  ///            an errno of rdma_cm, such as std::errc::connection_reset: it answered, and connecting failed
  [[nodiscard]] static Result<std::unique_ptr<CmConnector>> connect(const HostPort& server,
                                                                    const TcpOptions& options = {}, int cancel_fd = -1);
  ~CmConnector() override;

  [[nodiscard]] std::unique_ptr<verbs::QueuePairLink> link(const QpAddress& local, const QpAddress& remote,
                                                           Deadline deadline) override;
  void all_linked() noexcept override;
  [[nodiscard]] Result<std::optional<RdmaWay>> rdma_way() const override;
  void shutdown() noexcept override;

 private:
  friend class CmListener;
  CmConnector(std::unique_ptr<CmStream> stream, std::uint64_t token);

  CmStream& messages_;  // the stream that Connector owns
  const std::uint64_t token_;
  std::shared_ptr<CmRegistry> registry_;  // server: finds requests_ by token_
  std::shared_ptr<CmRequests> requests_;  // server: requests for this peer's queue pairs
};

}  // namespace rdmacomm
