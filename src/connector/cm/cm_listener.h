// cm_listener.h - accepts connections by rdma_cm.
// Layer: connector. Uses: base.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/wake_event.h"
#include "connector/listener.h"
#include "connector/lookup.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class CmId;
class CmRegistry;
class LogPace;
struct CmEvent;
struct SocketAddress;

/// Listens by rdma_cm on all RDMA devices of this host, or on the device of one address. Its own thread sorts the
/// incoming requests: new peers are kept for accept(), and requests for queue pairs are passed to their connector. A
/// listener at one address ends when that address's device is removed, and logs a warning.
class CmListener final : public Listener {
 public:
  /// Listens at `where`. If where.host is empty: at all addresses.
  ///
  /// Returns  std::errc::address_in_use; std::errc::address_not_available: the address is not of this host; kNoDevice:
  ///          it is not of an RDMA device; kNotSupported: no rdma_cm on this machine; kInvalidArgument; as FindBy;
  ///          kStopped
  [[nodiscard]] static Result<std::unique_ptr<CmListener>> listen(const HostPort& where, const TcpOptions& options = {},
                                                                  const FindBy& find_by = {});
  ~CmListener() override;

  [[nodiscard]] Result<std::unique_ptr<Connector>> accept() override;
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }
  [[nodiscard]] const std::string& address() const noexcept override { return address_; }
  [[nodiscard]] int fd() const noexcept override { return arrived_.fd(); }

  /// New peers that may wait for accept(); more are refused.
  static constexpr std::size_t kMaxWaiting = 128;

 private:
  struct Request;

  CmListener(WakeEvent arrived, WakeEvent stop);
  Status listen_anywhere(std::uint16_t port);
  Status listen_at_host(const HostPort& where, const TcpOptions& options, const FindBy& find_by);
  Status listen_at(SocketAddress address);
  void run();
  void handle(const CmEvent& event, const CmId& listening);
  void sort_in(Request request);
  Result<std::unique_ptr<Connector>> welcome(Request request);
  void warn(const std::string& what, const Error& why);

  std::vector<std::unique_ptr<CmId>> ids_;  // one for each address family
  WakeEvent arrived_;
  WakeEvent stop_;
  std::uint16_t port_ = 0;
  std::string address_;
  std::shared_ptr<CmRegistry> registry_;
  std::mutex mutex_;
  std::deque<Request> waiting_;
  const std::unique_ptr<LogPace> pace_;
  std::thread thread_;
};

}  // namespace rdmacomm
