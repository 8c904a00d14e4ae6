#include "connector/cm/cm_stream.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/logging.h"
#include "connector/cm/cm_refusal.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

constexpr std::uint64_t kSendMark = 1U << 16;  // in wr_id: a send slot, not a receive slot
constexpr std::chrono::milliseconds kLinger{200};
// 6 and not 7, because some devices retry for ever with 7.
constexpr std::uint8_t kRetries = 6;
constexpr std::uint8_t kRnrForEver = 7;

std::error_code would_block() {
  return std::make_error_code(std::errc::operation_would_block);
}

}  // namespace

// Making and connecting -----------------------------------------------------------------------------------------------

Result<std::unique_ptr<CmStream>> CmStream::create(std::unique_ptr<CmId> id) {
  std::unique_ptr<CmStream> stream(new CmStream(std::move(id)));
  const SocketAddress local = stream->id_->local();
  stream->local_text_ = local.to_text();
  stream->peer_text_ = stream->id_->peer().to_text();
  stream->local_gid_ = local.as_gid();
  Status status = stream->make_memory();
  if (status) status = stream->make_queues();
  for (std::uint32_t slot = 0; slot < kSlots && status; ++slot) {
    stream->free_send_slots_.push_back(slot);
    status = stream->post_receive(slot);
  }
  if (!status) return status.error();
  return stream;
}

Status CmStream::make_memory() {
  const verbs::Api& api = verbs::libibverbs_api();
  auto pd = verbs::from_null(api.alloc_pd(id_->get()->verbs), "allocate a protection domain");
  if (!pd) return pd.status();
  pd_ = verbs::PdHandle(api, *pd);
  auto mr = verbs::from_null(api.reg_mr(pd_.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE),
                             "register " + std::to_string(memory_.size()) + " bytes for messages");
  if (!mr) return mr.status();
  mr_ = verbs::MrHandle(api, *mr);
  return {};
}

