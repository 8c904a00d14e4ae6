// tcp_connection.h - the connection between a queue pair and its peer on another host.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/unique_fd.h"
#include "softdev/tcp/tcp_input.h"
#include "softdev/tcp/tcp_output.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_served.h"
#include "softdev/tcp/tcp_target.h"

namespace rdmacomm::softdev {

class TcpOwner;
class TcpService;
class TcpWire;

/// One connection for both directions. Received frames are the peer's requests, which a TcpTarget executes, and answers
/// for the queue pair's TcpWire. Reading never stops for either of them. Sent frames are always sent whole, answers
/// before requests.
/// Threads: one thread at a time reads and executes, see TcpService. Only the holder of the send queue's lock sends.
/// Lifetime: shared by TcpService and the TcpWire that uses it.
class TcpConnection final : public TcpServed, public std::enable_shared_from_this<TcpConnection> {
 public:
  struct Ends {
    std::uint64_t id;  ///< its key in TcpService
    bool sends;        ///< it carries local requests
    bool receives;     ///< it carries the peer's requests
    TcpTarget::Initiator other;
  };
  TcpConnection(TcpService& service, UniqueFd socket, std::shared_ptr<TcpOwner> own, const Ends& ends);
  ~TcpConnection() override;

  // For the holder of the send queue's lock.
  /// Sends answers, then requests, until all are sent or the socket is full. `requests` may be nullptr. Returns 0: all
  /// is sent; EAGAIN: more is left; another errno value: the connection has ended.
  [[nodiscard]] int send(TcpWire* requests);
  /// Ends sending and answering.
  void cut() noexcept;
  /// Sends the rest of a request that its owner gives up. Returns false: its memory does not exist any more.
  [[nodiscard]] bool go_first(std::span<const iovec> pieces);
  [[nodiscard]] TcpOutput& output() noexcept { return output_; }
  [[nodiscard]] const TcpLimits& peer_limits() const noexcept { return ends_.other.limits; }
  /// Like send(), and also sends the data for READs. Called by the service's thread.
  void respond(TcpWire* requests);

  // TcpServed
  [[nodiscard]] bool progress() override;
  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }
  [[nodiscard]] std::uint32_t events() const noexcept override { return 0; }
  [[nodiscard]] bool waits() const noexcept override { return target_ && target_->waits(); }
  [[nodiscard]] bool has_more() const noexcept override { return has_more_; }
  [[nodiscard]] bool lingers() const noexcept override { return stage_ == Stage::kClosing; }
  [[nodiscard]] TcpStanding standing() const noexcept override {
    return stage_ == Stage::kClosing && own_ == nullptr ? TcpStanding::kOver : TcpStanding::kPeer;
  }
  [[nodiscard]] bool owes_answer() const noexcept override { return stage_ == Stage::kServing && output_.owes(); }
  [[nodiscard]] bool owes_much() const noexcept override { return output_.owed() >= kMuch; }
  void answer_what_is_owed() override;
  bool forget(std::uint32_t qpn, bool comes_again) override;
  [[nodiscard]] bool has_received() const noexcept override { return has_received_; }
  /// False between long messages: there epoll reports its socket when enough bytes have arrived.
  [[nodiscard]] bool is_brief() const noexcept override { return stage_ == Stage::kServing && !in_stream_; }
  void set_read_by_polls(bool by_polls) override;

 private:
  enum class Stage : std::uint8_t { kServing, kClosing, kOver };
  /// Upper bound of the requests that may wait for their answer while the connection has more to do.
  static constexpr std::uint32_t kMuch = 16;

  void serve();
  TcpStep step();
  TcpStep fill(std::size_t needed);
  TcpStep take_request();
  TcpStep take_answer();
  TcpStep bring();
  void end_if_over(TcpStep step);
  void end(TcpStep how);
  bool linger();
  void drop_queue_pair();
  void send_all();
  bool send_reading();
  [[nodiscard]] Moved send_pieces(std::span<iovec> pieces) noexcept;
  void want_output(bool wanted) noexcept;
  void watch_or_not();

  TcpService& service_;
  const UniqueFd socket_;
  const std::size_t longest_send_;
  std::shared_ptr<TcpOwner> own_;  // nullptr: its queue pair does not use it any more
  const Ends ends_;
  Stage stage_ = Stage::kServing;
  std::optional<std::chrono::steady_clock::time_point> closing_since_;
  TcpInput input_;
  TcpOutput output_;
  std::optional<TcpTarget> target_;
  std::uint32_t bringing_ = 0;  // missing bytes of the data for a local READ
  bool in_stream_ = false;
  bool has_more_ = false;
  bool has_received_ = false;
  bool read_by_polls_ = false;
  bool is_watched_ = true;               // its socket is in the epoll set
  bool must_send_ = false;               // output may wait that no other thread will send
  std::uint32_t peer_executed_ = 0;      // the number of executed requests that the peer last reported
  std::atomic<bool> is_closing_{false};  // nothing is read any more, but sent data must still arrive
  std::atomic<bool> blocked_{false};     // its socket is full; written under the send queue's lock
};

}  // namespace rdmacomm::softdev
