// tcp_target.h - requests that come by TCP, carried out on this host as if their initiator were here.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "softdev/local/local_wire.h"
#include "softdev/local/named_targets.h"
#include "softdev/tcp/tcp_input.h"
#include "softdev/tcp/tcp_output.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

class TcpOwner;
class TcpService;
class TargetFinder;

/// What becomes of reading from a connection.
enum class TcpStep : std::uint8_t {
  kGoOn,
  kWait,    ///< there is no more for now
  kLeave,   ///< it is over, once what is to be said has been said
  kBroken,  ///< it is over
};

/// That of reading that ended with this errno value.
[[nodiscard]] constexpr TcpStep step_of(int error) noexcept {
  if (error == 0) return TcpStep::kGoOn;
  return error == EAGAIN ? TcpStep::kWait : TcpStep::kBroken;
}

/// The work request that `request` is, with one slice.
[[nodiscard]] ibv_send_wr work_request_of(const TcpRequest& request, ibv_sge& slice) noexcept;

/// Is the initiator of the requests that come by one connection: the same checks, copies and completions as on one host
/// (LocalWire). Small messages go by a buffer, so that many of them cost one system call; large ones straight between the socket
/// and the target's memory, but for those of XRC: theirs may be the memory of another process, and many initiators take turns at a
/// queue, which one that sends half a message and then nothing must not keep. Those are gathered whole, once it is known that the
/// memory that they name may be used. The answer to a long READ of XRC is copied to a buffer and sent from there, piece by piece.
///
/// One that finds no receive is put aside, without its payload where that is long, and all that come behind it are thrown away,
/// for answers may be among what follows. Once there is a receive the initiator hears where to begin again.
/// An XRC request also waits while another initiator has its turn at the queue, and while the queue is looked for. Nothing behind it
/// is read meanwhile.
/// Threads: one at a time, see TcpService; what it answers, it says with the queue pair's send queue held.
class TcpTarget {
 public:
  struct Initiator {
    std::uint32_t qpn;
    std::uint32_t path_mtu;  ///< bytes
    Service service;
  };
  TcpTarget(TcpService& service, TcpOwner& own, const Initiator& initiator, TcpInput& input, TcpOutput& output);

  /// A request whose head has come.
  [[nodiscard]] TcpStep begin(const TcpRequest& request);
  /// There is more of it to come.
  [[nodiscard]] bool in_request() const noexcept { return current_.has_value() || skipping_ != 0; }
  [[nodiscard]] TcpStep go_on();
  /// The last request was a long one that brings bytes, and the next is probably.
  [[nodiscard]] bool in_stream() const noexcept { return in_stream_; }
  /// One waits for what no socket tells of: look_again() is to be called soon, and then go_on().
  [[nodiscard]] bool waits() const noexcept { return held_ || request_waits_since_ || read_waits_since_; }
  /// The current request waits so: nothing is read from the socket meanwhile.
  [[nodiscard]] bool stands_still() const noexcept { return request_waits_since_ && current_; }
  [[nodiscard]] TcpStep look_again();
  /// A request was refused: the queue pair has failed.
  [[nodiscard]] bool has_refused() const noexcept { return has_refused_; }
  /// The next bytes of what a READ asks for, `longest` at the most; with the send queue held. EFAULT: they are not there any more;
  /// EBUSY: they are not to be had now, and it waits().
  [[nodiscard]] Moved read_part(const TcpOutput::Reading& reading, std::size_t longest) noexcept;

 private:
  /// A request that waits for a receive.
  struct Held {
    TcpRequest request;
    std::uint32_t moved;           ///< bytes of it that are at their place
    bool whole;                    ///< its payload is here
    std::vector<std::byte> bytes;  ///< that
  };

  TcpStep whole_request();
  TcpStep fetch(const TcpRequest& request, std::uint32_t length);
  TcpStep stream_in();
  TcpStep write_end();
  TcpStep announce_write();
  TcpStep check_read();
  TcpStep answer_later();
  TcpStep check_long_xrc();
  Moved read_xrc_part(const TcpOutput::Reading& reading) noexcept;
  TcpStep skip();
  TcpStep fill(std::size_t needed);
  TcpStep settle(const ExecResult& result);
  TcpStep hold();
  TcpStep fail(const ExecResult& result);
  /// kBusy: again soon.
  ExecResult execute(const TcpRequest& request, std::span<std::byte> bytes);
  ExecResult execute_xrc(const ibv_send_wr& wr, std::uint32_t queue);
  ExecResult execute_held();
  void announce(const TcpRequest& request) noexcept;
  void request_done();
  [[nodiscard]] bool say(TcpAnswer::Kind kind, ibv_wc_status status = IBV_WC_SUCCESS);
  void wake_after(std::size_t bytes) noexcept;

  TcpOwner& own_;
  TcpInput& in_;
  TcpOutput& out_;
  const Service service_;
  LocalWire wire_;
  TargetFinder& finder_;
  std::optional<NamedTargets> queues_;  // of XRC
  std::vector<std::byte> piece_;        // of a long READ of XRC

  std::optional<TcpRequest> current_;
  std::uint32_t moved_ = 0;     // bytes of the current message, where it goes in parts
  std::uint32_t skipping_ = 0;  // bytes of a message that nobody wants
  bool is_unchecked_ = false;   // a long one of XRC
  std::optional<Held> held_;
  // For another initiator's turn to be over, or a queue to be found.
  std::optional<std::chrono::steady_clock::time_point> request_waits_since_;
  std::optional<std::chrono::steady_clock::time_point> read_waits_since_;
  bool throws_away_ = false;  // until a request says that it comes again
  bool has_refused_ = false;
  bool in_stream_ = false;
  int woken_after_ = 1;  // its socket tells of so many bytes
};

}  // namespace rdmacomm::softdev
