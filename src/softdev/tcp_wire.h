// tcp_wire.h - the requests of one connected queue pair on their way to a target on another host.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "softdev/local_wire.h"
#include "softdev/tcp_link.h"
#include "softdev/tcp_protocol.h"
#include "softdev/tcp_socket.h"
#include "softdev/wire.h"

namespace rdmacomm::softdev {

/// Where a Wire carries one request out, this one has many under way: each is started, and answered some time later, in
/// order. Payload goes from the application's memory to the socket, and what READ brings from there to its memory.
/// Threads: one at a time, the holder of the send queue.
class TcpWire {
 public:
  TcpWire(const LocalEnd& own, const Route& route, std::uint32_t target_qpn);

  /// Starts a request, in order, of a queue pair that has polled `heard` messages of the target's. It stays as it is, slices and
  /// all, until it has been answered. false: not now, see obstacle().
  [[nodiscard]] bool start(const ibv_send_wr& wr, std::uint32_t heard);
  /// Connects, and moves what can be moved, without waiting.
  void advance();
  /// The sending half of that.
  void send();
  /// How many are started and not answered.
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_.size(); }
  /// The answer to the oldest of them; false: there is none yet.
  [[nodiscard]] bool take_answer(ExecResult& result);
  /// The first `messages` of those that are messages, and what was started before them, were carried out: the target has shown
  /// that, without an answer. Ends before a request that brings bytes.
  void take_as_answered(std::uint32_t messages) noexcept;
  /// How many messages the target knows, or will know soon, to be polled here: `heard` of what was sent last.
  [[nodiscard]] std::uint32_t heard_sent() const noexcept { return heard_sent_; }
  /// Why it does not go on; kDone: it does, or there is nothing to do.
  [[nodiscard]] ExecOutcome obstacle() const noexcept;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept { return rnr_timer_; }
  /// Forgets what is under way.
  void abandon();
  [[nodiscard]] std::uint64_t token() const noexcept { return link_.token(); }

 private:
  struct UnderWay {
    const ibv_send_wr* wr;
    std::uint32_t bytes;
    std::uint32_t payload;  ///< bytes that go out with it
    ibv_wc_status refused;  ///< here, before it was sent; success: it was not
    TcpRequest head;
    std::vector<ibv_sge> placed;  ///< where its slices lie; empty: where it says

    [[nodiscard]] std::span<const ibv_sge> slices() const noexcept;
  };

  void advance_link();
  std::size_t gather_output(std::span<iovec> pieces);
  void sent(std::size_t bytes);
  void receive();
  bool receive_payload(int& reads);
  bool read_answers(int& reads);
  void take(const TcpAnswer& answer);
  void lose();
  void forget(const UnderWay& one) noexcept;
  void fail_here(std::size_t index, ibv_wc_status status);
  [[nodiscard]] ibv_wc_status check(const ibv_send_wr& wr, std::uint64_t& bytes, std::vector<ibv_sge>& placed) const;

  const LocalEnd own_;
  TcpLink link_;
  bool lost_ = false;
  bool receiver_not_ready_ = false;
  std::uint32_t rnr_timer_ = 0;

  std::deque<UnderWay> under_way_;
  std::size_t bringing_ = 0;    // READs and atomics among them: what is fenced waits for these
  std::uint32_t first_ = 0;     // number of the oldest on this connection
  std::size_t sending_ = 0;     // index of the first that is not sent whole
  std::size_t sent_bytes_ = 0;  // of it, head and payload
  std::uint32_t heard_sent_ = 0;
  std::uint32_t answered_ = 0;            // the target has carried out all before this number
  std::optional<ibv_wc_status> failure_;  // of the one with that number

  bool drained_ = false;  // there was less in the socket than was asked for
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  std::uint32_t payload_left_ = 0;  // bytes of READ number answered_ that are still to come
};

}  // namespace rdmacomm::softdev
