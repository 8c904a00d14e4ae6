// tcp_target.h - executes requests that arrive over TCP as if their initiator were on this host.
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

/// The result of reading from a connection.
enum class TcpStep : std::uint8_t {
  kGoOn,
  kWait,    ///< no more input at present
  kClose,   ///< it ends after all pending output was sent
  kBroken,  ///< it has ended
};

/// The result of reading that ended with this errno value.
[[nodiscard]] constexpr TcpStep step_of(int error) noexcept {
  if (error == 0) return TcpStep::kGoOn;
  return error == EAGAIN ? TcpStep::kWait : TcpStep::kBroken;
}

/// Converts `request` to a work request with one slice.
[[nodiscard]] ibv_send_wr work_request_of(const TcpRequest& request, ibv_sge& slice) noexcept;

/// Acts as the initiator of the requests that arrive on one connection, with the same checks, copies and completions as
/// on one host (LocalWire). Small messages are read through a buffer: one system call can read several of them. Large
/// messages are moved directly between the socket and the target's memory, except for XRC.
///
/// XRC memory may belong to another process, and many initiators take turns at a queue. An initiator that sends half a
/// message and then nothing must not block the queue. So an XRC message is first received completely, after a check
/// that the memory named in the request may be used. The data of a long XRC READ is copied to a buffer and sent from
/// there, piece by piece.
///
/// A message that finds no receive is put aside, without its payload if that is long. All later requests are discarded,
/// because answers may follow them in the stream. When a receive is posted, the initiator is told at which request to
/// start again.
/// An XRC request also waits while another initiator has its turn at the queue, and while the queue is looked for.
/// Meanwhile nothing after it is read.
/// Threads: one at a time, see TcpService. Answers are sent under the send queue's lock.
class TcpTarget {
 public:
  struct Initiator {
    std::uint32_t qpn;
    TcpLimits limits;
    Service service;
  };
  TcpTarget(TcpService& service, TcpOwner& own, const Initiator& initiator, TcpInput& input, TcpOutput& output);

  /// Starts a request whose header was received.
  [[nodiscard]] TcpStep begin(const TcpRequest& request);
  /// True if more bytes of the current request must arrive.
  [[nodiscard]] bool in_request() const noexcept { return current_.has_value() || skipping_ != 0; }
  [[nodiscard]] TcpStep go_on();
  /// True if the last request was a long one with payload. The next one probably is, too.
  [[nodiscard]] bool in_stream() const noexcept { return in_stream_; }
  /// True if a request waits for something that no socket reports: call look_again() soon, and then go_on().
  [[nodiscard]] bool waits() const noexcept { return held_ || request_waits_since_ || read_waits_since_; }
  /// True if the current request waits in this way. Nothing is read from the socket meanwhile.
  [[nodiscard]] bool stands_still() const noexcept { return request_waits_since_ && current_; }
  [[nodiscard]] TcpStep look_again();
  /// True if a request was refused, so the queue pair has failed.
  [[nodiscard]] bool has_refused() const noexcept { return has_refused_; }
  /// Sends the next part of the data for a READ, at most `longest`. Called under the send queue's lock. EFAULT: its
  /// memory does not exist any more. EBUSY: the data is not available now, and it waits().
  [[nodiscard]] Moved read_part(const TcpOutput::Reading& reading, std::size_t longest) noexcept;

 private:
  /// A request that waits for a receive.
  struct Held {
    TcpRequest request;
    std::uint32_t moved;           ///< bytes that are in their final place
    bool whole;                    ///< all of its payload was received
    std::vector<std::byte> bytes;  ///< the payload
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
  /// Returns kBusy: try again soon.
  ExecResult execute(const TcpRequest& request, std::span<std::byte> bytes);
  ExecResult execute_xrc(const ibv_send_wr& wr, std::uint32_t queue);
  ExecResult execute_held();
  void announce(const TcpRequest& request) noexcept;
  void request_done();
  void count(const TcpRequest& request) noexcept;
  [[nodiscard]] bool send_answer(TcpAnswer::Kind kind, ibv_wc_status status = IBV_WC_SUCCESS);
  void wake_after(std::size_t bytes) noexcept;

  TcpOwner& own_;
  TcpInput& in_;
  TcpOutput& out_;
  const Service service_;
  const std::uint32_t packet_bytes_;
  Traffic& traffic_;
  LocalWire wire_;
  TargetFinder& finder_;
  std::optional<NamedTargets> queues_;  // for XRC
  std::vector<std::byte> piece_;        // buffer for a long XRC READ

  std::optional<TcpRequest> current_;
  std::uint32_t moved_ = 0;     // moved bytes of the current message, if it is moved in parts
  std::uint32_t skipping_ = 0;  // bytes of a message to discard
  bool is_unchecked_ = false;   // a long XRC request whose memory is not checked yet
  std::optional<Held> held_;
  // Since when it waits for another initiator's turn to end, or for a queue to be found.
  std::optional<std::chrono::steady_clock::time_point> request_waits_since_;
  std::optional<std::chrono::steady_clock::time_point> read_waits_since_;
  std::optional<std::uint32_t> psn_;  // of all its requests
  bool throws_away_ = false;          // until a request with `again`
  bool has_refused_ = false;
  bool in_stream_ = false;
  int woken_after_ = 1;  // its socket is reported when this number of bytes has arrived
};

}  // namespace rdmacomm::softdev
