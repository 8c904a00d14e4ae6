#include "softdev/local/local_wire.h"

#include <algorithm>
#include <cerrno>

#include "base/hot_inline.h"
#include "softdev/common/copy.h"
#include "softdev/common/device_limits.h"
#include "softdev/common/path_counts.h"
#include "softdev/common/prefetch.h"
#include "softdev/host/soft_ah.h"
#include "softdev/local/link_terms.h"
#include "softdev/local/misconnection.h"
#include "softdev/local/peer_directory.h"
#include "softdev/memory/mr_table.h"
#include "softdev/memory/null_memory.h"
#include "softdev/memory/requests.h"
#include "softdev/shared/arrival_stamp.h"
#include "softdev/shared/completion_event.h"
#include "softdev/shared/hazard.h"

namespace rdmacomm::softdev {
namespace {

std::byte* pointer(std::uint64_t address) noexcept {
  return reinterpret_cast<std::byte*>(address);
}

/// Concatenates `count` slices into `to`. Together they have at most InSlot::kEagerBytes.
void gather(const ibv_sge* slices, int count, std::byte* to) noexcept {
  for (int i = 0; i < count; ++i) {
    copy_small(to, pointer(slices[i].addr), slices[i].length);
    to += slices[i].length;
  }
}

std::uint8_t publish_flags(ibv_wr_opcode opcode) noexcept {
  if (opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE) return 0;
  return opcode == IBV_WR_SEND_WITH_INV ? IBV_WC_WITH_INV : IBV_WC_WITH_IMM;
}

/// Copies a slice of a receive from memory that other processes can change. So a slice cannot change between its check
/// and its use.
ibv_sge read_once(const ibv_sge& shared) noexcept {
  const ibv_sge copy = shared;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler does not read it again
  return copy;
}

/// The access that a queue pair must grant for a request to it.
std::uint32_t needed_access(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_ACCESS_REMOTE_WRITE;
    case IBV_WR_RDMA_READ: return IBV_ACCESS_REMOTE_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_ACCESS_REMOTE_ATOMIC;
    default: return 0;
  }
}

/// The event that a reliable target reports when a request is refused with `status`. Returns false: none.
bool target_event(ibv_wc_status status, ibv_event_type& event) noexcept {
  if (status == IBV_WC_REM_ACCESS_ERR) {
    event = IBV_EVENT_QP_ACCESS_ERR;
  } else if (status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR) {
    event = IBV_EVENT_QP_REQ_ERR;
  } else {
    return false;
  }
  return true;
}

}  // namespace

LocalWire::LocalWire(const LocalEnd& own, std::uint32_t target_qpn) noexcept
    : own_(own), target_qpn_(target_qpn), own_registrations_(own.premises->registrations.entries()) {
  if (takes_turns(own.service)) link_ = link_word(target_qpn, 0, own.service);
}

LocalWire::~LocalWire() {
  if (remote_ == nullptr) return;
  remote_.reset();
  peer_->detach(target_qpn_, own_.qpn);
}

int LocalWire::connect() {
  const int error = find_target();
  return error == EPERM || error == EPROTO || is_own_shortage(error) ? error : 0;
}

/// Detaches a target that was found, unless a wire takes it.
class LocalWire::Search final : public TargetSearch {
 public:
  explicit Search(const LocalWire& wire) noexcept
      : peer(wire.peer_), peers_(wire.own_.premises->peers), target_qpn_(wire.target_qpn_), own_qpn_(wire.own_.qpn) {}
  ~Search() override {
    if (remote == nullptr) return;
    remote.reset();
    peer->detach(target_qpn_, own_qpn_);
  }
  void run() noexcept override {
    if (peer == nullptr) peer = peers_.get(target_qpn_, error);
    if (peer != nullptr) remote = peer->attach(target_qpn_, own_qpn_, error);
  }

  int error = 0;
  std::shared_ptr<Peer> peer;
  std::unique_ptr<RemoteQp> remote;

 private:
  PeerDirectory& peers_;
  const std::uint32_t target_qpn_;
  const std::uint32_t own_qpn_;
};

std::unique_ptr<TargetSearch> LocalWire::search() const {
  return std::make_unique<Search>(*this);
}

void LocalWire::begin(const LinkTerms& terms, std::uint32_t life) noexcept {
  terms_ = terms;
  life_ = life;
  link_ = kNoLink;
}

std::string LocalWire::why_unreachable() const {
  if (target_ == nullptr) return "no process of this host has it";
  return why_refused(*target_, terms_);
}

int LocalWire::find_target() noexcept {
  if (remote_ != nullptr) return 0;
  Search search(*this);
  search.run();
  take_found(search);
  return remote_ == nullptr ? search.error : 0;
}

void LocalWire::take_found(TargetSearch& found) noexcept {
  auto& search = static_cast<Search&>(found);
  if (peer_ == nullptr) peer_ = search.peer;
  if (remote_ != nullptr || search.remote == nullptr || search.peer != peer_) return;
  remote_ = std::move(search.remote);
  view_ = remote_->view;
  target_ = view_.shared;
  target_registrations_ = peer_->registrations();
  srq_ = remote_->srq;
  recv_floor_ = srq_.shared == nullptr ? &target_->recv_floor : &srq_.shared->recv_floor;
  if (srq_.shared != nullptr) eager_bytes_ = SharedReceive::kEagerBytes;
  if (own_.service == Service::kXrcQueue) eager_bytes_ = XrcRoute::kEagerBytes;
  next_line_ = &view_.slot(target_->taken);
  by_membarrier_ = own_.premises->membarrier && target_->membarrier.load(std::memory_order_relaxed) != 0;
}