Status CmStream::make_queues() {
  const verbs::Api& api = verbs::libibverbs_api();
  ibv_context* context = id_->get()->verbs;
  auto stop = WakeEvent::create();
  if (!stop) return stop.status();
  stop_ = std::move(*stop);
  auto nudge = WakeEvent::create();
  if (!nudge) return nudge.status();
  nudge_ = std::move(*nudge);
  auto wake = verbs::from_null(api.create_comp_channel(context), "create a completion channel");
  if (!wake) return wake.status();
  wake_ = verbs::CompChannelHandle(api, *wake);
  Status status = set_nonblocking(wake_->fd);
  if (!status) return status;
  auto cq = verbs::from_null(api.create_cq(context, 2 * kSlots, nullptr, wake_.get(), 0), "create a completion queue");
  if (!cq) return cq.status();
  cq_ = verbs::CqHandle(api, *cq);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_.get();
  attributes.cap = {
      .max_send_wr = kSlots, .max_recv_wr = kSlots, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return verbs::from_minus_one(rdma_create_qp(id_->get(), pd_.get(), &attributes), "create a queue pair for messages");
}

CmStream::~CmStream() {
  // The queue pair is destroyed before the objects it uses. The completion queue can be destroyed once its events are
  // acknowledged.
  if (id_->get()->qp != nullptr) rdma_destroy_qp(id_->get());
  if (unacknowledged_events_ > 0) verbs::libibverbs_api().ack_cq_events(cq_.get(), unacknowledged_events_);
}

Status CmStream::post_receive(std::uint32_t slot) {
  ibv_sge slice{};
  slice.addr = reinterpret_cast<std::uint64_t>(receive_slot(slot));
  slice.length = kSlotBytes;
  slice.lkey = mr_->lkey;
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &slice;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return verbs::from_value(ibv_post_recv(id_->get()->qp, &request, &bad), "post a receive for messages");
}

CmPrivateData CmStream::introduction(std::uint64_t token) const {
  return {.purpose = CmPurpose::kMessages, .token = token, .slots = kSlots, .slot_bytes = kSlotBytes};
}

Status CmStream::take_over(const CmPrivateData& peer) {
  if (peer.slots < 2 || peer.slot_bytes != kSlotBytes) {
    return make_error(Errc::kBadMessage, "the peer offers " + std::to_string(peer.slots) + " receives of " +
                                             std::to_string(peer.slot_bytes) + " bytes; at least 2 receives of " +
                                             std::to_string(kSlotBytes) + " bytes are needed");
  }
  window_.emplace(kSlots, peer.slots);
  return {};
}

Result<CmPrivateData> CmStream::connect(const CmWait& wait) {
  const std::vector<std::byte> mine = introduction(0).encode();
  rdma_conn_param parameters = connection_parameters(mine);
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kRnrForEver;
  Status status =
      verbs::from_minus_one(rdma_connect(id_->get(), &parameters), "connect to " + peer_text_ + " by rdma_cm");
  // iWARP devices connect by TCP, and some report the result at once.
  if (status.code() == std::errc::connection_refused) return no_listener(peer_text_, "TCP refused the connection");
  if (status.code() == std::errc::timed_out)
    return make_error(Errc::kTimeout, "no answer by rdma_cm from " + peer_text_ + " (the TCP connection timed out)");
  if (!status) return status.error();
  auto event = id_->await_event(wait);
  if (!event) return make_error(event.code(), "no answer by rdma_cm from " + peer_text_ + ": " + event.error().context);
  if (event->type != RDMA_CM_EVENT_ESTABLISHED) return not_connected(*event, peer_text_);
  auto answer = CmPrivateData::decode(event->private_data);
  if (!answer) return make_error(answer.code(), peer_text_ + " answered with " + answer.error().context);
  if (status = take_over(*answer); !status) return status.error();
  may_send_ = true;
  return answer;
}

Status CmStream::accept(const CmPrivateData& peer, std::uint64_t token) {
  if (Status status = take_over(peer); !status) return status;
  const std::vector<std::byte> mine = introduction(token).encode();
  rdma_conn_param parameters = connection_parameters(mine);
  parameters.rnr_retry_count = kRnrForEver;
  return verbs::from_minus_one(rdma_accept(id_->get(), &parameters), "accept " + peer_text_ + " by rdma_cm");
}

// Bytes ---------------------------------------------------------------------------------------------------------------

Transfer CmStream::receive(std::span<std::byte> room) {
  const std::lock_guard lock(mutex_);
  progress();
  std::size_t taken = 0;
  while (taken < room.size() && !arrived_.empty()) {
    Segment& segment = arrived_.front();
    const std::size_t count = std::min<std::size_t>(room.size() - taken, segment.end - segment.begin);
    std::memcpy(room.data() + taken, receive_slot(segment.slot) + segment.begin, count);
    segment.begin += static_cast<std::uint32_t>(count);
    taken += count;
    if (segment.begin < segment.end) break;
    give_back(segment.slot);
    arrived_.pop_front();
  }
  if (taken > 0) return {.bytes = taken};
  if (failed()) return failure();
  if (peer_ended_ || gone_ || stopped_) return {};
  return {.error = would_block()};
}

Transfer CmStream::send(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  progress();
  std::size_t sent = 0;
  while (sent < bytes.size() && may_send()) {
    const auto piece = bytes.subspan(sent, std::min<std::size_t>(bytes.size() - sent, kSegmentBytes));
    if (!post_segment(piece, 0)) break;
    sent += piece.size();
  }
  if (sent > 0) return {.bytes = sent};
  if (failed()) return failure();
  if (gone_ || stopped_) return {.error = std::make_error_code(std::errc::broken_pipe)};
  return {.error = would_block()};
}

bool CmStream::may_send() const {
  return may_send_ && !gone_ && !stopped_ && !failed() && window_->may_send() && !free_send_slots_.empty();
}

bool CmStream::post_segment(std::span<const std::byte> bytes, std::uint16_t flags) {
  const std::uint32_t slot = free_send_slots_.back();
  const CmSegment header{
      .length = static_cast<std::uint16_t>(bytes.size()), .credits = window_->sent(), .flags = flags};
  std::memcpy(send_slot(slot), header.encode().data(), kHeaderBytes);
  if (!bytes.empty()) std::memcpy(send_slot(slot) + kHeaderBytes, bytes.data(), bytes.size());
  ibv_sge slice{};
  slice.addr = reinterpret_cast<std::uint64_t>(send_slot(slot));
  slice.length = kHeaderBytes + static_cast<std::uint32_t>(bytes.size());
  slice.lkey = mr_->lkey;
  ibv_send_wr request{};
  request.wr_id = kSendMark + slot;
  request.sg_list = &slice;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  const Status posted = verbs::from_value(ibv_post_send(id_->get()->qp, &request, &bad), "send a message");
  if (!posted) {
    end_by(failure_of(posted.error(), *id_->get()->verbs));
    return false;
  }
  free_send_slots_.pop_back();
  return true;
}

void CmStream::give_back(std::uint32_t slot) {
  if (gone_ || failed()) return;
  if (Status posted = post_receive(slot); !posted) return fail(posted.message());
  window_->posted_again();
  give_credits();
}

void CmStream::give_credits() {
  const bool may = may_send_ && !gone_ && !stopped_ && !failed() && !free_send_slots_.empty();
  if (may && window_->should_give()) (void)post_segment({}, 0);
}

/// The leader sleeps on descriptors whose events another thread may have taken, so it must be woken.
void CmStream::lose() {
  gone_ = true;
  if (turn_.taken()) nudge_->signal();
  turn_.notify();
}

/// The first cause is kept: later ones follow from it.
void CmStream::fail(const std::string& why, std::error_code code) {
  if (!failed()) {
    failure_ = why;
    failure_code_ = code;
  }
  lose();
}

void CmStream::end_by(const CmFailure& failure) {
  failure ? fail(*failure) : lose();
}

Transfer CmStream::failure() const {
  return {.error = failure_code_, .cause = failure_};
}

// Progress ------------------------------------------------------------------------------------------------------------

/// Received segments are processed before an end: the peer's last message arrives before the end of the connection.
void CmStream::progress() {
  take_cm_events();
  std::array<ibv_wc, kSlots> completions{};
  for (;;) {
    const int count = ibv_poll_cq(cq_.get(), kSlots, completions.data());
    if (count < 0) return fail("its completion queue has failed");
    for (int i = 0; i < count; ++i) take_completion(completions[static_cast<std::size_t>(i)]);
    if (count < kSlots) break;
  }
  give_credits();
}

void CmStream::take_completion(const ibv_wc& completion) {
  const bool is_send = (completion.wr_id & kSendMark) != 0;
  const auto slot = static_cast<std::uint32_t>(completion.wr_id & ~kSendMark);
  if (completion.status != IBV_WC_SUCCESS) {
    end_by(failure_of(completion.status, *id_->get()->verbs));
  } else if (!is_send) {
    return take_segment(slot, completion.byte_len);
  }
  if (is_send) free_send_slots_.push_back(slot);
}

void CmStream::take_segment(std::uint32_t slot, std::uint32_t bytes) {
  const auto header = CmSegment::decode(std::span(receive_slot(slot), std::min(bytes, kSlotBytes)));
  if (!header || !window_->received(header->credits)) {
    return fail("it sent " + std::to_string(bytes) + " bytes that are not a valid segment: a bug in its program");
  }
  may_send_ = true;
  if ((header->flags & CmSegment::kLast) != 0) peer_ended_ = true;
  if (header->length == 0) return give_back(slot);
  arrived_.push_back({.slot = slot, .begin = kHeaderBytes, .end = kHeaderBytes + header->length});
}

void CmStream::take_cm_events() {
  while (auto event = id_->take_event()) {
    switch (event->type) {
      case RDMA_CM_EVENT_ESTABLISHED: break;  // the accepting peer also learns it from the first segment
      case RDMA_CM_EVENT_ADDR_CHANGE: break;  // another port of a bond; the connection continues
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_TIMEWAIT_EXIT: lose(); break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        fail(std::string("the RDMA device ") + id_->get()->verbs->device->name + " is being removed",
             Errc::kDeviceLost);
        break;
      default: fail("rdma_cm reports: " + event->to_text());
    }
  }
}

// Waiting -------------------------------------------------------------------------------------------------------------

/// Arms, checks again, then sleeps, so that a completion in between wakes it.
template <typename Condition>
bool CmStream::wait_until(Condition condition, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [&] {
    progress();
    return condition() || failed() || gone_ || stopped_;
  };
  while (!over()) {
    if (deadline.passed()) return false;
    if (turn_.taken()) {
      turn_.follow(lock, deadline);
      continue;
    }
    if (ibv_req_notify_cq(cq_.get(), 0) != 0) fail("its completion queue cannot be armed");
    if (!over()) lead(lock, deadline);
  }
  return true;
}

/// Sleeps on the descriptors for all waiting threads.
void CmStream::lead(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  turn_.lead(lock, [&] {
    pollfd waited[] = {
        {wake_->fd, POLLIN, 0}, {id_->fd(), POLLIN, 0}, {stop_->fd(), POLLIN, 0}, {nudge_->fd(), POLLIN, 0}};
    (void)::poll(waited, std::size(waited), deadline.poll_timeout_ms());
  });
  nudge_->clear();
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (verbs::libibverbs_api().get_cq_event(wake_.get(), &cq, &context) == 0) ++unacknowledged_events_;
}

void CmStream::await_input(Deadline deadline) {
  (void)wait_until([this] { return !arrived_.empty() || peer_ended_; }, deadline);
}

bool CmStream::await_room(Deadline deadline) {
  return wait_until([this] { return may_send(); }, deadline);
}

// The end -------------------------------------------------------------------------------------------------------------

bool CmStream::ended() {
  const std::lock_guard lock(mutex_);
  progress();
  return peer_ended_ || gone_ || failed();
}

void CmStream::end_sending() noexcept {
  const std::lock_guard lock(mutex_);
  progress();
  if (may_send()) (void)post_segment({}, CmSegment::kLast);
}

void CmStream::shut_down(LastBytes last) noexcept {
  // The last bytes are still in transfer, and ending the connection would discard them.
  if (last == LastBytes::kDeliver)
    (void)wait_until([this] { return free_send_slots_.size() == kSlots; }, Deadline::after(kLinger));
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  stopped_ = true;
  stop_->signal();
  turn_.notify();
  if (rdma_disconnect(id_->get()) != 0) RDMACOMM_VLOG(2) << peer_text_ << " was disconnected already";
}

WatchedFd CmStream::watched() const noexcept {
  return {.fd = id_->fd(), .events = EPOLLIN};
}

}  // namespace rdmacomm
