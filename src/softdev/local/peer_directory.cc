#include "softdev/local/peer_directory.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "softdev/local/peer.h"
#include "softdev/shared/control_protocol.h"

namespace rdmacomm::softdev {

std::shared_ptr<PeerDirectory::Owner> PeerDirectory::owner_of(std::uint32_t block) {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  // If only the directory refers to an owner, no thread uses it or holds its lock. Locking it makes the last user's
  // changes visible.
  std::erase_if(by_block_, [now](const auto& entry) {
    const std::shared_ptr<Owner>& owner = entry.second;
    if (owner.use_count() != 1) return false;
    const std::scoped_lock last(owner->mutex);
    return owner->peer.expired() && owner->silent_until <= now;
  });
  std::shared_ptr<Owner>& owner = by_block_[block];
  if (owner == nullptr) owner = std::make_shared<Owner>();
  return owner;
}

std::shared_ptr<Peer> PeerDirectory::get(std::uint32_t qpn, int& error) {
  const std::shared_ptr<Owner> owner = owner_of(qpn >> kQpnBlockBits);
  const std::scoped_lock lock(owner->mutex);
  if (auto peer = owner->peer.lock(); peer != nullptr && !peer->dead()) return peer;
  if (Clock::now() < owner->silent_until) {
    error = ETIMEDOUT;
    return nullptr;
  }
  std::shared_ptr<Peer> peer;
  if (!server_.serves(qpn)) {
    peer = Peer::connect(qpn, error);
  } else if (UniqueFd socket = server_.connect_to_itself()) {
    peer = Peer::connect_by(std::move(socket), getpid(), error);
  } else {
    error = errno;
  }
  if (peer != nullptr) server_.watch(peer);
  if (peer == nullptr && error == ETIMEDOUT) owner->silent_until = Clock::now() + kSilentFor;
  owner->peer = peer;
  return peer;
}

}  // namespace rdmacomm::softdev