std::uint32_t LocalWire::rnr_timer_code() const noexcept {
  return target_ == nullptr ? 0 : target_->rnr_timer.load(std::memory_order_relaxed);
}

RDMACOMM_HOT_INLINE bool LocalWire::local_slices_valid(const ibv_send_wr& wr, std::uint64_t& bytes) const noexcept {
  return slices_valid(own_registrations_, own_.pd, wr, bytes);
}

bool LocalWire::take_shared_receive() noexcept {
  // A holder releases it after a few instructions, unless it has lost its core or died.
  constexpr int kSpins = 10'000;
  SrqShared& srq = *srq_.shared;
  if (target_->claimed != 0) return true;  // by an earlier message that was refused
  std::uint32_t nobody = 0;
  for (int spins = 0; !srq.holder.compare_exchange_weak(nobody, target_qpn_, std::memory_order_acquire); ++spins) {
    if (spins == kSpins) return false;
    nobody = 0;
    pause_core();
  }
  const std::uint32_t taken = srq.taken.load(std::memory_order_relaxed);
  const std::uint32_t left = srq.posted.load(std::memory_order_acquire) - taken;
  bool low = false;
  if (left != 0) {
    // In this order: an initiator that dies in between has either not taken the receive, or has recorded in `claimed`
    // which one it took.
    target_->claimed = (srq_.order[taken & srq_.mask].load(std::memory_order_relaxed) & srq_.mask) + 1;
    srq.taken.store(taken + 1, std::memory_order_release);
    const std::uint32_t limit = srq.limit.load(std::memory_order_relaxed);
    low = limit != 0 && left - 1 < limit;
    if (low) srq.limit.store(0, std::memory_order_relaxed);
  }
  srq.holder.store(0, std::memory_order_release);
  if (low) peer_->report_limit(target_qpn_);
  return left != 0;
}

RDMACOMM_HOT_INLINE RecvEntry& LocalWire::receive() const noexcept {
  return srq_.shared == nullptr ? view_.recv(target_->taken) : srq_.recv((target_->claimed - 1) & srq_.mask);
}

RDMACOMM_HOT_INLINE bool LocalWire::receive_posted() noexcept {
  if (srq_.shared != nullptr) return take_shared_receive();
  QpShared& target = *target_;
  if (target.taken != target.posted_seen) return true;
  target.posted_seen = target.posted.load(std::memory_order_acquire);
  return target.taken != target.posted_seen;
}

RDMACOMM_HOT_INLINE void LocalWire::publish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes,
                                            bool eager) noexcept {
  QpShared& target = *target_;
  InSlot& slot = view_.slot(target.taken);
  const bool write = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  SlotHead head;
  head.sequence = ++target.taken;
  head.status = static_cast<std::uint8_t>(status);
  head.opcode = static_cast<std::uint8_t>((write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) - IBV_WC_RECV);
  head.flags = publish_flags(wr.opcode);
  head.contents = eager ? SlotContents::kEager : 0;
  slot.bytes = bytes;
  slot.immediate = wr.imm_data;
  if (srq_.shared != nullptr) {
    // In this order: if the initiator dies in between, the number of the receive is recorded, and QpInitiators
    // withdraws it.
    SharedReceive::entry(slot) = target.claimed - 1;
    std::atomic_signal_fence(std::memory_order_release);
    target.claimed = 0;
  }
  const Stamping how = target.stamping.load(std::memory_order_relaxed);
  // A message that takes the place of the stamp was begun before the queue had another queue pair.
  if (how != Stamping::kNone && (!eager || bytes <= InSlot::kStampedEagerBytes)) {
    slot.stamp() = draw_stamp(*remote_->recv_cq, how);
    head.contents |= SlotContents::kStamped;
  }
  slot.head.store(head, std::memory_order_release);
  next_line_ = &view_.slot(target.taken);
  if (remote_->wake_fd < 0) return;
  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0 || status != IBV_WC_SUCCESS;
  fire(*remote_->recv_cq, remote_->wake_fd, solicited);
}

/// The source of the status of a request that it does not permit: InfiniBand specification, volume 1, section 9.9.6; rxe
/// does the same (check_op_valid() in Linux's drivers/infiniband/sw/rxe/rxe_resp.c).
RDMACOMM_HOT_INLINE bool LocalWire::permits(std::uint32_t access) const noexcept {
  return (target_->access.load(std::memory_order_relaxed) & access) == access;
}

RDMACOMM_HOT_INLINE const MrEntry* LocalWire::find_allowed(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                                                           std::uint64_t length, std::uint32_t access) const noexcept {
  return find_remote_range(target_registrations_, key, pd, target_qpn_, address, length, access);
}

