// tcp_target.h - requests that come by TCP, carried out on this host as if their initiator were here.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rdmacomm/base/unique_fd.h"
#include "softdev/local_wire.h"
#include "softdev/named_targets.h"
#include "softdev/soft_ah.h"
#include "softdev/tcp_introduction.h"
#include "softdev/tcp_protocol.h"
#include "softdev/tcp_socket.h"

namespace rdmacomm::softdev {

class SoftContext;
class SoftQp;

/// One connection that somebody has made to this context's port. It checks who that is, then is the initiator of the
/// requests that arrive: the same checks, copies and completions as on one host (LocalWire). Small messages go by a buffer,
/// so that many of them cost one system call; large ones straight between the socket and the target's memory, but for those of
/// XRC: theirs may be the memory of another process, and many initiators take turns at a queue, which one that sends half a
/// message and then nothing must not keep.
/// Threads: one at a time, see TcpService.
class TcpTarget {
 public:
  TcpTarget(SoftContext& context, UniqueFd socket, const Route& back);

  /// Goes on as far as it can without waiting. false: it is over.
  [[nodiscard]] bool progress();
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// The connection by which it asks back; -1: there is none.
  [[nodiscard]] int question() const noexcept { return socket_of_question_.get(); }
  /// There is more to send than the connection takes now.
  [[nodiscard]] bool wants_output() const noexcept { return out_done_ < out_.size() || reading_; }
  /// It is not known yet who it is, or it is over for all but the last words.
  [[nodiscard]] bool serves() const noexcept { return stage_ == Stage::kServing; }
  [[nodiscard]] bool serves(std::uint32_t qpn) const noexcept { return serves() && greeting_.target_qpn == qpn; }
  /// It waits for what no socket tells of: progress() is to be called again soon.
  [[nodiscard]] bool waits() const noexcept { return waiting_ || early_; }
  /// It has stopped so that others have their turn.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  /// It has carried out what its initiator does not know of yet. That is not said at once: the target's application is to have
  /// what has come first, and what it sends then says the same (TcpRequest::heard).
  [[nodiscard]] bool owes_answer() const noexcept { return answers() && confirmed_ != done_ && !reading_; }
  /// The application has sent something that says it. That may wait for something else there, so the answer is owed still.
  [[nodiscard]] bool is_answered_otherwise() const noexcept;
  /// Says it. false: the connection is over.
  [[nodiscard]] bool answer_what_is_owed();

 private:
  enum class Stage : std::uint8_t { kGreeting, kAsking, kServing, kOver };
  enum class Step : std::uint8_t { kGoOn, kWait };

  Step read_greeting();
  Stage check_greeting();
  [[nodiscard]] bool ask_back();
  Step read_confirmation();
  void welcome(Welcome answer);
  bool linger();
  Step hang_up();

  void serve();
  Step serve_step();
  Step flush();
  Step fill(std::size_t needed);
  Step next_request();
  [[nodiscard]] bool comes_early();
  Step whole_request();
  void make_room(std::size_t length);
  ExecResult execute(const ibv_send_wr& wr);
  Step datagram();
  Step stream_in();
  void wake_after(std::size_t bytes) noexcept;
  Step write_end(ibv_send_wr& wr);
  Step stream_out();
  Step skip();
  Step settle(const ExecResult& result);
  [[nodiscard]] TcpAnswer next_answer(TcpAnswer::Kind kind, std::uint32_t length, ibv_wc_status status);
  void answer(TcpAnswer::Kind kind, std::uint32_t length = 0, ibv_wc_status status = IBV_WC_SUCCESS);
  void request_done();
  void append(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  [[nodiscard]] std::size_t available() const noexcept { return in_end_ - in_begin_; }
  [[nodiscard]] ibv_send_wr work_request(ibv_sge& slice) const noexcept;
  [[nodiscard]] bool has_payload() const noexcept;
  [[nodiscard]] bool answers() const noexcept { return greeting_.service != Service::kDatagram; }

  SoftContext& context_;
  UniqueFd socket_;
  UniqueFd socket_of_question_;
  std::optional<TcpIntroduction> question_;
  const Route back_;
  const std::chrono::steady_clock::time_point accepted_at_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> over_since_;
  Stage stage_ = Stage::kGreeting;
  TcpGreeting greeting_;
  std::optional<LocalWire> wire_;
  std::shared_ptr<SoftQp> target_;      // of connected ones; TcpService::forget_target() before it goes out of service
  std::optional<NamedTargets> queues_;  // of XRC

  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  std::vector<std::byte> out_;
  std::size_t out_done_ = 0;

  std::optional<TcpRequest> current_;
  std::uint32_t moved_ = 0;     // bytes of the current message, where it goes in parts
  std::uint32_t skipping_ = 0;  // bytes of a message that nobody wants
  bool reading_ = false;        // the current request is a READ whose bytes are on their way
  bool waiting_ = false;        // for a receive
  bool early_ = false;          // the current request waits for answers to the target's own
  bool has_more_ = false;
  bool in_stream_ = false;  // the last request was a long one that brings bytes, and the next is probably
  int woken_after_ = 1;     // its socket tells of so many bytes
  bool drained_ = false;    // there was less in the socket than was asked for
  std::chrono::steady_clock::time_point waiting_since_{};
  std::uint32_t done_ = 0;               // requests carried out
  std::uint32_t confirmed_ = 0;          // of these, that the initiator has been told of
  std::uint32_t done_with_message_ = 0;  // done_ after the last that was a message, and
  std::uint32_t message_ = 0;            // how many had come to the queue pair then
};

}  // namespace rdmacomm::softdev
