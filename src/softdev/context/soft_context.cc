#include "softdev/context/soft_context.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "rdmacomm/softdev/softdev.h"
#include "softdev/host/gid_table.h"
#include "softdev/local/peer.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_socket.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

// ---- SharedMemory

void* SharedMemory::allocate(std::size_t length, bool huge_pages, std::uint64_t made_at) {
  SharedBlock block = (huge_pages ? huge_pages_ : pages_).allocate(length);
  if (block.mapping.empty()) return nullptr;
  void* const address = block.mapping.data();
  const std::scoped_lock lock(mutex_);
  allocations_.emplace(reinterpret_cast<std::uintptr_t>(address),
                       Allocation{std::move(block), huge_pages ? Arena::kHugePages : Arena::kPages, made_at});
  return address;
}

bool SharedMemory::take(const void* address, Allocation& taken) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) return false;
  taken = std::move(found->second);
  allocations_.erase(found);
  return true;
}

Arena SharedMemory::locate(const void* address, std::size_t length, std::uint64_t& offset) {
  const std::scoped_lock lock(mutex_);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  auto found = allocations_.upper_bound(start);
  if (found == allocations_.begin()) return Arena::kNone;
  --found;
  const std::uintptr_t inside = start - found->first;
  const std::size_t size = found->second.block.mapping.size();
  if (inside > size || length > size - inside) return Arena::kNone;
  offset = found->second.block.offset + inside;
  return found->second.arena;
}

int SharedMemory::arena_fd(Arena arena) {
  if (arena == Arena::kPages) return pages_.fd();
  return arena == Arena::kHugePages ? huge_pages_.fd() : -1;
}

// ---- QueuePairs

bool QueuePairs::take_block_locked(Reach reach, UniqueFd& listener) {
  // Anywhere but block 0, whose numbers 0 and 1 mean something else in InfiniBand.
  std::uint32_t block = std::random_device{}() % (kQpnBlocks - 1) + 1;
  for (std::uint32_t tries = 0; tries < kQpnBlocks; ++tries) {
    const std::uint32_t first = block << kQpnBlockBits;
    UniqueFd port = reach == Reach::kName ? UniqueFd() : tcp_hold(tcp_port_of(first));
    // Where there is no network, and so no port, there is still this host.
    const bool is_free = reach == Reach::kName || port || errno != EADDRINUSE;
    if (is_free) listener = listen_at(block_socket_name(block));
    // One of this user's may have the name without the port: its numbers are not given out twice.
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

/// Somebody who has all ports keeps nobody from using this host's memory, and somebody who has all names, from being reached by TCP.
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

// ---- PeerDirectory

std::shared_ptr<PeerDirectory::Owner> PeerDirectory::owner_of(std::uint32_t block) {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  // Held by the directory alone, an owner is in nobody's hands, and nobody holds its lock; taken, it shows what the last one did.
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

// ---- SoftContext

namespace {

/// Of a process with several threads the system waits until it has seen all processors: some 10 ms. So it is done while there is one.
[[gnu::constructor]] void register_early() noexcept {
  (void)register_for_membarrier();
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return SoftQp::from(qp).post_send(wr, bad);
}
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return SoftQp::from(qp).post_recv(wr, bad);
}
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return SoftSrq::from(srq).post_recv(wr, bad);
}
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  return SoftCq::from(cq).poll(count, wc);
}
int req_notify_cq(ibv_cq* cq, int solicited_only) {
  return SoftCq::from(cq).arm(solicited_only != 0);
}

/// What kLateVariable says. 0, or EINVAL.
int read_lateness(std::chrono::milliseconds& lateness) noexcept {
  constexpr unsigned kMost = 60'000;
  const char* const value = ::secure_getenv(kLateVariable);
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return 0;
  unsigned milliseconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), milliseconds);
  if (error != std::errc{} || end != text.data() + text.size() || milliseconds > kMost) return EINVAL;
  lateness = std::chrono::milliseconds(milliseconds);
  return 0;
}

// What <infiniband/verbs.h> calls through the verbs_context around an ibv_context. The caller's structures may be of an
// older or newer release: shorter or longer than these.

template <typename Attributes>
void copy_of_any_size(const Attributes& whole, Attributes* to, std::size_t size) {
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &whole, std::min(size, sizeof(whole)));
}

int query_port_of_any_size(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) {
  ibv_port_attr whole{};
  const int error = query_port(context, port, &whole);
  if (error == 0) copy_of_any_size(whole, attributes, size);
  return error;
}

int query_device_of_any_size(ibv_context* context, const ibv_query_device_ex_input* input,
                             ibv_device_attr_ex* attributes, std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex whole{};
  const int error = query_device_ex(context, &whole);
  if (error == 0) copy_of_any_size(whole, attributes, size);
  return error;
}

}  // namespace