RDMACOMM_HOT_INLINE bool LocalWire::find(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                                         std::uint64_t length, std::uint32_t access, TargetRange& range) noexcept {
  const MrEntry* entry = find_allowed(key, pd, address, length, access);
  if (entry == nullptr) return false;
  range = {nullptr, address};
  if (entry->arena == Arena::kNone) return true;
  if (entry->arena == Arena::kNull) [[unlikely]] {
    range.base = null_memory((access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != 0);
    return range.base != nullptr;
  }
  Cached& cached = cache_[place_of(key) % cache_.size()];
  if (cached.stamp != entry->stamp) cached = {entry->stamp, peer_->map_registration(*entry)};
  if (cached.start != nullptr) range.base = cached.start + (address - entry->address);
  return true;
}

int LocalWire::write_by_address(std::byte* own, std::uint64_t address, std::uint32_t key, std::size_t bytes) noexcept {
  // A target takes a write back once for each of its waits that timed out. A target that continues to do so must not
  // keep this loop running.
  constexpr int kMaxTakenBack = 100;
  int taken_back = 0;
  while (bytes != 0) {
    if (const int error = peer_->check_system_calls(); error != 0) return error;
    std::size_t piece = std::min(bytes, kLongestPiece);
    if (const int error = write_piece(own, address, key, piece); error != 0) {
      if (error != EAGAIN) return error;
      if (++taken_back == kMaxTakenBack) return EFAULT;
    }
    own += piece;
    address += piece;
    bytes -= piece;
  }
  return 0;
}

/// Writes some of `bytes` and stores their number in `bytes`. EAGAIN: the target has taken the write back; a new
/// attempt may succeed.
int LocalWire::write_piece(std::byte* own, std::uint64_t address, std::uint32_t key, std::size_t& bytes) noexcept {
  const MrEntry& entry = registration(key);
  const ByAddress mark(*target_, by_membarrier_, address + entry.shift, bytes, remote_->busy_address);
  const bool still_there = target_->link.load(std::memory_order_acquire) == link_;
  int error = EACCES;
  if (still_there && entry.key.load(std::memory_order_acquire) == key) {
    error = peer_->write_by_system_call(own, target_->write, bytes, mark.before());
  }
  if (error != 0) bytes = 0;
  return error == EFAULT && !target_->write.is_given() ? EAGAIN : error;
}

int LocalWire::read_by_address(std::byte* own, std::uint64_t address, std::uint32_t key, std::size_t bytes) noexcept {
  const MrEntry& entry = registration(key);
  const int error = peer_->read_by_system_call(own, address + entry.shift, bytes);
  // If the target did not wait, the memory may belong to another user by now.
  return error == 0 && entry.key.load(std::memory_order_acquire) != key ? EACCES : error;
}

int LocalWire::copy_unmapped(RequestKind kind, std::byte* own, std::uint64_t address, std::uint32_t key,
                             std::size_t bytes) noexcept {
  const bool write = kind == RequestKind::kWrite;
  int error = EPERM;
  if (registration(key).arena != Arena::kServed) {
    error = write ? write_by_address(own, address, key, bytes) : read_by_address(own, address, key, bytes);
  }
  count(error != EPERM ? path_counts().system_calls : path_counts().served);
  if (error != EPERM) return error;
  Request request;
  request.kind = kind;
  request.qpn = target_qpn_;
  request.rkey = key;
  request.address = address;
  return peer_->request(request, {own, bytes}, nullptr);
}

int LocalWire::copy_out(const TargetRange& to, std::uint32_t key, std::byte* from, std::size_t bytes) noexcept {
  if (to.base != nullptr) {
    copier_.copy(to.base, from, bytes);
    return 0;
  }
  return copy_unmapped(RequestKind::kWrite, from, to.address, key, bytes);
}

int LocalWire::copy_in(std::byte* to, const TargetRange& from, std::uint32_t key, std::size_t bytes) noexcept {
  if (from.base != nullptr) {
    copier_.copy(to, from.base, bytes);
    return 0;
  }
  return copy_unmapped(RequestKind::kRead, to, from.address, key, bytes);
}

ExecResult LocalWire::failed_copy(int error) const noexcept {
  // The target has taken its link word back, and may accept the request later.
  if (error == EACCES && target_->link.load(std::memory_order_acquire) != link_) return ExecOutcome::kUnreachable;
  if (error == EFAULT || error == EACCES) return ExecResult::refused(IBV_WC_REM_OP_ERR);
  return ExecOutcome::kLost;
}

int LocalWire::scatter(const ibv_send_wr& wr, RecvEntry& recv, std::uint32_t bytes) noexcept {
  const ibv_sge* from = wr.sg_list;
  std::uint32_t from_done = 0;  // copied bytes of *from
  const ibv_sge* next = recv.scatter();
  const ibv_sge* const end = end_of(recv);
  while (bytes != 0) {
    if (next == end) return EACCES;
    const ibv_sge to = read_once(*next++);
    const std::uint32_t here = std::min(to.length, bytes);
    TargetRange range;
    if (here != 0 && !find(to.lkey, remote_->recv_pd, to.addr, here, IBV_ACCESS_LOCAL_WRITE, range)) return EACCES;
    for (std::uint32_t done = 0; done < here;) {
      const std::uint32_t piece = std::min(here - done, from->length - from_done);
      const TargetRange at{range.base == nullptr ? nullptr : range.base + done, range.address + done};
      const int error = copy_out(at, to.lkey, pointer(from->addr) + from_done, piece);
      if (error != 0) return error;
      done += piece;
      from_done += piece;
      if (from_done == from->length) {
        ++from;
        from_done = 0;
      }
    }
    bytes -= here;
  }
  return 0;
}

RDMACOMM_HOT_INLINE bool LocalWire::fits_in_slot(std::uint32_t bytes) const noexcept {
  if (bytes > eager_bytes_) return false;
  return bytes <= InSlot::kStampedEagerBytes || target_->stamping.load(std::memory_order_relaxed) == Stamping::kNone;
}

RDMACOMM_HOT_INLINE ExecResult LocalWire::exec_send(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  if (!receive_posted()) return ExecOutcome::kReceiverNotReady;
  const bool fits = fits_in_slot(bytes);
  if (fits && bytes <= recv_floor_->load(std::memory_order_relaxed)) {
    gather(wr.sg_list, wr.num_sge, view_.slot(target_->taken).payload);
    publish(wr, IBV_WC_SUCCESS, bytes, true);
    return ExecResult::done(bytes);
  }
  return fits ? hand_over(wr, bytes) : place(wr, bytes);
}

/// A short message, while the queue has some shorter receive: checks the entry of this receive. That costs one cache
/// line, but place() may need a system call.
ExecResult LocalWire::hand_over(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  RecvEntry& recv = receive();
  const bool accepts =
      recv.total >= bytes && std::atomic_ref(recv.memory).load(std::memory_order_relaxed) == RecvEntry::kRegistered;
  if (!accepts) return place(wr, bytes);
  gather(wr.sg_list, wr.num_sge, view_.slot(target_->taken).payload);
  publish(wr, IBV_WC_SUCCESS, bytes, true);
  return ExecResult::done(bytes);
}

/// Copies a message straight into its receive.
RDMACOMM_HOT_INLINE ExecResult LocalWire::place(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  RecvEntry& recv = receive();
  if (recv.total < bytes) {
    publish(wr, IBV_WC_LOC_LEN_ERR, bytes, false);
    return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  }
  const int error = scatter(wr, recv, bytes);
  if (error == EACCES) {
    publish(wr, IBV_WC_LOC_PROT_ERR, bytes, false);
    return ExecResult::refused(IBV_WC_REM_OP_ERR);
  }
  if (error != 0) return failed_copy(error);
  publish(wr, IBV_WC_SUCCESS, bytes, false);
  return ExecResult::done(bytes);
}

/// The target's serving thread ends the binding of a window.
int LocalWire::invalidate(std::uint32_t key) noexcept {
  Request request;
  request.kind = RequestKind::kInvalidate;
  request.qpn = target_qpn_;
  request.rkey = key;
  return peer_->request(request, {}, nullptr);
}

ExecResult LocalWire::exec_send_and_invalidate(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  if (!receive_posted()) return ExecOutcome::kReceiverNotReady;
  const int error = invalidate(wr.invalidate_rkey);
  if (error == EACCES) return ExecResult::refused(IBV_WC_REM_ACCESS_ERR);
  return error == 0 ? exec_send(wr, bytes) : ExecResult(ExecOutcome::kLost);
}

RDMACOMM_HOT_INLINE void LocalWire::write_mapped(const ibv_send_wr& wr, std::byte* to) noexcept {
  const ibv_sge* slice = wr.sg_list;
  for (const ibv_sge* const last = slice + wr.num_sge - 1; slice != last; ++slice) {
    copier_.copy(to, pointer(slice->addr), slice->length);
    to += slice->length;
  }
  copier_.copy_last_byte_last(to, pointer(slice->addr), slice->length);
}

/// For write_again(). An inline slice has no registration.
RDMACOMM_HOT_INLINE void LocalWire::remember(const ibv_send_wr& wr, std::uint64_t shift) noexcept {
  const MrEntry& entry = registration(wr.wr.rdma.rkey);
  if (entry.arena == Arena::kNull) return;  // its addresses have no places of their own
  written_to_.remember(entry, wr.wr.rdma.rkey, shift);
  if (wr.num_sge != 1 || (wr.send_flags & IBV_SEND_INLINE) != 0) return;
  const std::uint32_t key = wr.sg_list[0].lkey;
  written_from_.remember(own_registrations_[place_of(key)], key, 0);
}

int LocalWire::write_unmapped(const ibv_send_wr& wr, std::uint64_t to) noexcept {
  for (const ibv_sge& slice : slices_of(wr)) {
    const int error = copy_unmapped(RequestKind::kWrite, pointer(slice.addr), to, wr.wr.rdma.rkey, slice.length);
    if (error != 0) return error;
    to += slice.length;
  }
  return 0;
}

RDMACOMM_HOT_INLINE ExecResult LocalWire::exec_write(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  const bool immediate = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (!permits(IBV_ACCESS_REMOTE_WRITE)) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  if (immediate && !receive_posted()) return ExecOutcome::kReceiverNotReady;
  if (bytes != 0) {
    TargetRange to;
    const auto key = wr.wr.rdma.rkey;
    if (!find(key, remote_->pd, wr.wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_WRITE, to))
      return ExecResult::refused(IBV_WC_REM_ACCESS_ERR);
    if (to.base != nullptr) [[likely]] {
      remember(wr, reinterpret_cast<std::uint64_t>(to.base) - to.address);
      write_mapped(wr, to.base);
    } else if (const int error = write_unmapped(wr, to.address); error != 0) {
      return failed_copy(error);
    }
  }
  if (immediate) publish(wr, IBV_WC_SUCCESS, bytes, false);
  return ExecResult::done(bytes);
}

std::uint32_t LocalWire::target_read_depth() const noexcept {
  return target_ == nullptr ? UINT32_MAX : target_->max_dest_rd.load(std::memory_order_relaxed);
}

bool LocalWire::exceeds_read_depth() const noexcept {
  return reads_ > target_->max_dest_rd.load(std::memory_order_relaxed);
}

ExecResult LocalWire::exec_read(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  if (!permits(IBV_ACCESS_REMOTE_READ) || exceeds_read_depth()) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  if (bytes == 0) return ExecResult::done(0);
  TargetRange from;
  const auto key = wr.wr.rdma.rkey;
  if (!find(key, remote_->pd, wr.wr.rdma.remote_addr, bytes, IBV_ACCESS_REMOTE_READ, from))
    return ExecResult::refused(IBV_WC_REM_ACCESS_ERR);
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& slice = wr.sg_list[i];
    const int error = copy_in(pointer(slice.addr), from, key, slice.length);
    if (error != 0) return failed_copy(error);
    if (from.base != nullptr) from.base += slice.length;
    from.address += slice.length;
  }
  return ExecResult::done(bytes);
}

