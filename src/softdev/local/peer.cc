#include "softdev/local/peer.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "softdev/memory/mr_table.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::softdev {
namespace {

// A serving thread answers within tens of microseconds. If it takes longer than this, its process is treated as dead:
// it is stopped by a signal, or swapped out.
constexpr int kAnswerTimeoutMs = 5000;

std::span<const std::byte> bytes_of(const Request& request) {
  return std::as_bytes(std::span(&request, 1));
}
std::span<std::byte> bytes_of(Answer& answer) {
  return std::as_writable_bytes(std::span(&answer, 1));
}

/// Connects a socket to the owner of `qpn`. Not valid, and errno on failure. EPERM: the owner is another user's
/// process, or is in a process namespace that is not visible here.
UniqueFd connect_to_owner(std::uint32_t qpn, PeerCredentials& credentials) {
  UniqueFd socket = connect_to(block_socket_name(qpn >> kQpnBlockBits));
  if (!socket || !peer_credentials(socket.get(), credentials)) return UniqueFd();
  if (credentials.uid == geteuid() && credentials.pid != 0) return socket;
  socket.reset();
  errno = EPERM;
  return socket;
}

}  // namespace

bool Peer::is_another_users(std::uint32_t qpn) {
  PeerCredentials credentials;
  return !connect_to_owner(qpn, credentials) && errno == EPERM;
}

std::shared_ptr<Peer> Peer::connect(std::uint32_t qpn, int& error) {
  PeerCredentials credentials;
  UniqueFd socket = connect_to_owner(qpn, credentials);
  if (!socket) {
    error = errno;
    return nullptr;
  }
  return connect_by(std::move(socket), credentials.pid, error);
}

std::shared_ptr<Peer> Peer::connect_by(UniqueFd socket, pid_t pid, int& error) {
  auto peer = std::make_shared<Peer>(std::move(socket), pid);
  error = peer->hello();
  return error == 0 ? peer : nullptr;
}

int Peer::hello() {
  const std::scoped_lock lock(mutex_);
  Answer answer;
  if (const int error = prove_locked(answer); error != 0) return error;
  Request request;
  request.kind = RequestKind::kTable;
  UniqueFd table;
  if (const int error = call_locked(request, {}, answer, {}, table); error != 0) return error;
  registrations_mapping_ = Mapping(table.get(), 0, MrTable::kEntries * sizeof(MrEntry), false);
  if (registrations_mapping_.empty()) return errno;
  registrations_ = {reinterpret_cast<const MrEntry*>(registrations_mapping_.data()), MrTable::kEntries};
  // Requested now, while the target runs, because its memory must stay reachable when it is stopped, as on hardware.
  (void)arena_fd_locked(Arena::kPages);
  (void)arena_fd_locked(Arena::kOwn);
  return 0;
}

int Peer::prove_locked(Answer& answer) {
  AccessProof proof;
  UniqueFd none;
  Request request;
  request.kind = RequestKind::kHello;
  // Opened before the proof. The proof then shows that the process with this number is the peer.
  process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  int error = proof.create();
  request.argument = static_cast<std::uint32_t>(proof.descriptor());
  if (error == 0) error = call_locked(request, {}, answer, {}, none);
  if (error == 0) error = proof.read_peer(pid_, static_cast<int>(answer.value));
  if (error != 0) return error;
  request.kind = RequestKind::kProve;
  request.proof = proof.answer();
  error = call_locked(request, {}, answer, {}, segment_fd_);
  return error != 0 || proof.is_proven_by(answer.proof) ? error : EPERM;
}

std::unique_ptr<RemoteQp> Peer::attach(std::uint32_t qpn, std::uint32_t own_qpn, int& error) {
  Request request;
  request.kind = RequestKind::kQueuePair;
  request.qpn = qpn;
  request.peer_qpn = own_qpn;
  Answer answer;
  auto remote = std::make_unique<RemoteQp>();
  {
    const std::scoped_lock lock(mutex_);
    UniqueFd none;
    error = call_locked(request, {}, answer, {}, none);
    if (error != 0) return nullptr;
    if (answer.channel != 0) error = find_channel_locked(qpn, answer.channel, *remote);
  }
  if (error == 0) error = map(answer, *remote);
  if (error == 0) return remote;
  remote.reset();
  detach(qpn, own_qpn);
  return nullptr;
}

