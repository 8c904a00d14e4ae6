// Posting: the first hot part of a channel. No allocation, lock, log, string or system call in this file.
#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/hot_inline.h"
#include "channel/channel_core.h"
#include "channel/operations.h"
#include "channel/request_fault.h"
#include "channel/request_id.h"
#include "channel/request_ring.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

static_assert(static_cast<unsigned>(PostFlags::kFence) == IBV_SEND_FENCE);
static_assert(static_cast<unsigned>(PostFlags::kUnsignaled) == IBV_SEND_SIGNALED,
              "kUnsignaled uses the bit of IBV_SEND_SIGNALED, with the opposite meaning");
static_assert(static_cast<unsigned>(PostFlags::kSolicited) == IBV_SEND_SOLICITED);
static_assert(static_cast<unsigned>(PostFlags::kInline) == IBV_SEND_INLINE);

static_assert(sizeof(BufferSlice) == sizeof(ibv_sge) && offsetof(BufferSlice, address) == offsetof(ibv_sge, addr) &&
              offsetof(BufferSlice, length) == offsetof(ibv_sge, length) &&
              offsetof(BufferSlice, lkey) == offsetof(ibv_sge, lkey));

constexpr unsigned kSignaled = IBV_SEND_SIGNALED;

// The verbs take a non-const list, but do not write to it.
ibv_sge* sge_list(std::span<const BufferSlice> slices) noexcept {
  return reinterpret_cast<ibv_sge*>(const_cast<BufferSlice*>(slices.data()));
}

constexpr bool is_atomic(Operation operation) noexcept {
  return operation == Operation::kFetchAdd || operation == Operation::kCompareSwap;
}

/// Operations that occur in completions, but not in requests.
constexpr bool is_no_request(Operation operation) noexcept {
  return operation == Operation::kWriteImm || is_receive(operation);
}

/// The operation that the completion has: a WRITE with an immediate is a separate operation there.
// A number, because the compiler would truncate an Operation to 8 bits again and again.
constexpr unsigned completed_as(const RequestView& request) noexcept {
  static_assert(static_cast<unsigned>(Operation::kWriteImm) == static_cast<unsigned>(Operation::kWrite) + 1);
  const auto number = static_cast<unsigned>(request.operation);
  return request.operation == Operation::kWrite ? number + request.has_immediate : number;
}

// `plain`, or the same opcode with an immediate.
constexpr ibv_wr_opcode opcode_of(ibv_wr_opcode plain, const RequestView& request) noexcept {
  static_assert(IBV_WR_SEND_WITH_IMM == IBV_WR_SEND + 1 && IBV_WR_RDMA_WRITE_WITH_IMM == IBV_WR_RDMA_WRITE + 1);
  return static_cast<ibv_wr_opcode>(plain + request.has_immediate);
}

// Fills the fields that the operation needs, and no others: the device reads no other field, and zeroing 128 bytes for
// each request costs more than filling 60.
RDMACOMM_HOT_INLINE void fill_operation(const RequestView& request, ibv_send_wr& wr) noexcept {
  switch (request.operation) {
    case Operation::kSend:
      wr.opcode = opcode_of(IBV_WR_SEND, request);
      wr.imm_data = htonl(request.immediate);
      return;
    case Operation::kWrite:
      wr.opcode = opcode_of(IBV_WR_RDMA_WRITE, request);
      wr.imm_data = htonl(request.immediate);
      break;
    case Operation::kRead: wr.opcode = IBV_WR_RDMA_READ; break;
    default:
      wr.opcode = request.operation == Operation::kFetchAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      wr.wr.atomic.remote_addr = request.remote->address;
      wr.wr.atomic.rkey = request.remote->rkey;
      wr.wr.atomic.compare_add = request.operand;
      wr.wr.atomic.swap = request.desired;
      return;
  }
  wr.wr.rdma.remote_addr = request.remote->address;
  wr.wr.rdma.rkey = request.remote->rkey;
}