ibv_wc_status LocalWire::find_word(std::uint32_t key, std::uint64_t address, std::uint32_t access,
                                   TargetRange& at) noexcept {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (address % kWord != 0) return IBV_WC_REM_INV_REQ_ERR;
  if (!find(key, remote_->pd, address, kWord, access, at)) return IBV_WC_REM_ACCESS_ERR;
  // With zero-based addresses, address 0 may have any alignment.
  return (address + registration(key).shift) % kWord == 0 ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR;
}

ExecResult LocalWire::exec_atomic_write(const ibv_send_wr& wr) noexcept {
  const auto& to = wr.wr.rdma;
  if (!permits(IBV_ACCESS_REMOTE_WRITE)) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  TargetRange at;
  const ibv_wc_status found = find_word(to.rkey, to.remote_addr, IBV_ACCESS_REMOTE_WRITE, at);
  if (found != IBV_WC_SUCCESS) return ExecResult::refused(found);
  std::uint64_t value = 0;
  gather(wr.sg_list, wr.num_sge, reinterpret_cast<std::byte*>(&value));
  if (at.base != nullptr) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at.base)).store(value);
    return ExecResult::done(sizeof(value));
  }
  // As in exec_atomic().
  Request request;
  request.kind = RequestKind::kAtomicWrite;
  request.qpn = target_qpn_;
  request.rkey = to.rkey;
  request.address = to.remote_addr;
  request.operand = value;
  count(path_counts().served);
  const int error = peer_->request(request, {}, nullptr);
  return error == 0 ? ExecResult::done(sizeof(value)) : failed_copy(error);
}

