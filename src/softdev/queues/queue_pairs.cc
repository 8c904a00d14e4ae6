#include "softdev/queues/queue_pairs.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "softdev/host/gid_table.h"
#include "softdev/local/peer.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {
namespace {

/// The contexts of this process.
struct Contexts {
  std::mutex mutex;
  std::vector<QueuePairs*> all;
};
Contexts& contexts() {
  static auto* const only = new Contexts;  // threads may use it until the process ends
  return *only;
}

}  // namespace

QueuePairs::QueuePairs() {
  const std::scoped_lock lock(contexts().mutex);
  contexts().all.push_back(this);
}

QueuePairs::~QueuePairs() {
  const std::scoped_lock lock(contexts().mutex);
  std::erase(contexts().all, this);
}

bool QueuePairs::take_block_locked(Reach reach, UniqueFd& listener) {
  // Any block except block 0, because the numbers 0 and 1 have a special meaning in InfiniBand.
  std::uint32_t block = std::random_device{}() % (kQpnBlocks - 1) + 1;
  for (std::uint32_t tries = 0; tries < kQpnBlocks; ++tries) {
    const std::uint32_t first = block << kQpnBlockBits;
    UniqueFd port = reach == Reach::kName ? UniqueFd() : tcp_hold(tcp_port_of(first));
    // Without a network no port is available, but this host can still be reached.
    const bool is_free = reach == Reach::kName || port || errno != EADDRINUSE;
    if (is_free) listener = listen_at(block_socket_name(block));
    // Another process of this user may have the name without the port: its numbers must not be used twice.
    const bool by_port = !listener && reach == Reach::kPort && port && Peer::is_another_users(first);
    if (is_free && (listener || by_port)) {
      blocks_.push_back({block, std::move(port), device_guid(0), listener.valid()});
      return true;
    }
    if (errno != EADDRINUSE && reach != Reach::kPort) return false;
    block = block % (kQpnBlocks - 1) + 1;
  }
  errno = EADDRINUSE;
  return false;
}

/// If other processes have all ports, queue pairs still work through the memory of this host. If they have all names,
/// queue pairs can still be reached over TCP.
bool QueuePairs::take_any_block_locked(bool with_port, UniqueFd& listener) {
  if (!with_port) return take_block_locked(Reach::kName, listener);
  for (const Reach reach : {Reach::kNameAndPort, Reach::kName, Reach::kPort}) {
    if (take_block_locked(reach, listener)) return true;
    if (errno != EADDRINUSE) return false;
  }
  return false;
}

std::uint32_t QueuePairs::take_number(bool with_port, UniqueFd& listener) {
  constexpr std::uint32_t kPerBlock = 1U << kQpnBlockBits;
  const std::scoped_lock lock(mutex_);
  if (by_number_.size() >= blocks_.size() * kPerBlock) {
    if (!take_any_block_locked(with_port, listener)) return 0;
  }
  const auto numbers = static_cast<std::uint32_t>(blocks_.size() * kPerBlock);
  for (;;) {
    const std::uint32_t at = next_++ % numbers;
    const std::uint32_t qpn = blocks_[at / kPerBlock].number << kQpnBlockBits | at % kPerBlock;
    if (by_number_.emplace(qpn, nullptr).second) return qpn;
  }
}

UniqueFd QueuePairs::take_port(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(blocks_, qpn >> kQpnBlockBits, &Block::number);
  if (found == blocks_.end() || found->host != device_guid(0)) return UniqueFd();
  return std::move(found->port);
}

void QueuePairs::insert(const std::shared_ptr<SoftQp>& qp) {
  const std::scoped_lock lock(mutex_);
  by_number_[qp->qp_base.qp_num] = qp;
}

std::shared_ptr<SoftQp> QueuePairs::remove(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_number_.find(qpn);
  if (found == by_number_.end()) return nullptr;
  auto qp = std::move(found->second);
  by_number_.erase(found);
  return qp;
}

std::shared_ptr<SoftQp> QueuePairs::find(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_number_.find(qpn);
  return found == by_number_.end() ? nullptr : found->second;
}

std::shared_ptr<TcpOwner> QueuePairs::tcp_owner(std::uint32_t qpn) {
  const auto qp = find(qpn);
  return qp == nullptr ? nullptr : qp->as_tcp_owner();
}

std::vector<std::shared_ptr<TcpOwner>> QueuePairs::tcp_owners() {
  std::vector<std::shared_ptr<TcpOwner>> owners;
  for (const auto& qp : all()) owners.push_back(qp->as_tcp_owner());
  return owners;
}

std::optional<TcpSecret> QueuePairs::secret_of(std::uint32_t qpn) {
  const std::scoped_lock lock(contexts().mutex);
  for (QueuePairs* const context : contexts().all) {
    if (const auto qp = context->find(qpn)) return qp->secret();
  }
  return std::nullopt;
}

bool QueuePairs::owns(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  return std::ranges::find(blocks_, qpn >> kQpnBlockBits, &Block::number) != blocks_.end();
}

bool QueuePairs::has_name(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(blocks_, qpn >> kQpnBlockBits, &Block::number);
  return found != blocks_.end() && found->has_name;
}

std::vector<std::shared_ptr<SoftQp>> QueuePairs::all() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<SoftQp>> found;
  found.reserve(by_number_.size());
  for (const auto& [qpn, qp] : by_number_) {
    if (qp != nullptr) found.push_back(qp);
  }
  return found;
}

}  // namespace rdmacomm::softdev
