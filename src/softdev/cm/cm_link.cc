#include "softdev/cm/cm_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacomm::softdev {
namespace {

// An identifier sends and receives at most five messages in its life.
constexpr std::size_t kMaxUnsent = 8 * sizeof(CmMessage);
constexpr std::uint32_t kMaxReceived = 16;

}  // namespace

void CmLink::send(const CmMessage& message) {
  (void)flush();
  // flush() has to know how much of the first message is left, so only whole ones are erased.
  const std::size_t whole = sent_ - sent_ % sizeof(CmMessage);
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(whole));
  sent_ -= whole;
  if (unsent_.size() >= kMaxUnsent) {
    failed_ = ENOBUFS;
    unsent_.clear();
    sent_ = 0;
    (void)shutdown(socket_.get(), SHUT_RDWR);  // wakes the thread that waits for it
  }
  if (failed_ != 0) return;
  const auto bytes = std::as_bytes(std::span(&message, 1));
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  // If the socket has ended, the thread that waits for it notices that.
  (void)flush();
}

int CmLink::flush() noexcept {
  while (has_unsent()) {
    // A UNIX socket keeps the boundaries of messages, and unsent_ may have several.
    const std::size_t left_of_message = sizeof(CmMessage) - sent_ % sizeof(CmMessage);
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + sent_, left_of_message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS) return 0;
      if (failed_ == 0) failed_ = errno;
      return failed_;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  unsent_.clear();
  sent_ = 0;
  return failed_;
}

CmLink::Received CmLink::receive(CmMessage& message) noexcept {
  for (;;) {
    auto* const to = reinterpret_cast<std::byte*>(&arriving_) + arrived_;
    const ssize_t got = recv(socket_.get(), to, sizeof(arriving_) - arrived_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == ENOTCONN ? Received::kNothing : Received::kEnd;
    if (got == 0) return Received::kEnd;
    arrived_ += static_cast<std::size_t>(got);
    if (arrived_ < sizeof(arriving_)) continue;
    arrived_ = 0;
    if (++received_ > kMaxReceived) return Received::kEnd;
    message = arriving_;
    return is_valid(message) ? Received::kMessage : Received::kEnd;
  }
}

}  // namespace rdmacomm::softdev
