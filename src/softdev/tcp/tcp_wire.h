// tcp_wire.h - the requests of one connected queue pair on their way to a target on another host.
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

/// Where a Wire carries one request out, this one has many under way: each is started, and answered some time later, in
/// order. Payload goes from the application's memory to the socket, and what READ brings from there to its memory. The
/// connection, which carries the other end's requests too, is TcpService's: it reads, and says here what it has read.
/// Threads: one at a time, the holder of the send queue.
class TcpWire {
 public:
  /// pairing  has begun with that target, and lives longer than this
  TcpWire(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn, TcpPairing& pairing);
  ~TcpWire();

  /// Starts a request, in order, of a queue pair that has polled so many messages of the target's. It stays as it is, slices and
  /// all, until it has been answered. false: not now, see obstacle().
  [[nodiscard]] bool start(const ibv_send_wr& wr, std::uint32_t polled);
  /// Connects if need be, and sends what can be sent, without waiting.
  void advance();
  /// The sending half of that.
  void send();
  /// How many are started and not answered.
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_.size(); }
  /// The answer to the oldest of them; false: there is none yet.
  [[nodiscard]] bool take_answer(ExecResult& result);
  /// Why it does not go on; kDone: it does, or there is nothing to do.
  [[nodiscard]] ExecOutcome obstacle() const noexcept;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept { return rnr_timer_; }
  /// Forgets what is under way.
  void abandon();
  [[nodiscard]] const TcpGreeting& greeting() const noexcept { return link_.greeting(); }
  /// The other end asks to be connected with.
  void connect_now();

  // For the connection, once all that was answered is taken.
  /// Goes by this one from now on.
  void adopt(std::shared_ptr<TcpConnection> connection);
  [[nodiscard]] std::shared_ptr<TcpConnection> connection() const noexcept { return connection_; }
  [[nodiscard]] bool goes_by(const TcpConnection& connection) const noexcept {
    return connection_.get() == &connection;
  }
  /// The connection is over.
  void lose();
  /// There is to be no other.
  void refuse() { link_.refuse(); }
  /// All before this number are carried out. false: no target says that.
  [[nodiscard]] bool heard(std::uint32_t done);
  [[nodiscard]] bool take(const TcpAnswer& answer);
  /// Brings the next of `left` bytes of the oldest request's to its memory.
  [[nodiscard]] Moved bring(TcpInput& input, std::uint32_t left);
  /// All of them are there.
  void has_brought() noexcept;

  // For who sends by the connection.
  /// One has gone out in part: nothing else may come before the rest of it.
  [[nodiscard]] bool is_in_request() const noexcept { return sent_bytes_ != 0; }
  /// The next of what is to go out, which says of the other end's requests what `done` says; but of what is to come after more of
  /// these than that, nothing. How many pieces.
  [[nodiscard]] std::size_t gather(std::span<iovec> pieces, std::uint32_t done);
  void sent(std::size_t bytes);
  /// The memory of what is to go out is not there.
  void fail_at_memory() { fail_here(sending_, IBV_WC_LOC_PROT_ERR); }

 private:
  struct UnderWay {
    const ibv_send_wr* wr;
    std::uint32_t bytes;
    std::uint32_t payload;  ///< bytes that go out with it
    std::uint32_t after;    ///< so many of the other end's requests are carried out before it
    ibv_wc_status refused;  ///< here, before it was sent; success: it was not
    TcpRequest head;
    std::vector<ibv_sge> placed;  ///< where its slices lie; empty: where it says

    [[nodiscard]] std::span<const ibv_sge> slices() const noexcept;
    [[nodiscard]] std::size_t whole() const noexcept { return sizeof(head) + payload; }
    /// Its bytes from `done` on.
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
  TcpLink link_;
  std::shared_ptr<TcpConnection> connection_;
  bool comes_ = false;  // it is being made ready
  bool lost_ = false;
  bool receiver_not_ready_ = false;
  std::uint32_t rnr_timer_ = 0;

  ReusingQueue<UnderWay> under_way_;
  std::size_t bringing_ = 0;    // READs and atomics among them: what is fenced waits for these
  std::uint32_t first_ = 0;     // number of the oldest on this connection
  std::size_t sending_ = 0;     // index of the first that is not sent whole
  std::size_t sent_bytes_ = 0;  // of it, head and payload
  // The target has thrown away what comes before one that says "again".
  bool again_ = false;
  std::optional<std::uint32_t> restart_;  // its number, once the one that is being sent is sent whole
  std::uint32_t abandoned_ = 0;           // what comes before this number
  std::uint32_t brought_ = 0;             // whose bytes came last
  std::uint32_t answered_ = 0;            // the target has carried out all before this number
  std::optional<ibv_wc_status> failure_;  // of the one with that number
};

}  // namespace rdmacomm::softdev
