// tcp_datagram_target.h - receives datagrams over TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/unique_fd.h"
#include "softdev/local/local_wire.h"
#include "softdev/tcp/tcp_input.h"
#include "softdev/tcp/tcp_served.h"
#include "softdev/tcp/tcp_socket.h"
#include "softdev/tcp/tcp_target.h"

namespace rdmacomm::softdev {

/// Receives datagrams of one remote queue pair for a local one. They are not answered. A datagram that finds no receive
/// waits for a short time, with all later ones. The sender may be any process, so the connection uses little memory
/// until one of its datagrams was taken.
/// Threads: one at a time, see TcpService.
class TcpDatagramTarget final : public TcpServed {
 public:
  TcpDatagramTarget(TcpService& service, UniqueFd socket, const Route& back, const TcpOwner& own,
                    const TcpTarget::Initiator& initiator);

  [[nodiscard]] bool progress() override;
  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }
  [[nodiscard]] std::uint32_t events() const noexcept override;
  [[nodiscard]] bool waits() const noexcept override { return waiting_since_.has_value(); }
  [[nodiscard]] bool has_more() const noexcept override { return has_more_; }
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> last_taken() const noexcept override {
    return last_taken_;
  }
  bool forget(std::uint32_t qpn, bool comes_again) override;

 private:
  TcpStep step();
  TcpStep deliver();
  [[nodiscard]] bool is_honest(const TcpDatagramAddress& address);
  [[nodiscard]] bool is_this_hosts(const ibv_gid& source);

  TcpService& service_;
  UniqueFd socket_;
  const Route back_;
  std::optional<ibv_gid> known_source_;  // a GID known to be of this host
  const std::uint32_t own_qpn_;
  LocalWire wire_;
  TcpInput input_;
  std::optional<TcpRequest> current_;
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;  // since when a datagram waits for a receive
  std::chrono::steady_clock::time_point last_taken_ = std::chrono::steady_clock::time_point::min();
  bool has_more_ = false;
  bool over_ = false;
};

}  // namespace rdmacomm::softdev