/// All earlier requests are complete, and their bytes are in memory that all processors see.
ExecResult LocalWire::exec_flush(const ibv_send_wr& wr) noexcept {
  const FlushRequest flush = FlushRequest::of(wr);
  if (!flush.is_valid() || !permits(flush.needed_access())) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  const bool whole = flush.level == kFlushRegistration;
  // The whole registration is flushed at any address and length.
  const std::uint64_t address = whole ? registration(flush.key).address : flush.address;
  const std::uint64_t length = whole ? 0 : flush.length;
  if (find_allowed(flush.key, remote_->pd, address, length, flush.needed_access()) == nullptr) {
    return ExecResult::refused(IBV_WC_REM_ACCESS_ERR);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ExecResult::done(0);
}

ExecResult LocalWire::exec_atomic(const ibv_send_wr& wr) noexcept {
  const auto& atomic = wr.wr.atomic;
  const bool add = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (!permits(IBV_ACCESS_REMOTE_ATOMIC) || exceeds_read_depth()) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  TargetRange at;
  const ibv_wc_status found = find_word(atomic.rkey, atomic.remote_addr, IBV_ACCESS_REMOTE_ATOMIC, at);
  if (found != IBV_WC_SUCCESS) return ExecResult::refused(found);
  std::uint64_t before = atomic.compare_add;
  if (at.base == nullptr) {
    // The memory is not mapped here. The target's serving thread does all atomics on it, with the CPU's atomic
    // instructions.
    Request request;
    request.kind = add ? RequestKind::kFetchAdd : RequestKind::kCompareSwap;
    request.qpn = target_qpn_;
    request.rkey = atomic.rkey;
    request.address = atomic.remote_addr;
    request.operand = atomic.compare_add;
    request.swap = atomic.swap;
    count(path_counts().served);
    const int error = peer_->request(request, {}, &before);
    if (error != 0) return failed_copy(error);
  } else {
    const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at.base));
    if (add) {
      before = word.fetch_add(atomic.compare_add);
    } else {
      word.compare_exchange_strong(before, atomic.swap);  // stores the value before in `before`
    }
  }
  std::memcpy(pointer(wr.sg_list[0].addr), &before, sizeof(before));
  return ExecResult::done(8);
}

/// True if its packets would be longer than the target accepts.
RDMACOMM_HOT_INLINE bool LocalWire::exceeds_mtu(std::uint32_t bytes) const noexcept {
  const std::uint32_t target_mtu = target_->path_mtu.load(std::memory_order_relaxed);
  return bytes > target_mtu && own_.path_mtu > target_mtu;
}

RDMACOMM_HOT_INLINE ExecResult LocalWire::carry_out(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  if (exceeds_mtu(bytes)) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM: return exec_send(wr, bytes);
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return exec_write(wr, bytes);
    case IBV_WR_RDMA_READ: return exec_read(wr, bytes);
    case IBV_WR_SEND_WITH_INV: return exec_send_and_invalidate(wr, bytes);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return exec_atomic(wr);
    default: return wr.opcode == kWrFlush ? exec_flush(wr) : exec_atomic_write(wr);
  }
}

