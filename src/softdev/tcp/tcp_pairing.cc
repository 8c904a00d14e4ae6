#include "softdev/tcp/tcp_pairing.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

#include "verbs/gid.h"

namespace rdmacomm::softdev {

int TcpPairing::draw() noexcept {
  // A request of this size is never interrupted and returns all bytes: getrandom(2).
  if (getrandom(own_.data(), own_.size(), 0) != static_cast<ssize_t>(own_.size())) return errno;
  is_drawn_ = true;
  return 0;
}

int TcpPairing::begin(const ibv_gid& address, std::uint32_t qpn) noexcept {
  peers_.reset();
  const bool is_same = peer_ && verbs::equal(peer_->first, address) && peer_->second == qpn;
  if (!is_drawn_ && !is_same) {
    if (const int error = draw(); error != 0) return error;
  }
  is_drawn_ = false;
  peer_.emplace(address, qpn);
  return 0;
}

bool TcpPairing::is_peers(const TcpSecret& shown) noexcept {
  if (!peers_) peers_ = shown;
  // Takes the same time for all secrets, so that the time reveals nothing.
  unsigned difference = 0;
  for (std::size_t i = 0; i < shown.size(); ++i) difference |= static_cast<unsigned>(shown[i] ^ (*peers_)[i]);
  return difference == 0;
}

}  // namespace rdmacomm::softdev
