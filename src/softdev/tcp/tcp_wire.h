// tcp_wire.h - sends the requests of one connected queue pair to a target on another host.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "softdev/common/reusing_queue.h"
#include "softdev/local/local_wire.h"
#include "softdev/local/wire.h"
#include "softdev/tcp/tcp_input.h"
#include "softdev/tcp/tcp_link.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

class TcpConnection;

/// A Wire executes one request at a time. A TcpWire has many requests in progress: each is started, and answered some
/// time later, in order. Payload goes from the application's memory to the socket, and data of a READ from the socket
/// to the application's memory. TcpService owns the connection, which carries the peer's requests, too. It reads from
/// the connection and passes the input to this object.
/// Threads: one at a time, the holder of the send queue's lock.
class TcpWire {
 public:
  /// pairing  has begun with that target, and outlives this object
  /// path     path_word() of the requests
  TcpWire(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn, std::uint64_t path,
          TcpPairing& pairing);
  ~TcpWire();

  /// From now on, requests have this PSN, see LinkTerms, and at most `reads` READs and atomics are in progress. Required
  /// before the first request.
  void begin(std::uint32_t psn, std::uint32_t reads) noexcept {
    psn_ = psn;
    most_reads_ = reads;
  }
  /// Starts a request, in order. `wr` and its slices must not change until it is answered.
  /// polled   number of messages from the peer that the queue pair has polled
  /// Returns  false: not now, see obstacle().
  [[nodiscard]] bool start(const ibv_send_wr& wr, std::uint32_t polled);
  /// Connects if necessary, and sends everything that can be sent without waiting.
  void advance();
  /// Only sends.
  void send();
  /// The number of requests that are started and not answered.
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_.size(); }
  /// Takes the answer to the oldest request. Returns false: none yet.
  [[nodiscard]] bool take_answer(ExecResult& result);
  /// As TcpLink::begin_waiting().
  void begin_waiting() noexcept { link_.begin_waiting(); }
  /// True if the target exists, but does not accept requests from this queue pair now.
  [[nodiscard]] bool is_put_off() const noexcept { return link_.is_put_off(); }
  /// The reason why no request can continue; kDone: none.
  [[nodiscard]] ExecOutcome obstacle() const noexcept;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept { return rnr_timer_; }
  /// Drops all requests in progress.
  void abandon();
  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return link_.greeting(); }
  /// The peer asks this end to connect.
  void connect_now();

  // For the connection, after all earlier answers are taken.
  /// Uses this connection from now on.
  void adopt(std::shared_ptr<TcpConnection> connection);
  [[nodiscard]] std::shared_ptr<TcpConnection> connection() const noexcept { return connection_; }
  [[nodiscard]] bool uses(const TcpConnection& connection) const noexcept { return connection_.get() == &connection; }
  /// The connection has ended.
  void lose();
  /// No other connection will be accepted.
  void refuse() { link_.refuse(); }
  /// All requests before this number were executed. Returns false: no correct target sends that.
  [[nodiscard]] bool note_executed(std::uint32_t done);
  [[nodiscard]] bool take(const TcpAnswer& answer);
  /// Receives the next of `left` bytes of data into the memory of the oldest request.
  [[nodiscard]] Moved bring(TcpInput& input, std::uint32_t left);
  /// All of this data has arrived.
  void has_brought() noexcept;

  // For the sender on the connection.
  /// True if a request was sent in part: its rest must be sent before anything else.
  [[nodiscard]] bool is_in_request() const noexcept { return sent_bytes_ != 0; }
  /// Collects the next bytes to send. Their headers report `done` executed requests of the peer. Stops before a request
  /// that must follow more executed requests than `done`. Returns the number of pieces.
  [[nodiscard]] std::size_t gather(std::span<iovec> pieces, std::uint32_t done);
  void sent(std::size_t bytes);
  /// The memory of the next bytes to send does not exist.
  void fail_at_memory() { fail_here(sending_, IBV_WC_LOC_PROT_ERR); }

 private:
  struct UnderWay {
    const ibv_send_wr* wr;
    std::uint32_t bytes;
    std::uint32_t payload;  ///< size of the payload that is sent with it
    std::uint32_t after;    ///< number of requests from the peer that are executed before it
    ibv_wc_status refused;  ///< local refusal before it was sent; success: none
    TcpRequest head;
    std::vector<ibv_sge> placed;  ///< its translated slices; empty: no translation needed

    [[nodiscard]] std::span<const ibv_sge> slices() const noexcept;
    [[nodiscard]] std::size_t whole() const noexcept { return sizeof(head) + payload; }
    /// The pieces of its bytes from `done` on.
    [[nodiscard]] std::size_t pieces(std::size_t done, std::span<iovec> to);
  };

  [[nodiscard]] bool is_connected() const noexcept { return connection_ != nullptr; }
  void open();
  void restart_at(std::size_t index) noexcept;
  void finish_request();
  [[nodiscard]] bool was_begun(std::uint32_t number) const noexcept;
  [[nodiscard]] bool take_payload(const TcpAnswer& answer);
  bool fail_from(const TcpAnswer& answer);
  [[nodiscard]] bool is_abandoned(std::uint32_t done) const noexcept;
  void forget(const UnderWay& one) noexcept;
  void fail_here(std::size_t index, ibv_wc_status status);
  [[nodiscard]] ibv_wc_status check(const ibv_send_wr& wr, std::uint64_t& bytes, std::vector<ibv_sge>& placed) const;

  TcpService& service_;
  const LocalEnd own_;
  std::uint32_t psn_ = 0;
  std::uint32_t most_reads_ = 0;
  TcpLink link_;
  std::shared_ptr<TcpConnection> connection_;
  bool comes_ = false;  // a connection is being set up
  bool lost_ = false;
  bool receiver_not_ready_ = false;
  std::uint32_t rnr_timer_ = 0;

  ReusingQueue<UnderWay> under_way_;
  std::size_t bringing_ = 0;    // number of READs and atomics in progress: fenced requests wait for them
  std::uint32_t first_ = 0;     // number of the oldest request on this connection
  std::size_t sending_ = 0;     // index of the first request that is not completely sent
  std::size_t sent_bytes_ = 0;  // of this request, header and payload
  // The target has discarded all requests before one with `again`.
  bool again_ = false;
  std::optional<std::uint32_t> restart_;  // its number, after the current request is completely sent
  std::uint32_t abandoned_ = 0;           // requests before this number are abandoned
  std::uint32_t brought_ = 0;             // number of the last request with received data
  std::uint32_t answered_ = 0;            // the target has executed all requests before this number
  std::optional<ibv_wc_status> failure_;  // failure of the request with number answered_
};

}  // namespace rdmacomm::softdev
