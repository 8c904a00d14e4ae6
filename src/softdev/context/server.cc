#include "softdev/context/server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "softdev/common/service_thread.h"
#include "softdev/context/soft_context.h"
#include "softdev/local/peer.h"
#include "softdev/memory/application_memory.h"
#include "softdev/memory/mr_table.h"
#include "softdev/memory/page_faults.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::softdev {
namespace {

/// The event of a kFail. No value: not an event of a queue pair that an initiator may report.
[[nodiscard]] std::optional<ibv_event_type> reported_event(std::uint32_t argument) noexcept {
  for (const ibv_event_type each : {IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    if (argument == static_cast<std::uint32_t>(each)) return each;
  }
  return std::nullopt;
}

/// Maximum number of connections without a proof.
std::size_t most_unproven() noexcept {
  constexpr std::size_t kMin = 16;
  constexpr std::size_t kMax = 256;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kMin;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 8, kMin, kMax);  // a proof needs a second descriptor
}

}  // namespace

Server::Server(SoftContext& context) : context_(context), unproven_(most_unproven()) {}

int Server::start() {
  epoll_->reset(epoll_create1(EPOLL_CLOEXEC));
  if (!*epoll_) return errno;
  auto stop_event = WakeEvent::create();
  if (!stop_event) return stop_event.code().value();
  stop_event_ = std::move(*stop_event);
  add({.kind = Kind::kStop}, stop_event_.fd(), EPOLLIN);
  return start_service_thread(thread_, "soft0-serve", [this] { run(); });
}

void Server::stop() {
  if (!thread_.joinable()) return;
  stop_event_.signal();
  thread_.join();
  const std::scoped_lock lock(mutex_);
  watched_.clear();
}

std::uint64_t Server::add(Watched watched, int fd, std::uint32_t events) {
  const std::scoped_lock lock(mutex_);
  // The kernel removes closed connections of this context from the epoll set.
  std::erase_if(watched_,
                [](const auto& entry) { return entry.second->kind == Kind::kPeer && entry.second->peer.expired(); });
  const std::uint64_t id = next_id_++;
  watched.id = id;
  watched_.emplace(id, std::make_shared<Watched>(std::move(watched)));
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_->get(), EPOLL_CTL_ADD, fd, &event);
  return id;
}

void Server::add_listener(UniqueFd listener) {
  const int fd = listener.get();
  add({.kind = Kind::kListener, .fd = std::move(listener)}, fd, EPOLLIN);
}

UniqueFd Server::connect_to_itself() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  add({.kind = Kind::kIncoming, .fd = UniqueFd(ends[1]), .pid = getpid()}, ends[1], EPOLLIN | EPOLLRDHUP);
  return UniqueFd(ends[0]);
}

bool Server::serves(std::uint32_t qpn) {
  return context_.queue_pairs().owns(qpn);
}

void Server::watch(const std::shared_ptr<Peer>& peer) {
  // Watches only the end of the connection, because the requesting thread reads the answers. EPOLLHUP is always
  // reported.
  const std::uint64_t id = add({.kind = Kind::kPeer, .peer = peer}, peer->socket(), EPOLLRDHUP | EPOLLONESHOT);
  peer->keep_reports_with([epoll = epoll_, id, fd = peer->socket()](bool wanted) {
    epoll_event event{};
    event.events = EPOLLRDHUP | EPOLLONESHOT | (wanted ? EPOLLOUT : 0U);
    event.data.u64 = id;
    epoll_ctl(epoll->get(), EPOLL_CTL_MOD, fd, &event);
  });
}

void Server::run() {
  std::array<epoll_event, 32> events{};
  for (;;) {
    const int ready = epoll_wait(epoll_->get(), events.data(), events.size(), -1);
    for (int i = 0; i < ready; ++i) {
      if (stop_event_.clear()) return;
      handle(events[i].data.u64, events[i].events);
    }
  }
}

void Server::handle(std::uint64_t id, std::uint32_t events) {
  std::shared_ptr<Watched> watched;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    watched = found->second;
  }
  bool over = false;
  switch (watched->kind) {
    case Kind::kStop: break;
    case Kind::kListener: accept_initiator(*watched); break;
    case Kind::kIncoming:
      over = (events & EPOLLIN) != 0 ? !answer(*watched) : true;
      if (over) initiator_gone(*watched);
      break;
    case Kind::kPeer: over = !look_after(*watched, events); break;
  }
  if (!over) return;
  const std::scoped_lock lock(mutex_);
  watched_.erase(id);
}

/// Returns  false: the connection to the peer has ended.
bool Server::look_after(const Watched& watched, std::uint32_t events) {
  const auto peer = watched.peer.lock();
  const bool lives = (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) == 0;
  if (lives) {
    if (peer != nullptr) peer->send_kept_reports();
    return peer != nullptr;
  }
  if (peer != nullptr) peer->mark_dead();
  context_.retrier().wake();
  return false;
}

