#include "softdev/tcp/tcp_input.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "softdev/common/device_limits.h"
#include "softdev/memory/page_faults.h"

namespace rdmacomm::softdev {
namespace {

/// A buffer that has grown beyond this size is shrunk after the message.
constexpr std::size_t kMaxKept = 4 * 1024 * 1024;
/// Maximum number of reads in one linger(), so that an endless sender does not occupy the thread.
constexpr int kMaxReads = 256;

}  // namespace

std::size_t TcpInput::skip(std::size_t most) noexcept {
  const std::size_t here = std::min(most, available());
  consume(here);
  return here;
}

Moved TcpInput::throw_away(std::size_t most) {
  const int error = available() == 0 ? fill(1) : 0;
  return {error == 0 ? skip(most) : 0, error};
}

int TcpInput::fill(std::size_t needed, bool exactly) {
  if (drained_) return EAGAIN;
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (bytes_.size() > kMaxKept) std::vector<std::byte>(kUsual).swap(bytes_);
  }
  if (is_too_small_) bytes_.resize(std::min(4 * bytes_.size(), std::max(kUsual, bytes_.size())));
  is_too_small_ = false;
  if (begin_ != 0 && (end_ == bytes_.size() || begin_ + needed > bytes_.size())) {
    std::memmove(bytes_.data(), data(), available());
    end_ = available();
    begin_ = 0;
  }
  const std::size_t most = exactly ? needed - available() : bytes_.size();
  iovec place{bytes_.data() + end_, std::min(most, bytes_.size() - end_)};
  const Moved received = tcp_receive(socket_, {&place, 1});
  end_ += received.bytes;
  drained_ = received.bytes < place.iov_len;
  is_too_small_ = !exactly && !drained_ && bytes_.size() >= kFirst && bytes_.size() < kUsual;
  return received.error;
}

void TcpInput::make_room(std::size_t length) {
  if (available() == bytes_.size()) bytes_.resize(std::min(2 * bytes_.size(), length));
}

bool TcpInput::linger(std::size_t most) {
  for (int reads = 0; reads < kMaxReads; ++reads) {
    lingered_ += skip(available());
    if (lingered_ > most) return false;
    const int error = fill(1);
    if (error != 0) return error == EAGAIN;
  }
  return true;
}

Moved TcpInput::receive(std::span<const iovec> places, std::size_t wanted, std::size_t ahead) noexcept {
  std::array<iovec, kMaxSge + 1> all;
  std::ranges::copy(places, all.begin());
  all[places.size()] = {bytes_.data(), std::min(ahead, bytes_.size())};
  const Moved moved = tcp_receive(socket_, std::span(all).first(places.size() + (ahead == 0 ? 0 : 1)));
  begin_ = 0;
  end_ = moved.bytes - std::min(moved.bytes, wanted);
  return {std::min(moved.bytes, wanted), moved.error};
}

Moved TcpInput::move(std::span<iovec> places, std::size_t most, std::size_t ahead) noexcept {
  std::size_t wanted = 0;
  for (iovec& place : places) {
    place.iov_len = std::min(place.iov_len, most - wanted);
    wanted += place.iov_len;
  }
  if (available() == 0) return receive(places, wanted, wanted == most ? ahead : 0);
  std::size_t taken = 0;
  for (iovec place : places) {
    place.iov_len = std::min(place.iov_len, available() - taken);
    if (place.iov_len == 0) continue;
    const std::span from(data() + taken, place.iov_len);
    if (!write_guarded(static_cast<std::byte*>(place.iov_base), from)) return {0, EFAULT};
    taken += place.iov_len;
  }
  consume(taken);
  return {taken, 0};
}

}  // namespace rdmacomm::softdev