// The error for a request that the device refused. ENOMEM means that the queue is full (ibv_post_send(3)).
[[gnu::cold]] Outcome refusal(int returned, Errc queue_full) noexcept {
  const int number = verbs::error_number(returned);
  switch (number) {
    case ENOMEM: return queue_full;
    case EINVAL: return Errc::kInvalidArgument;
    case EOPNOTSUPP: return Errc::kNotSupported;
    default: return Outcome::of_system(number);
  }
}

}  // namespace

// Checks for mistakes of the caller.
//
// bytes  the payload: 32 bits for one slice, 64 bits for several
template <typename Bytes>
RDMACOMM_HOT_INLINE RequestFault ChannelCore::check(const RequestView& request, Bytes bytes) const noexcept {
  const Operation operation = request.operation;
  if (bytes > max_message_bytes_) return RequestFault::kBeyondMessage;
  if (operation != Operation::kSend && bytes > request.remote->length) return RequestFault::kBeyondRegion;
  const bool result_comes_back = operation == Operation::kRead || is_atomic(operation);
  if (request.has(PostFlags::kInline)) {
    if (result_comes_back) return RequestFault::kInlineResult;
    if (bytes > max_inline_bytes_) return RequestFault::kBeyondInline;
  }
  if (is_atomic(operation)) {
    if (request.local.size() != 1 || bytes != 8) return RequestFault::kResultSize;
    if (request.remote->address % 8 != 0) return RequestFault::kUnaligned;
  }
  const bool carries_immediate = operation == Operation::kSend || operation == Operation::kWrite;
  if (!carries_immediate && request.has_immediate != 0) return RequestFault::kImmediate;
  if (is_no_request(operation)) return RequestFault::kNoRequest;
  return RequestFault::kNone;
}

std::uint32_t ChannelCore::max_slices(Operation operation) const noexcept {
  return operation == Operation::kRead ? max_read_slices_ : max_send_slices_;
}

// All checks of a request.
RequestFault ChannelCore::find_fault(const RequestView& request, std::uint64_t bytes) const noexcept {
  if (request.local.size() > max_slices(request.operation)) return RequestFault::kTooManySlices;
  return check(request, bytes);
}

// Writes `request`, with a payload of `bytes`, into the ring at `position`, which is not published yet, and fills `wr`.
RDMACOMM_HOT_INLINE void ChannelCore::enter(const RequestView& request, std::uint32_t bytes, std::uint32_t position,
                                            bool takes_last_place, ibv_send_wr& wr) noexcept {
  RequestRing::Entry entry(request.id, bytes, completed_as(request), Report::kAlways);
  wr.send_flags = request.flags | (request.operation == Operation::kRead ? kSignaled : usual_flags_);
  std::uint32_t silent_run = 0;
  if (request.has(PostFlags::kUnsignaled)) {
    entry = RequestRing::Entry(request.id, bytes, completed_as(request), Report::kOnError);
    // ChannelCore explains unsignaled requests. The last place is never taken silently, so a queue that ends with
    // silent requests has room for post_marker().
    if (send_.silent_run < send_.max_silent_run && !takes_last_place) {
      silent_run = send_.silent_run + 1;
      wr.send_flags &= ~kSignaled;
    }
  }
  send_.silent_run = silent_run;
  send_.at(position) = entry;
  wr.wr_id = send_request_id(position);
  wr.next = nullptr;
  wr.sg_list = sge_list(request.local);
  wr.num_sge = static_cast<int>(request.local.size());
  fill_operation(request, wr);
}

// Checks a request completely, and then enters it.
Errc ChannelCore::prepare(const RequestView& request, std::uint32_t position, ibv_send_wr& wr) noexcept {
  const std::uint64_t bytes = total_bytes(request.local);
  if (find_fault(request, bytes) != RequestFault::kNone) return Errc::kInvalidArgument;
  const std::uint32_t room = send_.room(position);
  if (room == 0) return Errc::kSendQueueFull;
  enter(request, static_cast<std::uint32_t>(bytes), position, room == 1, wr);
  return Errc::kOk;
}