SoftContext::SoftContext(std::shared_ptr<SoftDevice> device) : verbs_context{}, device_(std::move(device)) {
  sz = sizeof(verbs_context);
  context.device = device_.get();
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.alloc_mw = alloc_mw;
  context.ops.bind_mw = bind_mw;
  context.ops.dealloc_mw = dealloc_mw;
  context.cmd_fd = segment_.fd();
  context.num_comp_vectors = 1;
  verbs_context::query_port = query_port_of_any_size;
  verbs_context::query_device_ex = query_device_of_any_size;
  verbs_context::query_rt_values = softdev::query_rt_values;
  verbs_context::create_cq_ex = softdev::create_cq_ex;
  verbs_context::create_qp_ex = softdev::create_qp_ex;
  verbs_context::open_xrcd = softdev::open_xrcd;
  verbs_context::close_xrcd = softdev::close_xrcd;
  verbs_context::create_srq_ex = softdev::create_srq_ex;
  verbs_context::get_srq_num = softdev::get_srq_num;
  verbs_context::open_qp = softdev::open_qp;
  verbs_context::alloc_parent_domain = softdev::alloc_parent_domain;
  verbs_context::alloc_td = softdev::alloc_td;
  verbs_context::dealloc_td = softdev::dealloc_td;
  pthread_mutex_init(&context.mutex, nullptr);
  // What the inline functions of verbs.h take for "the verbs_context around it is there".
  context.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);
}

SoftContext* SoftContext::open(std::shared_ptr<SoftDevice> device) {
  std::unique_ptr<SoftContext> context(new SoftContext(std::move(device)));
  int error = read_lateness(context->lateness_);
  const char* const use = ::secure_getenv(kTcpVariable);
  if (error == 0 && !read_tcp_use(use == nullptr ? "" : use, context->tcp_use_)) error = EINVAL;
  // In a program with more rights than its user has, too: it takes addresses away and adds none.
  const char* const listen = std::getenv(kListenVariable);
  const bool is_listed = listen != nullptr && *listen != '\0';
  if (is_listed && !TcpAddresses::read(listen, context->tcp_addresses_.emplace())) error = EINVAL;
  if (error == 0) error = context->events_.open();
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  context->verbs()->async_fd = context->events_.fd();
  // Without netlink (a sandbox may refuse it) or another thread there are no events of the port, and all else works.
  (void)context->port_.start(context->identity(), context->events_);
  if (!context->registrations_.create()) return nullptr;
  return context.release();
}

SoftContext::~SoftContext() {
  port_.stop();
  tcp_.stop();
  retrier_.stop();
  server_.stop();
}

SoftContext& SoftContext::from(ibv_context* context) noexcept {
  auto* const around = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return static_cast<SoftContext&>(*reinterpret_cast<verbs_context*>(around));
}

bool SoftContext::is(const ibv_context* context) noexcept {
  return context->ops.post_send == post_send;
}

bool SoftContext::is_command_fd(int fd) noexcept {
  constexpr std::string_view kName = "/memfd:soft0-control";
  std::array<char, kName.size()> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  return length == static_cast<ssize_t>(kName.size()) && std::string_view(target.data(), target.size()) == kName;
}

int SoftContext::next_event(ibv_async_event& event) {
  for (;;) {
    port_.look(events_);
    if (events_.take(event)) return 0;
    if (events_.wait() != 0) return -1;
  }
}

int SoftContext::ensure_threads() {
  const std::scoped_lock lock(threads_mutex_);
  if (threads_running_) return 0;
  int error = server_.start();
  if (error == 0) error = retrier_.start();
  if (error != 0) {
    server_.stop();
    return error;
  }
  threads_running_ = true;
  return 0;
}

bool SoftContext::wait_until_idle() {
  await_visibility();  // one for all: it is a system call, and an interrupt of all processors
  const auto deadline = SoftQp::Clock::now() + kLongestRequest;
  std::vector<std::shared_ptr<SoftQp>> targets = queue_pairs_.all();
  for (auto& target : stragglers_.targets()) {  // those that are destroyed, too; each once
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(std::move(target));
  }
  bool idle = true;
  for (const auto& qp : targets) {
    idle = qp->wait_until_seen_idle(deadline, SoftQp::Wait::kUnlessByAddress) && idle;
  }
  server_.wait_for_access();
  return idle;
}

bool SoftContext::wait_for_initiators() {
  await_visibility();
  const auto deadline = SoftQp::Clock::now() + kLongestRequest;
  bool idle = true;
  for (const auto& qp : queue_pairs_.all()) idle = qp->wait_for_seen_initiators(deadline) && idle;
  return idle;
}

void SoftContext::give_back(SharedFile& file, SharedBlock block, std::uint64_t made_at) {
  stragglers_.defer(made_at, [&file, range = SharedFile::unmap(std::move(block))] { file.free(range); });
}

void* SoftContext::allocate_memory(std::size_t length, bool huge_pages) {
  stragglers_.sweep();
  return memory_.allocate(length, huge_pages, stragglers_.moment());
}

void SoftContext::free_memory(void* address) {
  SharedMemory::Allocation taken;
  if (memory_.take(address, taken)) give_back(memory_.file(taken.arena), std::move(taken.block), taken.made_at);
}

}  // namespace rdmacomm::softdev
