// tcp_link.h - how a queue pair comes to its connection: it connects, or has the other end do so.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/unique_fd.h"
#include "softdev/local/local_wire.h"
#include "softdev/tcp/tcp_introduction.h"
#include "softdev/tcp/tcp_pairing.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

class TcpService;

/// What queue pair `own` greets its target with, and a new token.
[[nodiscard]] TcpGreeting greeting_of(const LocalEnd& own, std::uint32_t target_qpn);
/// What goes before a message of `bytes`.
[[nodiscard]] TcpRequest head_of(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;

/// Whether the connection carries requests one way alone: its ends are of two kinds, or one and the same.
[[nodiscard]] bool is_one_way(Service service, const Route& route, std::uint32_t own, std::uint32_t other) noexcept;
/// Which of two queue pairs, both of which send, has to connect: the one with the lesser GID, on one host the lesser number.
[[nodiscard]] bool connects_to_other(Service service, const Route& route, std::uint32_t own,
                                     std::uint32_t other) noexcept;

/// Threads: one at a time, the holder of the queue pair's send queue.
class TcpLink {
 public:
  enum class State : std::uint8_t {
    kClosed,   ///< advance() will try, now or a little later
    kOpening,  ///< connecting, or greeting
    kRefused,  ///< for good
  };
  /// A socket that the other end has welcomed.
  struct Welcomed {
    UniqueFd socket;
    std::uint32_t path_mtu;  ///< the other end's
  };

  /// pairing  by which the target is known again; nullptr: of datagrams, whose target may be anybody
  TcpLink(TcpService& service, const Route& route, const TcpGreeting& greeting, TcpPairing* pairing) noexcept;

  /// Goes on as far as it can without waiting. A link that calls has nothing to give.
  [[nodiscard]] std::optional<Welcomed> advance();
  [[nodiscard]] State state() const noexcept { return state_; }
  /// At once, if it tries at all.
  void hurry() noexcept { next_try_ = {}; }
  /// The other end has been there.
  void has_met() noexcept;
  void refuse();
  /// Tries again though it was refused.
  void forgive() noexcept { state_ = State::kClosed; }
  [[nodiscard]] const Route& route() const noexcept { return route_; }
  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return introduction_.greeting(); }
  [[nodiscard]] bool calls() const noexcept { return greeting().kind == GreetingKind::kCall; }

 private:
  void open();
  void greet();
  void want_output(bool wanted);
  [[nodiscard]] std::optional<Welcomed> read_welcome();
  void try_again();

  TcpService& service_;
  const Route route_;
  TcpPairing* const pairing_;
  TcpIntroduction introduction_;
  UniqueFd socket_;
  State state_ = State::kClosed;
  bool wants_output_ = false;
  bool met_ = false;  // the target's process was there once: where nobody is any more, it has gone
  std::chrono::steady_clock::time_point next_try_{};
  std::chrono::milliseconds pause_{1};
};

}  // namespace rdmacomm::softdev