// Takes back the newest `count` requests, because the device refused them with the error `number`.
[[gnu::cold]] Outcome ChannelCore::take_back(std::uint32_t count, int number) noexcept {
  send_.posted.store(send_.posted.load(std::memory_order_relaxed) - count, std::memory_order_release);
  // Each post would have to remember the previous length of the silent run, which is too expensive. begin_drain() only
  // needs to know that there may be one. A value that is too large only makes the library ask for a completion earlier.
  send_.silent_run = std::max(send_.silent_run, 1U);
  return refusal(number, Errc::kSendQueueFull);
}

// Posts the request that was entered at `position`.
RDMACOMM_HOT_INLINE Outcome ChannelCore::submit(std::uint32_t position, ibv_send_wr& wr) noexcept {
  // Published first, because the polling thread may take the completion before ibv_post_send returns.
  send_.posted.store(position + 1, std::memory_order_release);
  ibv_send_wr* bad = nullptr;
  const int refused = ibv_post_send(qp_, &wr, &bad);
  if (refused == 0) [[likely]]
    return {};
  return take_back(1, refused);
}

// The general path, for any request.
[[gnu::noinline]] Outcome ChannelCore::post_any(const RequestView& request) noexcept {
  if (!adapter_->connected()) return Errc::kNotConnected;
  const std::uint32_t position = send_.posted.load(std::memory_order_relaxed);
  ibv_send_wr wr;  // filled by prepare(); not zeroed, see fill_operation()
  if (const Errc wrong = prepare(request, position, wr); wrong != Errc::kOk) return wrong;
  return submit(position, wr);
}

// The fast path: for a valid request with one slice, if there is room without reading the counter again. The post
// functions differ in constants only. With this function inlined, the compiler generates straight-line code for each.
//
// make  creates the request: once for the fast path, which keeps it in registers, and once more for post_any(), which
//       needs it in memory
template <typename Make>
RDMACOMM_HOT_INLINE Outcome ChannelCore::post_one(const Make& make) noexcept {
  const RequestView request = make();
  const std::uint32_t position = send_.posted.load(std::memory_order_relaxed);
  if (request.local.size() != 1 || !adapter_->connected() || !send_.has_room(position)) [[unlikely]]
    return post_any(make());
  const std::uint32_t bytes = request.local.front().length;
  if (check(request, bytes) != RequestFault::kNone) [[unlikely]]
    return post_any(make());
  ibv_send_wr wr;  // filled by enter(); not zeroed, see fill_operation()
  enter(request, bytes, position, false, wr);
  return submit(position, wr);
}

Outcome RDMAChannel::post_send(SliceList local, PostOptions options) noexcept {
  return core_of(*this).post_one([&] { return send_request(local, options); });
}

Outcome RDMAChannel::post_write(SliceList local, const RemoteRegion& remote, PostOptions options) noexcept {
  return core_of(*this).post_one([&] { return rdma_request(Operation::kWrite, local, remote, options); });
}

Outcome RDMAChannel::post_read(SliceList local, const RemoteRegion& remote, PostOptions options) noexcept {
  return core_of(*this).post_one([&] { return rdma_request(Operation::kRead, local, remote, options); });
}

Outcome RDMAChannel::post_fetch_add(const BufferSlice& result, const RemoteRegion& remote, FetchAdd operand,
                                    PostOptions options) noexcept {
  return core_of(*this).post_one([&] { return fetch_add_request(result, remote, operand, options); });
}

Outcome RDMAChannel::post_compare_swap(const BufferSlice& result, const RemoteRegion& remote, CompareSwap operands,
                                       PostOptions options) noexcept {
  return core_of(*this).post_one([&] { return compare_swap_request(result, remote, operands, options); });
}

