// tcp_served.h - what TcpService has at the end of a socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace rdmacomm::softdev {

/// What a connection is to this process.
enum class TcpStanding : std::uint8_t {
  kPeer,     ///< a peer, or expected and being asked whether it is
  kUnknown,  ///< it has not said yet who it is
  kOver,     ///< everything was said to it: it only has to close
};

/// Threads: one at a time, see TcpService.
class TcpServed {
 public:
  TcpServed() = default;
  TcpServed(const TcpServed&) = delete;
  TcpServed& operator=(const TcpServed&) = delete;
  virtual ~TcpServed() = default;

  /// Goes on as far as it can without waiting. false: it is over.
  [[nodiscard]] virtual bool progress() = 0;
  [[nodiscard]] virtual int socket() const noexcept = 0;
  /// The events of epoll that it waits for; 0: it sees to that itself.
  [[nodiscard]] virtual std::uint32_t events() const noexcept = 0;
  /// Something had come, when it last went on.
  [[nodiscard]] virtual bool has_news() const noexcept { return true; }
  /// To ask its socket costs no more than to ask whether that is worth it.
  [[nodiscard]] virtual bool is_brief() const noexcept { return false; }
  /// From now on polls ask its socket, and epoll tells of it no more; or the other way round again.
  virtual void leave_to_polls(bool /*left*/) {}
  /// It waits for what no socket tells of: progress() is to be called again soon.
  [[nodiscard]] virtual bool waits() const noexcept { return false; }
  /// It has stopped so that others have their turn.
  [[nodiscard]] virtual bool has_more() const noexcept { return false; }
  /// It is not known yet who it is, or it is over for all but the last words: progress() is to be called now and then.
  [[nodiscard]] virtual bool lingers() const noexcept { return false; }
  /// Those that are no peers give way where there are too many.
  [[nodiscard]] virtual TcpStanding standing() const noexcept { return TcpStanding::kPeer; }
  /// It has carried out what the other end does not know of yet; urgent: of much.
  [[nodiscard]] virtual bool owes_answer() const noexcept { return false; }
  [[nodiscard]] virtual bool owes_much() const noexcept { return false; }
  /// Says it.
  virtual void answer_what_is_owed() {}
  /// Queue pair `qpn` of this host is not served any more.
  /// `comes_again`: it may be connected once more, and the other end is to try that. false: this is not about that queue pair.
  virtual bool forget(std::uint32_t /*qpn*/, bool /*comes_again*/) { return false; }
  /// Of who sends datagrams, and may have to make room for another: when one was taken last, time_point::min() where none was yet.
  /// Nothing: it is not of these.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> last_taken() const noexcept { return {}; }
  /// A second socket that it waits for, at each edge; -1: there is none.
  [[nodiscard]] virtual int question() const noexcept { return -1; }
  /// What goes on with the socket from now on; nullptr: this.
  [[nodiscard]] virtual std::shared_ptr<TcpServed> successor() { return nullptr; }
};

}  // namespace rdmacomm::softdev