int Peer::map(const Answer& answer, RemoteQp& remote) {
  const std::size_t in_page = answer.qp_offset % kPage;
  const std::size_t bytes = in_page + QpView::bytes(answer.recv_entries, answer.max_recv_sge);
  remote.mapping = Mapping(segment_fd_.get(), answer.qp_offset - in_page, bytes, true);
  if (remote.mapping.empty()) return errno;
  remote.cq_mapping = Mapping(segment_fd_.get(), answer.recv_cq_offset, sizeof(CqShared), true);
  if (remote.cq_mapping.empty()) return errno;
  remote.view = QpView(remote.mapping.data() + in_page, answer.recv_entries, answer.max_recv_sge);
  remote.recv_cq = reinterpret_cast<CqShared*>(remote.cq_mapping.data());
  remote.busy_address = answer.busy_address;
  remote.pd = remote.recv_pd = answer.pd;
  remote.device = answer.device;
  remote.xrc_domain = answer.xrc_domain;
  if (answer.srq_entries == 0) return 0;
  remote.srq_mapping =
      Mapping(segment_fd_.get(), answer.srq_offset, SrqView::bytes(answer.srq_entries, answer.srq_max_sge), true);
  if (remote.srq_mapping.empty()) return errno;
  remote.srq = SrqView(remote.srq_mapping.data(), answer.srq_entries, answer.srq_max_sge);
  remote.recv_pd = answer.srq_pd;
  return 0;
}

/// Finds the descriptor of completion channel `number`, which is requested only once. Returns 0, or an errno value.
int Peer::find_channel_locked(std::uint32_t qpn, std::uint32_t number, RemoteQp& remote) {
  std::erase_if(channels_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const UniqueFd>& known = channels_[number];
  remote.channel = known.lock();
  if (remote.channel == nullptr) {
    Request request;
    request.kind = RequestKind::kChannel;
    request.qpn = qpn;
    Answer answer;
    UniqueFd fd;
    if (const int error = call_locked(request, {}, answer, {}, fd); error != 0) return error;
    known = remote.channel = std::make_shared<const UniqueFd>(std::move(fd));
  }
  remote.wake_fd = remote.channel->get();
  return 0;
}

int Peer::arena_fd_locked(Arena arena) {
  UniqueFd& fd = arena_fds_[arena];
  if (!fd) {
    Request request;
    request.kind = RequestKind::kArena;
    request.argument = static_cast<std::uint32_t>(arena);
    Answer answer;
    if (call_locked(request, {}, answer, {}, fd) != 0) return -1;
  }
  return fd.get();
}

std::byte* Peer::map_registration(const MrEntry& entry) {
  if (entry.arena == Arena::kNone || entry.arena == Arena::kServed) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto place = static_cast<std::uint32_t>(&entry - registrations_.data());
  if (mapped_.size() >= kMostMapped && !mapped_.contains(place)) return nullptr;
  MappedRegistration& mapped = mapped_[place];
  if (mapped.stamp == entry.stamp) return mapped.start;
  const int fd = arena_fd_locked(entry.arena);
  if (fd < 0) return nullptr;
  const std::size_t granule = entry.arena == Arena::kHugePages ? std::size_t{2} << 20 : kPage;
  const std::uint64_t first = entry.arena_offset / granule * granule;
  const std::uint64_t end = (entry.arena_offset + entry.length + granule - 1) / granule * granule;
  Mapping mapping(fd, first, end - first, true);
  if (mapping.empty()) return nullptr;
  mapped.stamp = entry.stamp;
  mapped.start = mapping.data() + (entry.arena_offset - first);
  mapped.mapping = std::move(mapping);
  return mapped.start;
}

bool Peer::has_ended() const noexcept {
  // exec() closes the connection, unless a child of the target has inherited it. In that case, and when the process
  // ends, the pidfd shows it.
  std::array<pollfd, 2> ends{{{socket_.get(), POLLRDHUP, 0}, {process_.get(), POLLIN, 0}}};
  return ::poll(ends.data(), ends.size(), 0) > 0;
}

int Peer::check_system_calls() const noexcept {
  if (pid_ == 0 || system_calls_refused_.load(std::memory_order_relaxed)) return EPERM;
  return has_ended() ? ESRCH : 0;
}

/// The errno value of a call that has moved no bytes. 0: it was interrupted.
int Peer::error_of_call(ssize_t moved) noexcept {
  const int error = moved == 0 ? EFAULT : errno;
  if (error == EINTR) return 0;
  if (error != EPERM && error != ENOSYS) return error;
  system_calls_refused_.store(true, std::memory_order_relaxed);
  return EPERM;
}

int Peer::read_by_system_call(std::byte* own, std::uint64_t address, std::size_t length) noexcept {
  if (const int error = check_system_calls(); error != 0) return error;
  while (length != 0) {
    const iovec here{own, length};
    const iovec there{reinterpret_cast<void*>(address), length};
    const ssize_t moved = process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (const int error = error_of_call(moved); error != 0) return error;
      continue;
    }
    own += moved;
    address += static_cast<std::uint64_t>(moved);
    length -= static_cast<std::size_t>(moved);
  }
  return 0;
}

