// tcp_link.h - an initiator's connection to its target, from the first attempt to the welcome.
#pragma once

#include <chrono>
#include <cstdint>

#include "rdmacomm/base/unique_fd.h"
#include "softdev/local_wire.h"
#include "softdev/tcp_introduction.h"
#include "softdev/tcp_protocol.h"
#include "softdev/tcp_socket.h"

namespace rdmacomm::softdev {

class SoftContext;

/// What queue pair `own` greets its target with, and a new token.
[[nodiscard]] TcpGreeting greeting_of(const LocalEnd& own, std::uint32_t target_qpn);
/// What goes before a message of `bytes`.
[[nodiscard]] TcpRequest head_of(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;

/// Threads: one at a time, the holder of the queue pair's send queue.
class TcpLink {
 public:
  enum class State : std::uint8_t {
    kClosed,   ///< advance() will try, now or a little later
    kOpening,  ///< connecting, or greeting
    kReady,
    kRefused,  ///< for good
  };

  TcpLink(SoftContext& context, const Route& route, const TcpGreeting& greeting) noexcept
      : context_(context), route_(route), introduction_(greeting) {}

  /// Goes on as far as it can without waiting; true: it has just become ready.
  bool advance();
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool ready() const noexcept { return state_ == State::kReady; }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  void close();
  /// Whether the service is to say when more can be sent.
  void want_output(bool wanted);
  /// Whether this link has sent this greeting.
  [[nodiscard]] std::uint64_t token() const noexcept { return greeting().token; }

 private:
  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return introduction_.greeting(); }
  void open();
  void greet();
  bool read_welcome();
  void try_again();
  void refuse();

  SoftContext& context_;
  const Route route_;
  TcpIntroduction introduction_;
  UniqueFd socket_;
  State state_ = State::kClosed;
  bool wants_output_ = false;
  bool met_ = false;  // the target's process was there once: where nobody is any more, it has gone
  std::chrono::steady_clock::time_point next_try_{};
  std::chrono::milliseconds pause_{1};
};

}  // namespace rdmacomm::softdev
