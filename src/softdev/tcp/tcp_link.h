// tcp_link.h - how a queue pair gets its connection: it connects, or asks its peer to connect.
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

/// Makes the greeting of queue pair `own` for its target, with a new token.
[[nodiscard]] TcpGreeting greeting_of(const LocalEnd& own, std::uint32_t target_qpn);
/// Makes the header of a message of `bytes`.
[[nodiscard]] TcpRequest head_of(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;

/// True if the connection carries requests in one direction only: its ends are of two kinds, or are the same queue
/// pair.
[[nodiscard]] bool is_one_way(Service service, const Route& route, std::uint32_t own, std::uint32_t other) noexcept;
/// True if queue pair `own` has to connect. If both queue pairs send, the one with the lesser GID connects; on one
/// host, the one with the lesser number.
[[nodiscard]] bool connects_to_other(Service service, const Route& route, std::uint32_t own,
                                     std::uint32_t other) noexcept;

/// Threads: one at a time, the holder of the send queue's lock.
class TcpLink {
 public:
  enum class State : std::uint8_t {
    kClosed,   ///< advance() will try, now or a little later
    kOpening,  ///< connecting, or sending the greeting
    kRefused,  ///< for good
  };
  /// A socket that the peer has welcomed.
  struct Welcomed {
    UniqueFd socket;
    TcpLimits limits;  ///< of the peer
  };

  /// pairing  identifies the target; nullptr: datagrams, whose target may be any process
  TcpLink(TcpService& service, const Route& route, const TcpGreeting& greeting, TcpPairing* pairing) noexcept;

  /// Continues as far as possible without waiting. A link that calls never returns a socket.
  [[nodiscard]] std::optional<Welcomed> advance();
  [[nodiscard]] State state() const noexcept { return state_; }
  /// The next attempt is made at once, if at all.
  void hurry() noexcept { next_try_ = {}; }
  /// Call this when a connection to the peer was established.
  void note_target_exists() noexcept;
  /// A request begins to wait for a connection: makes a new attempt at once.
  void begin_waiting() noexcept;
  /// True if the target has answered the last attempt since then, and does not accept this initiator's requests now.
  [[nodiscard]] bool is_put_off() const noexcept { return is_put_off_; }
  /// The target has told that on the connection itself.
  void put_off() noexcept { is_put_off_ = true; }
  void refuse();
  /// Allows new attempts after a refusal.
  void allow_again() noexcept { state_ = State::kClosed; }
  [[nodiscard]] const Route& route() const noexcept { return route_; }
  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return introduction_.greeting(); }
  [[nodiscard]] bool calls() const noexcept { return greeting().kind == GreetingKind::kCall; }

 private:
  void open();
  void send_greeting();
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
  bool is_put_off_ = false;
  bool is_older_ = false;        // the current attempt is older than begin_waiting()
  bool target_existed_ = false;  // the target's process existed once: if nothing listens there now, it has ended
  std::chrono::steady_clock::time_point next_try_{};
  std::chrono::milliseconds pause_{1};
};

}  // namespace rdmacomm::softdev