void Server::accept_initiator(Watched& listener) {
  if (unproven_.is_full()) {
    const auto goes = unproven_.gives_way(Unproven::Clock::now());
    if (!goes) return wait_for_room();
    unproven_.remove(*goes);
    const std::scoped_lock lock(mutex_);
    watched_.erase(*goes);
  }
  UniqueFd socket(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket && (errno == EMFILE || errno == ENFILE)) return wait_for_room();
  PeerCredentials credentials;
  if (!socket || !peer_credentials(socket.get(), credentials) || credentials.uid != geteuid()) return;
  const int fd = socket.get();
  const std::uint64_t id =
      add({.kind = Kind::kIncoming, .fd = std::move(socket), .pid = credentials.pid}, fd, EPOLLIN | EPOLLRDHUP);
  unproven_.add(id, credentials.pid, Unproven::Clock::now());
}

/// A connection that cannot be accepted stays in the queue and keeps the listener readable. Sleeps to avoid a busy
/// loop.
void Server::wait_for_room() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool Server::answer(Watched& initiator) {
  Request request;
  std::vector<std::byte> payload(kMaxControlPayload);
  const ssize_t received =
      receive_packet(initiator.fd.get(), std::as_writable_bytes(std::span(&request, 1)), payload, nullptr, 0);
  if (received < 0 && errno == EAGAIN) return true;
  if (received < static_cast<ssize_t>(sizeof(request)) || request.magic != kControlMagic) return false;
  if (is_report(request.kind)) {
    if (!initiator.may_share) return false;
    return take_report(request, initiator);
  }
  payload.resize(static_cast<std::size_t>(received) - sizeof(request));
  return reply(request, initiator, payload);
}

/// Returns  false: the initiator does not read its answers. The server does not wait for that.
bool Server::reply(const Request& request, Watched& initiator, std::span<const std::byte> payload) {
  Answer answer;
  answer.sequence = request.sequence;
  std::vector<std::byte> out;
  UniqueFd wake_fd;
  int fd = -1;
  if (request.version != kLayoutVersion) {
    answer.error = EPROTO;
  } else if (request.kind == RequestKind::kHello) {
    reply_hello(request, initiator, answer);
  } else if (request.kind == RequestKind::kProve) {
    fd = reply_proof(request, initiator, answer);
  } else if (!initiator.may_share) {
    answer.error = EPERM;
  } else if (request.kind == RequestKind::kQueuePair) {
    reply_queue_pair(request, initiator, answer);
  } else if (request.kind == RequestKind::kChannel) {
    wake_fd = reply_channel(request, answer);
    fd = wake_fd.get();
  } else if (request.kind == RequestKind::kTable) {
    fd = context_.registrations().fd();
  } else if (request.kind == RequestKind::kArena) {
    const auto arena = static_cast<Arena>(request.argument);
    fd = arena == Arena::kOwn ? own_memory_fd() : context_.memory().arena_fd(arena);
    if (fd < 0) answer.error = ENOENT;
  } else if (request.kind == RequestKind::kInvalidate) {
    // Only this initiator could be using the window, and it is waiting for the answer.
    answer.error = context_.windows().invalidate(request.rkey, request.qpn) ? 0 : EACCES;
  } else {
    if (request.kind == RequestKind::kRead && request.length <= kMaxControlPayload) out.resize(request.length);
    answer.error = access_memory(request, payload, answer, out);
  }
  return send_at_once(initiator.fd.get(), std::as_bytes(std::span(&answer, 1)), out, fd);
}

void Server::reply_hello(const Request& request, Watched& initiator, Answer& answer) {
  initiator.proof = std::make_unique<AccessProof>();
  answer.error = initiator.proof->create();
  if (answer.error == 0) {
    answer.error = initiator.proof->read_peer(initiator.pid, static_cast<int>(request.argument));
  }
  answer.value = static_cast<std::uint64_t>(initiator.proof->descriptor());
  if (answer.error != 0) initiator.proof.reset();
}

int Server::reply_proof(const Request& request, Watched& initiator, Answer& answer) {
  const auto proof = std::move(initiator.proof);  // only one attempt
  initiator.may_share = proof != nullptr && proof->is_proven_by(request.proof);
  if (!initiator.may_share) {
    answer.error = EPERM;
    return -1;
  }
  unproven_.remove(initiator.id);
  answer.proof = proof->answer();
  return context_.segment().fd();
}

void Server::reply_queue_pair(const Request& request, Watched& initiator, Answer& answer) {
  const auto qp = context_.queue_pairs().find(request.qpn);
  if (qp == nullptr || !qp->initiators().describe(answer)) {
    answer.error = ENOENT;
    return;
  }
  answer.device = context_.identity().index;
  initiator.targets.push_back({qp, request.peer_qpn});
}

