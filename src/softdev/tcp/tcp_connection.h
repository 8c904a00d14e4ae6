// tcp_connection.h - what a queue pair and one of another host say to each other.
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

/// One connection for both directions. What is read is the other end's requests, which its TcpTarget carries out, and answers, which
/// are for the queue pair's TcpWire: reading never stops for either. What goes out is whole frames, answers before requests.
/// Threads: reads, and carries out, one thread at a time, see TcpService; to send is the part of who holds the send queue.
/// Lifetime: shared by TcpService and the TcpWire that goes by it.
class TcpConnection final : public TcpServed, public std::enable_shared_from_this<TcpConnection> {
 public:
  struct Ends {
    std::uint64_t id;  ///< as TcpService knows it
    bool sends;        ///< requests go out by it,
    bool receives;     ///< and come
    TcpTarget::Initiator other;
  };
  TcpConnection(TcpService& service, UniqueFd socket, std::shared_ptr<TcpOwner> own, const Ends& ends);
  ~TcpConnection() override;

  // For the holder of the send queue.
  /// Sends what can be sent: answers, then requests. `requests` may be nullptr. 0: all of it; EAGAIN: there will be more; another
  /// errno value: it is over.
  [[nodiscard]] int send(TcpWire* requests);
  /// Sends and answers no more.
  void cut() noexcept;
  /// What cannot be sent by its owner any more. false: it is not there.
  [[nodiscard]] bool go_first(std::span<const iovec> pieces);
  [[nodiscard]] TcpOutput& output() noexcept { return output_; }
  /// What READs ask for, besides. Of TcpService's thread.
  void respond(TcpWire* requests);

  // TcpServed
  [[nodiscard]] bool progress() override;
  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }
  [[nodiscard]] std::uint32_t events() const noexcept override { return 0; }
  [[nodiscard]] bool waits() const noexcept override { return target_ && target_->waits(); }
  [[nodiscard]] bool has_more() const noexcept override { return has_more_; }
  [[nodiscard]] bool lingers() const noexcept override { return stage_ == Stage::kLeaving; }
  [[nodiscard]] TcpStanding standing() const noexcept override {
    return stage_ == Stage::kLeaving && own_ == nullptr ? TcpStanding::kOver : TcpStanding::kPeer;
  }
  [[nodiscard]] bool owes_answer() const noexcept override { return stage_ == Stage::kServing && output_.owes(); }
  [[nodiscard]] bool owes_much() const noexcept override { return output_.owed() >= kMuch; }
  void answer_what_is_owed() override;
  bool forget(std::uint32_t qpn, bool comes_again) override;
  [[nodiscard]] bool has_news() const noexcept override { return has_news_; }
  /// Not so among long messages: there its socket tells of as much as is worth reading.
  [[nodiscard]] bool is_brief() const noexcept override { return stage_ == Stage::kServing && !in_stream_; }
  void leave_to_polls(bool left) override;

 private:
  enum class Stage : std::uint8_t { kServing, kLeaving, kOver };
  /// Requests that wait for their answer while there is more to do.
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
  void leave_queue_pair();
  void send_all();
  bool send_reading();
  [[nodiscard]] Moved send_pieces(std::span<iovec> pieces) noexcept;
  void want_output(bool wanted) noexcept;
  void watch_or_not();

  TcpService& service_;
  const UniqueFd socket_;
  const std::size_t longest_send_;
  std::shared_ptr<TcpOwner> own_;  // nullptr: nobody else uses this any more
  const Ends ends_;
  Stage stage_ = Stage::kServing;
  std::optional<std::chrono::steady_clock::time_point> leaving_since_;
  TcpInput input_;
  TcpOutput output_;
  std::optional<TcpTarget> target_;
  std::uint32_t bringing_ = 0;  // bytes of a READ of ours that are still to come
  bool in_stream_ = false;
  bool has_more_ = false;
  bool has_news_ = false;
  bool left_to_polls_ = false;
  bool is_watched_ = true;               // epoll tells of its socket
  bool must_send_ = false;               // there may be something to send that nobody else does
  std::uint32_t heard_ = 0;              // the other end has said that it has done so many
  std::atomic<bool> is_leaving_{false};  // what is sent is to arrive, though nothing is read any more
  std::atomic<bool> blocked_{false};     // its socket has no room; written with the send queue held
};

}  // namespace rdmacomm::softdev