bool LocalWire::is_up() const noexcept {
  return target_ != nullptr && !peer_->dead() && target_->link.load(std::memory_order_acquire) == link_;
}

/// The first request: finds out if the target accepts requests from this initiator.
bool LocalWire::establish() noexcept {
  if (link_ != kNoLink) return false;
  const std::uint64_t link = target_->link.load(std::memory_order_acquire);
  const std::uint32_t life = life_ == 0 ? 0 : target_->life.load(std::memory_order_relaxed);
  const std::uint64_t wanted = own_.by_tcp ? link_word_by_tcp(target_qpn_, own_.qpn, own_.service, terms_.psn)
                                           : link_word(target_qpn_, own_.qpn, own_.service, terms_, life);
  if (link != wanted) return false;
  std::uint32_t first = 0;
  if (!target_->initiator_life.compare_exchange_strong(first, life_, std::memory_order_relaxed) && first != life_) {
    return false;
  }
  link_ = link;
  if (target_->awaits_first.exchange(0, std::memory_order_relaxed) != 0) peer_->report_contact(target_qpn_);
  return true;
}

RDMACOMM_HOT_INLINE bool LocalWire::accepts_requests() noexcept {
  return target_->link.load(std::memory_order_acquire) == link_ || establish();
}

/// While the flag was up, a target that went down could not flush its receives.
RDMACOMM_HOT_INLINE void LocalWire::release_target() noexcept {
  if (target_->link.load(std::memory_order_acquire) != link_) [[unlikely]]
    peer_->report_release(target_qpn_);
}

template <typename Work>
RDMACOMM_HOT_INLINE ExecResult LocalWire::at_target(Work&& work) noexcept {
  // Also checked before the flag goes up: a target that is going down must not find the flag up needlessly.
  if (!accepts_requests()) return ExecOutcome::kUnreachable;
  ExecResult result = ExecOutcome::kUnreachable;
  std::uint32_t life = 0;
  {
    const Hazard hazard(*target_, by_membarrier_);
    if (target_->link.load(std::memory_order_acquire) == link_) result = work();
    life = target_->life.load(std::memory_order_relaxed);
  }
  release_target();
  if (result.is_done() && result.status() != IBV_WC_SUCCESS && is_reliable(own_.service)) {
    report_refusal(result.status(), life);
  }
  return result;
}

template <typename Work>
RDMACOMM_HOT_INLINE ExecResult LocalWire::checked_at_target(const ibv_send_wr& wr, Work&& work) noexcept {
  std::uint64_t total = 0;
  if (!local_slices_valid(wr, total)) return ExecResult::refused(IBV_WC_LOC_PROT_ERR);
  if (total > kMaxMessageBytes) return ExecResult::refused(IBV_WC_LOC_LEN_ERR);
  if (peer_ != nullptr && peer_->dead()) return ExecOutcome::kLost;
  if (target_ == nullptr) return ExecOutcome::kUnreachable;
  const auto bytes = static_cast<std::uint32_t>(total);
  return at_target([&work, bytes] { return work(bytes); });
}

RDMACOMM_HOT_INLINE bool LocalWire::write_again(const ibv_send_wr& wr) noexcept {
  // The maximum size that fits in one packet with any path MTU. Source: InfiniBand specification, volume 1, section
  // 4.2.
  constexpr std::uint32_t kOnePacket = 256;
  if (wr.num_sge != 1 || (wr.send_flags & IBV_SEND_INLINE) != 0 || !by_membarrier_) return false;
  const ibv_sge slice = wr.sg_list[0];
  const std::uint64_t address = wr.wr.rdma.remote_addr;
  // A length of 0 wraps and is rejected, too.
  if (!written_from_.is_named(slice.lkey) || slice.length - 1 >= kOnePacket) return false;
  if (!written_from_.still_has(slice.addr, slice.length)) return false;
  if (peer_->dead() || target_->link.load(std::memory_order_acquire) != link_) return false;
  bool done = false;
  {
    const Hazard hazard(*target_, true);
    if (target_->link.load(std::memory_order_acquire) == link_ && written_to_.still_has(address, slice.length) &&
        (target_->access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_WRITE) != 0) [[likely]] {
      copier_.copy_last_byte_last(pointer(address + written_to_.shift()), pointer(slice.addr), slice.length);
      done = true;
    }
  }
  release_target();
  return done;
}

/// In a WRITE, each instruction adds noticeable latency, so the code for other requests is kept out of its path.
/// Fetching the line from the target's core takes as long as all checks of a request, so it begins before them.
ExecResult LocalWire::exec(const ibv_send_wr& wr) noexcept {
  if (wr.opcode != IBV_WR_RDMA_WRITE) return exec_otherwise(wr);
  if (written_to_.is_named(wr.wr.rdma.rkey)) [[likely]] {
    prefetch_for_writing(pointer(wr.wr.rdma.remote_addr + written_to_.shift()));
    if (write_again(wr)) return ExecResult::done(wr.sg_list[0].length);
  }
  return exec_otherwise(wr);
}

ExecResult LocalWire::exec_otherwise(const ibv_send_wr& wr) noexcept {
  if (is_send(wr.opcode) && next_line_ != nullptr) prefetch_for_writing(next_line_);
  return checked_at_target(wr, [this, &wr](std::uint32_t bytes) { return carry_out(wr, bytes); });
}

