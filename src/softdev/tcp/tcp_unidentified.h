// tcp_unidentified.h - an accepted connection whose peer is not identified yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "softdev/tcp/tcp_input.h"
#include "softdev/tcp/tcp_introduction.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_served.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

class TcpOwner;
class TcpService;

/// Reads a greeting, asks back if necessary, and replies. If the peer is welcome, the connection gets a successor.
/// Threads: one at a time, see TcpService.
class TcpUnidentified final : public TcpServed {
 public:
  TcpUnidentified(TcpService& service, UniqueFd socket, const Route& back, std::uint64_t id);
  ~TcpUnidentified() override { end_question(); }

  [[nodiscard]] bool progress() override;
  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }
  [[nodiscard]] std::uint32_t events() const noexcept override;
  [[nodiscard]] bool lingers() const noexcept override { return true; }
  [[nodiscard]] TcpStanding standing() const noexcept override;
  [[nodiscard]] int question() const noexcept override { return socket_of_question_.get(); }
  /// The life of its target in which it was to be welcomed has ended.
  bool forget(std::uint32_t qpn, bool comes_again) override;
  [[nodiscard]] std::shared_ptr<TcpServed> successor() override;

 private:
  enum class Stage : std::uint8_t { kGreeting, kConfirming, kWelcome, kOver };

  void read_greeting();
  [[nodiscard]] bool begins_like_a_greeting() noexcept;
  [[nodiscard]] Stage judge();
  [[nodiscard]] Stage judge_confirm();
  [[nodiscard]] Stage judge_call(TcpOwner& target);
  [[nodiscard]] Stage request_confirmation();
  void read_confirmation();
  void end_question() noexcept;
  [[nodiscard]] Stage reply(Welcome answer);

  TcpService& service_;
  UniqueFd socket_;
  UniqueFd socket_of_question_;
  std::optional<TcpIntroduction> question_;
  const Route back_;
  const std::uint64_t id_;
  const std::chrono::steady_clock::time_point accepted_at_ = std::chrono::steady_clock::now();
  Stage stage_ = Stage::kGreeting;
  TcpGreeting greeting_;
  std::shared_ptr<TcpOwner> target_;
  bool asks_ = false;   // it has called target_->begin_question()
  TcpSecret secret_{};  // the secret to show in the welcome
  TcpInput input_;
};

}  // namespace rdmacomm::softdev