UniqueFd Server::reply_channel(const Request& request, Answer& answer) {
  const auto qp = context_.queue_pairs().find(request.qpn);
  UniqueFd wake_fd;
  answer.error = qp == nullptr ? ENOENT : qp->initiators().channel_descriptor(wake_fd);
  return wake_fd;
}

int Server::access_memory(const Request& request, std::span<const std::byte> payload, Answer& answer,
                          std::span<std::byte> out) {
  const auto qp = context_.queue_pairs().find(request.qpn);
  if (qp == nullptr) return ENOENT;
  const bool atomic = request.kind == RequestKind::kFetchAdd || request.kind == RequestKind::kCompareSwap ||
                      request.kind == RequestKind::kAtomicWrite;
  const std::uint64_t length = atomic ? 8 : request.length;
  const std::scoped_lock lock(access_mutex_);
  // The initiator has checked the kind of access. The range must be checked again, because its registration may have
  // ended.
  const MrEntry* const entry = find_remote_range(context_.registrations().entries(), request.rkey, qp->pd_number(),
                                                 request.qpn, request.address, length, 0);
  if (entry == nullptr) return EACCES;
  if (entry->arena == Arena::kNull) return EINVAL;  // initiators have such memory themselves
  auto* const memory = reinterpret_cast<std::byte*>(request.address + entry->shift);
  if (atomic && reinterpret_cast<std::uintptr_t>(memory) % sizeof(std::uint64_t) != 0) return EINVAL;
  if (length == 0) return EINVAL;  // an empty range is not allowed
  // Application memory may have been unmapped since. A device's memory is mapped by this library, and has no pages.
  const bool served = entry->arena == Arena::kServed;
  if (request.kind == RequestKind::kWrite) {
    if (payload.size() != length) return EINVAL;
    if (served) {
      std::memcpy(memory, payload.data(), length);
    } else if (!write_guarded(memory, payload)) {
      return EFAULT;
    }
  } else if (request.kind == RequestKind::kRead) {
    if (out.size() != length) return EINVAL;
    if (served) {
      std::memcpy(out.data(), memory, length);
    } else if (!read_guarded(out, memory)) {
      return EFAULT;
    }
  } else if (atomic) {
    if (!served && load_pages(memory, length, true) != 0) return EFAULT;
    const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(memory));
    answer.value = request.operand;
    if (request.kind == RequestKind::kFetchAdd) {
      answer.value = word.fetch_add(request.operand);
    } else if (request.kind == RequestKind::kAtomicWrite) {
      word.store(request.operand);
    } else {
      word.compare_exchange_strong(answer.value, request.swap);
    }
  } else {
    return EINVAL;
  }
  return 0;
}

bool Server::take_report(const Request& request, Watched& initiator) {
  if (request.kind == RequestKind::kDetach) {
    // Removes only one: an initiator over TCP may have attached again before its earlier attachment was removed.
    const auto detached = std::ranges::find_if(initiator.targets, [&request](const Attachment& attachment) {
      return attachment.target->qp_base.qp_num == request.qpn && attachment.initiator_qpn == request.peer_qpn;
    });
    if (detached != initiator.targets.end()) initiator.targets.erase(detached);
    return true;
  }
  const auto qp = context_.queue_pairs().find(request.qpn);
  if (request.kind == RequestKind::kReleased) context_.stragglers().sweep();
  if (request.kind == RequestKind::kFail) return take_failure(request, qp.get());
  if (qp == nullptr) return true;
  if (request.kind == RequestKind::kReleased) qp->initiators().notify_receiver();
  if (request.kind == RequestKind::kLimit) qp->initiators().raise_srq_limit();
  if (request.kind == RequestKind::kContact) qp->note_contact();
  return true;
}

/// The same for a request that broke the rules of a queue pair. `qp` is nullptr if the queue pair does not exist any
/// more.
bool Server::take_failure(const Request& request, SoftQp* qp) {
  const auto event = reported_event(request.argument);
  if (!event) return false;
  // Not done here: the holder of the send queue's lock may be waiting for an answer of this thread.
  if (qp == nullptr || !qp->request_failure(static_cast<std::uint32_t>(request.operand))) return true;
  context_.retrier().wake();
  qp->raise(*event);
  return true;
}

void Server::initiator_gone(const Watched& initiator) {
  unproven_.remove(initiator.id);
  std::vector<const SoftCq*> made_up_for;
  for (const Attachment& attachment : initiator.targets) {
    QpInitiators& initiators = attachment.target->initiators();
    initiators.make_up_for_event(made_up_for);
    if (initiators.forget(attachment.initiator_qpn)) initiators.notify_receiver();
  }
  context_.stragglers().sweep();
}

}  // namespace rdmacomm::softdev