/// Finds the memory for bytes `done` to `total` of a message, from the scatter list of its receive. Returns the number
/// of places; -1: the receive may not use some of this memory.
int LocalWire::places_in_receive(const RecvEntry& recv, std::uint32_t done, std::uint32_t total,
                                 std::span<iovec> places) const noexcept {
  int count = 0;
  const ibv_sge* next = const_cast<RecvEntry&>(recv).scatter();
  const ibv_sge* const end = end_of(recv);
  std::uint64_t length = 0;
  for (std::uint64_t start = 0; start < total; start += length) {
    if (next == end) return -1;
    const ibv_sge slice = read_once(*next++);
    length = slice.length;
    if (length == 0 || start + length <= done) continue;
    const std::uint64_t skip = std::max<std::uint64_t>(start, done) - start;
    const std::uint64_t here = std::min(length - skip, total - start - skip);
    const std::uint64_t address = slice.addr + skip;
    const MrEntry* const entry =
        find_local_range(target_registrations_, slice.lkey, remote_->recv_pd, address, here, IBV_ACCESS_LOCAL_WRITE);
    if (entry == nullptr) return -1;
    const std::uint64_t memory = memory_of(*entry, address, true);
    if (memory == 0) return -1;
    places[static_cast<std::size_t>(count++)] = {pointer(memory), here};
  }
  return count;
}

ExecResult LocalWire::send_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done,
                                PartMover& mover) noexcept {
  if (!receive_posted()) return ExecOutcome::kReceiverNotReady;
  const RecvEntry& recv = receive();
  if (recv.total < total) {
    publish(wr, IBV_WC_LOC_LEN_ERR, total, false);
    return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  }
  std::array<iovec, kMaxSge> places;
  const int count = places_in_receive(recv, done, total, places);
  const Moved moved =
      count < 0 ? Moved{0, EFAULT} : mover.move(std::span(places).first(static_cast<std::size_t>(count)));
  if (moved.error == EFAULT) {
    publish(wr, IBV_WC_LOC_PROT_ERR, total, false);
    return ExecResult::refused(IBV_WC_REM_OP_ERR);
  }
  if (moved.error != 0 && moved.error != EAGAIN) return ExecOutcome::kLost;
  const auto bytes = static_cast<std::uint32_t>(moved.bytes);
  if (done + bytes < total) return ExecResult::done(bytes);
  if (wr.opcode == IBV_WR_SEND_WITH_INV && invalidate(wr.invalidate_rkey) != 0) {
    return ExecResult::done(bytes, IBV_WC_REM_ACCESS_ERR);
  }
  publish(wr, IBV_WC_SUCCESS, total, false);
  return ExecResult::done(bytes);
}

ExecResult LocalWire::access_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done,
                                  PartMover& mover) noexcept {
  const bool read = wr.opcode == IBV_WR_RDMA_READ;
  const std::uint32_t access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if (!permits(access) || (read && exceeds_read_depth())) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  const std::uint64_t address = wr.wr.rdma.remote_addr + done;
  const MrEntry* const entry = find_remote_range(target_registrations_, wr.wr.rdma.rkey, remote_->pd, target_qpn_,
                                                 address, total - done, access);
  if (entry == nullptr) return ExecResult::refused(IBV_WC_REM_ACCESS_ERR);
  iovec place{pointer(memory_of(*entry, address, !read)), total - done};
  if (place.iov_base == nullptr) return failed_copy(EFAULT);
  const Moved moved = mover.move({&place, 1});
  if (moved.error == EFAULT) return failed_copy(EFAULT);
  if (moved.error != 0 && moved.error != EAGAIN) return ExecOutcome::kLost;
  return ExecResult::done(static_cast<std::uint32_t>(moved.bytes));
}

/// The last step of a WRITE with immediate data, after its bytes have arrived.
ExecResult LocalWire::announce(const ibv_send_wr& wr, std::uint32_t total) noexcept {
  if (!permits(IBV_ACCESS_REMOTE_WRITE)) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  if (!receive_posted()) return ExecOutcome::kReceiverNotReady;
  publish(wr, IBV_WC_SUCCESS, total, false);
  return ExecResult::done(0);
}

ExecResult LocalWire::exec_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done,
                                PartMover& mover) noexcept {
  if (target_ == nullptr) return ExecOutcome::kUnreachable;
  return at_target([&] {
    const ByAddress mark(*target_, by_membarrier_);
    if (exceeds_mtu(total)) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
    if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) return announce(wr, total);
    const bool access = wr.opcode == IBV_WR_RDMA_READ || wr.opcode == IBV_WR_RDMA_WRITE;
    return access ? access_part(wr, total, done, mover) : send_part(wr, total, done, mover);
  });
}

ExecResult LocalWire::deliver_datagram(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  if (target_->qkey.load(std::memory_order_relaxed) != datagram_key(wr, own_))
    return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
  if (!receive_posted()) return ExecOutcome::kReceiverNotReady;
  const SoftAh& address = SoftAh::from(wr.wr.ud.ah);
  DatagramSource::of(view_.slot(target_->taken)) = {own_.qpn, address.source_lid, address.received_service_level(),
                                                    address.attributes.is_global};
  DatagramHeader header = address.header(bytes);
  std::array<ibv_sge, kMaxSge + 1> slices;
  slices[0] = {reinterpret_cast<std::uint64_t>(header.data()), sizeof(header), 0};
  std::copy_n(wr.sg_list, wr.num_sge, slices.begin() + 1);
  ibv_send_wr with_header = wr;
  with_header.sg_list = slices.data();
  with_header.num_sge = wr.num_sge + 1;
  const ExecResult result = place(with_header, bytes + static_cast<std::uint32_t>(sizeof(header)));
  return result.succeeded() ? ExecResult::done(bytes) : result;
}

