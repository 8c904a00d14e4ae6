// qp_tcp.h - the part of a queue pair for its traffic with other hosts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "softdev/host/route.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_pairing.h"
#include "softdev/tcp/tcp_wire.h"

namespace rdmacomm::softdev {

class SoftQp;

/// The requests that a queue pair has in progress to another host, and its connection there. Connections use the queue
/// pair through this object.
/// Threads: any. Functions whose names end in _locked, and wire(), are for the holder of the send queue's lock.
class QpTcp final : public TcpOwner {
 public:
  QpTcp(SoftQp& qp, const Parts& parts) noexcept : TcpOwner(parts), qp_(qp) {}

  /// Connects to `target_qpn` at `route.target`, and listens for it.
  /// sends  it has requests of its own
  /// Returns  0, or an errno value.
  [[nodiscard]] int connect_locked(const Route& route, std::uint32_t target_qpn, bool sends);
  /// The secret that it shows, or will show when it is connected; no value: it is not known.
  [[nodiscard]] std::optional<TcpSecret> secret() noexcept;
  /// The wire of its own requests; nullptr: they do not go to another host.
  [[nodiscard]] TcpWire* wire() const noexcept { return wire_.get(); }
  /// It has no more requests of its own.
  void end_sends_locked() noexcept { wire_.reset(); }
  /// It is no longer connected.
  void forget_locked() noexcept;

  /// Starts all waiting requests that can be started, and completes all answered ones.
  void start_locked() noexcept;
  /// Connects, sends, completes and gives up requests, as far as possible without waiting.
  void advance_locked() noexcept;

  [[nodiscard]] bool expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from,
                             std::uint64_t path) noexcept override;
  [[nodiscard]] bool has_sent_greeting(std::uint32_t target_qpn, std::uint64_t token) noexcept override;
  [[nodiscard]] bool admits(const TcpSecret& shown, TcpSecret& own) noexcept override;
  void connect_now() noexcept override;
  [[nodiscard]] bool connects() noexcept override;
  [[nodiscard]] bool is_one_way() noexcept override;
  void advance() noexcept override;
  [[nodiscard]] bool has_unsent_datagrams() noexcept override;
  void adopt(const std::shared_ptr<TcpConnection>& connection) noexcept override;
  [[nodiscard]] bool note_executed(TcpConnection& connection, std::uint32_t done) noexcept override;
  [[nodiscard]] bool take(TcpConnection& connection, const TcpAnswer& answer) noexcept override;
  [[nodiscard]] Moved bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept override;
  void lose(TcpConnection& connection) noexcept override;
  void note_closing(TcpConnection& connection, bool for_good) noexcept override;
  void send_by(TcpConnection& connection) noexcept override;

 private:
  [[nodiscard]] bool is_one_way_locked() const noexcept;
  [[nodiscard]] ExecOutcome obstacle_locked() const noexcept;
  void take_answers_locked() noexcept;
  template <typename Work>
  auto with_wire(TcpConnection& connection, Work&& work) noexcept;

  SoftQp& qp_;
  TcpPairing pairing_;
  // TcpService's thread must not wait for the send queue's lock of another thread, which may be waiting for a stopped
  // process.
  std::atomic<bool> is_connected_{false};
  std::unique_ptr<TcpWire> wire_;
};

}  // namespace rdmacomm::softdev