int Peer::write_by_system_call(std::byte* own, AddressWrite& write, std::size_t& length, std::uint32_t flag) noexcept {
  const std::array<iovec, 2> here{{{own, length}, {&flag, sizeof(flag)}}};
  const ssize_t moved = process_vm_writev(pid_, here.data(), here.size(), write.places, std::size(write.places), 0);
  length = moved <= 0 ? 0 : std::min(static_cast<std::size_t>(moved), length);
  return moved <= 0 ? error_of_call(moved) : 0;
}

int Peer::request(Request request, std::span<std::byte> own, std::uint64_t* value) {
  const std::scoped_lock lock(mutex_);
  Answer answer;
  UniqueFd none;
  const bool write = request.kind == RequestKind::kWrite;
  if (!write && request.kind != RequestKind::kRead) {
    const int error = call_locked(request, {}, answer, {}, none);
    if (value != nullptr) *value = answer.value;
    return error;
  }
  while (!own.empty()) {
    const auto piece = own.first(std::min(own.size(), kMaxControlPayload));
    request.length = piece.size();
    const int error =
        write ? call_locked(request, piece, answer, {}, none) : call_locked(request, {}, answer, piece, none);
    if (error != 0) return error;
    request.address += piece.size();
    own = own.subspan(piece.size());
  }
  return 0;
}

void Peer::send_report(RequestKind kind, std::uint32_t qpn, std::uint32_t own_qpn, std::uint32_t argument,
                       std::uint64_t operand) noexcept {
  Request request;
  request.kind = kind;
  request.qpn = qpn;
  request.peer_qpn = own_qpn;
  request.argument = argument;
  request.operand = operand;
  const std::scoped_lock lock(reports_mutex_);
  // If sending fails for another reason, the target is gone and needs no report.
  const bool is_next = kept_reports_.empty();
  if (is_next && (send_at_once(socket_.get(), bytes_of(request)) || errno != EAGAIN)) return;
  kept_reports_.push_back(request);
  if (is_next && watch_) watch_(true);
}

void Peer::keep_reports_with(std::function<void(bool)> watch) {
  const std::scoped_lock lock(reports_mutex_);
  watch_ = std::move(watch);
}

void Peer::send_kept_reports() noexcept {
  const std::scoped_lock lock(reports_mutex_);
  while (!kept_reports_.empty()) {
    if (!send_at_once(socket_.get(), bytes_of(kept_reports_.front())) && errno == EAGAIN) break;
    kept_reports_.pop_front();
  }
  if (watch_) watch_(!kept_reports_.empty());
}

int Peer::call_locked(Request& request, std::span<const std::byte> out, Answer& answer, std::span<std::byte> in,
                      UniqueFd& fd) {
  request.sequence = next_sequence_++;
  if (dead()) return EPIPE;
  if (!send_packet(socket_.get(), bytes_of(request), out)) {
    mark_dead();
    return EPIPE;
  }
  const ssize_t received = receive_packet(socket_.get(), bytes_of(answer), in, &fd, kAnswerTimeoutMs);
  // The answer was received without its descriptor. The connection stays usable for the next call.
  if (received < 0 && errno == EMFILE) return EMFILE;
  if (received < static_cast<ssize_t>(sizeof(answer)) || answer.sequence != request.sequence) {
    // This is no answer to the request. A later answer would be taken for that of another request.
    mark_dead();
    return received < 0 ? errno : EPIPE;
  }
  // The owner's shortage may be temporary.
  return is_own_shortage(answer.error) ? EBUSY : answer.error;
}

}  // namespace rdmacomm::softdev