PostedChain RDMAChannel::post_chain(std::span<const SendRequest> requests) noexcept {
  ChannelCore& core = core_of(*this);
  PostedChain all;
  if (!core.adapter().connected()) return {.outcome = Errc::kNotConnected};
  while (all.count < requests.size() && all.ok()) {
    const PostedChain some = core.post_some(requests.subspan(all.count));
    all = {.count = all.count + some.count, .outcome = some.outcome};
  }
  return all;
}

// Posts the first of `requests`, at most kMaxChain, with one call.
PostedChain ChannelCore::post_some(std::span<const SendRequest> requests) noexcept {
  const std::uint32_t position = send_.posted.load(std::memory_order_relaxed);
  ibv_send_wr wrs[kMaxChain];  // filled as far as used
  Errc stopped = Errc::kOk;
  std::uint32_t count = 0;
  for (; count < requests.size() && count < kMaxChain; ++count) {
    stopped = has_wrong_operand(requests[count]) ? Errc::kInvalidArgument
                                                 : prepare(view_of(requests[count]), position + count, wrs[count]);
    if (stopped != Errc::kOk) break;
    if (count > 0) wrs[count - 1].next = &wrs[count];
  }
  if (count == 0) return {.outcome = stopped};
  send_.posted.store(position + count, std::memory_order_release);
  ibv_send_wr* bad = wrs;
  const int refused = ibv_post_send(qp_, wrs, &bad);
  if (refused == 0) [[likely]]
    return {.count = count, .outcome = stopped};
  const auto accepted = static_cast<std::uint32_t>(bad - wrs);
  return {.count = accepted, .outcome = take_back(count - accepted, refused)};
}

// With a pool, the receive queue of the channel itself has no places.
[[gnu::cold]] Errc ChannelCore::no_room_for_recv() const noexcept {
  return !pool_ ? Errc::kReceiveQueueFull : Errc::kNotSupported;
}

RDMACOMM_HOT_INLINE Outcome ChannelCore::post_one_recv(std::span<const BufferSlice> slices, std::uint64_t id) noexcept {
  if (adapter_->state() == IBV_QPS_ERR) [[unlikely]]
    return Errc::kNotConnected;
  const std::uint32_t position = recv_.posted.load(std::memory_order_relaxed);
  if (recv_.room(position) == 0) [[unlikely]]
    return no_room_for_recv();
  if (slices.size() > max_recv_slices_) [[unlikely]]
    return Errc::kInvalidArgument;
  recv_.at(position) = RequestRing::Entry(id, 0, Operation::kRecv, Report::kAlways);
  ibv_recv_wr wr;
  wr.wr_id = recv_request_id(position);
  wr.next = nullptr;
  wr.sg_list = sge_list(slices);
  wr.num_sge = static_cast<int>(slices.size());
  recv_.posted.store(position + 1, std::memory_order_release);  // first, as in post_one()
  ibv_recv_wr* bad = nullptr;
  const int refused = ibv_post_recv(qp_, &wr, &bad);
  if (refused == 0) [[likely]]
    return {};
  recv_.posted.store(position, std::memory_order_release);
  return refusal(refused, Errc::kReceiveQueueFull);
}

Outcome RDMAChannel::post_recv(SliceList local, RecvOptions options) noexcept {
  return core_of(*this).post_one_recv(local.slices(), options.id);
}

// Posts one request to a queue pair in ERR, which flushes it. Its completion shows that every silent request before it
// is out of the queue. prepare() left room for it.
Outcome ChannelCore::post_marker() noexcept {
  const std::uint32_t position = send_.posted.load(std::memory_order_relaxed);
  send_.at(position) = RequestRing::Entry(0, 0, Operation::kSend, Report::kNever);
  ibv_send_wr wr{};
  wr.wr_id = send_request_id(position);
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  send_.posted.store(position + 1, std::memory_order_release);
  ibv_send_wr* bad = nullptr;
  const int refused = ibv_post_send(qp_, &wr, &bad);
  if (refused == 0) {
    send_.silent_run = 0;
    return {};
  }
  send_.posted.store(position, std::memory_order_release);
  return refusal(refused, Errc::kSendQueueFull);
}

}  // namespace rdmacomm