ExecResult LocalWire::send_datagram(const ibv_send_wr& wr) noexcept {
  std::uint64_t total = 0;
  if (!local_slices_valid(wr, total)) return ExecResult::refused(IBV_WC_LOC_PROT_ERR);
  if (total > own_.path_mtu) return ExecResult::refused(IBV_WC_LOC_LEN_ERR);
  if (target_ == nullptr || peer_->dead()) return ExecOutcome::kLost;
  if (!is_up()) return ExecOutcome::kUnreachable;
  ExecResult result = ExecOutcome::kReceiverNotReady;
  {
    const ContendedHazard turn(*target_, own_.turn(), !own_.by_tcp);
    const bool there = target_->link.load(std::memory_order_acquire) == link_;
    if (turn && there) result = deliver_datagram(wr, static_cast<std::uint32_t>(total));
  }
  release_target();
  return result;
}

/// Checks an XRC request against the rules of the target queue pair. The memory is that of its shared receive queue.
ibv_wc_status LocalWire::check_rules(const ibv_send_wr& wr, std::uint32_t bytes) const noexcept {
  if (exceeds_mtu(bytes)) return IBV_WC_REM_INV_REQ_ERR;
  const std::uint32_t needed = needed_access(wr.opcode);
  const bool asks = (needed & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (asks && exceeds_read_depth()) return IBV_WC_REM_INV_REQ_ERR;
  return permits(needed) ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR;
}

/// The same, and checks that the shared receive queue is in the target's XRC domain.
ibv_wc_status LocalWire::check_queue(const ibv_send_wr& wr, std::uint32_t bytes, LocalWire& queue) const noexcept {
  // Source: InfiniBand specification, volume 1, annex A14: the number of no queue, or of a queue in another domain.
  if (!queue.is_up() || queue.remote_->xrc_domain != remote_->xrc_domain) return IBV_WC_REM_INV_REQ_ERR;
  return check_rules(wr, bytes);
}

ExecResult LocalWire::check_xrc(const ibv_send_wr& wr, std::uint32_t total, LocalWire& queue) noexcept {
  if (peer_ != nullptr && peer_->dead()) return ExecOutcome::kLost;
  if (target_ == nullptr) return ExecOutcome::kUnreachable;
  return at_target([&] {
    ibv_wc_status status = check_queue(wr, total, queue);
    const auto& at = wr.wr.rdma;
    const bool named = status == IBV_WC_SUCCESS && total != 0;
    if (named &&
        queue.find_allowed(at.rkey, queue.remote_->pd, at.remote_addr, total, needed_access(wr.opcode)) == nullptr) {
      status = IBV_WC_REM_ACCESS_ERR;
    }
    return ExecResult::done(0, status);
  });
}

ExecResult LocalWire::deliver_xrc(const ibv_send_wr& wr, std::uint32_t bytes, LocalWire& queue) noexcept {
  const ibv_wc_status status = check_queue(wr, bytes, queue);
  if (status != IBV_WC_SUCCESS) return ExecResult::refused(status);
  ExecResult result = ExecOutcome::kUnreachable;
  {
    const ContendedHazard turn(*queue.target_, queue.own_.turn(), !own_.by_tcp);
    if (!turn) return own_.by_tcp ? ExecOutcome::kBusy : ExecOutcome::kUnreachable;
    if (!queue.is_up()) return ExecResult::refused(IBV_WC_REM_INV_REQ_ERR);
    XrcRoute::of(queue.view_.slot(queue.target_->taken)) = {target_qpn_, own_.qpn};
    result = queue.carry_out(wr, bytes);
  }
  queue.release_target();
  return result;
}

/// Reports to a reliable target that a request broke its rules.
void LocalWire::report_refusal(ibv_wc_status status, std::uint32_t life) noexcept {
  ibv_event_type event{};
  if (target_event(status, event)) peer_->report_failure(target_qpn_, event, life);
}

void LocalWire::report_refused(ibv_wc_status status) noexcept {
  if (target_ == nullptr || peer_->dead() || !is_reliable(own_.service)) return;
  if (accepts_requests()) report_refusal(status, target_->life.load(std::memory_order_relaxed));
}

ExecResult LocalWire::exec_xrc(const ibv_send_wr& wr, LocalWire& queue) noexcept {
  std::uint64_t total = 0;
  if (!local_slices_valid(wr, total)) return ExecResult::refused(IBV_WC_LOC_PROT_ERR);
  if (total > kMaxMessageBytes) return ExecResult::refused(IBV_WC_LOC_LEN_ERR);
  if (peer_ != nullptr && peer_->dead()) return ExecOutcome::kLost;
  if (target_ == nullptr) return ExecOutcome::kUnreachable;
  const auto bytes = static_cast<std::uint32_t>(total);
  return at_target([this, &wr, bytes, &queue] { return deliver_xrc(wr, bytes, queue); });
}

}  // namespace rdmacomm::softdev
