// Posting a request and waiting for it: for programs that do one thing at a time.
#include <thread>

#include "channel/channel_core.h"
#include "channel/completion_source.h"
#include "channel/operations.h"
#include "channel/request_fault.h"

namespace rdmacomm {
namespace {

/// Number of polls after which a spinning thread lets other threads run.
constexpr unsigned kPollsPerYield = 64;

}  // namespace

PostedRequest ChannelCore::post_to_wait(const RequestView& request) noexcept {
  const std::uint32_t position = send_.posted.load(std::memory_order_relaxed);
  if (source_ == nullptr) return {*this, Errc::kWrongState, request.operation, position};
  const bool unsignaled = request.has(PostFlags::kUnsignaled);
  PostedRequest posted(*this, unsignaled ? Errc::kInvalidArgument : post_any(request), request.operation, position);
  if (posted.outcome_ == Errc::kInvalidArgument) keep_fault(request, posted);
  return posted;
}

// Repeats the checks of posting, and keeps the fault and its numbers for wait().
void ChannelCore::keep_fault(const RequestView& request, PostedRequest& refused) const noexcept {
  const std::uint64_t bytes = total_bytes(request.local);
  const RequestFault fault =
      request.has(PostFlags::kUnsignaled) ? RequestFault::kUnsignaledWait : find_fault(request, bytes);
  switch (fault) {
    case RequestFault::kTooManySlices:
      return refused.keep_fault(fault, request.local.size(), max_slices(request.operation));
    case RequestFault::kBeyondMessage: return refused.keep_fault(fault, bytes, max_message_bytes_);
    case RequestFault::kBeyondRegion: return refused.keep_fault(fault, bytes, request.remote->length);
    case RequestFault::kBeyondInline: return refused.keep_fault(fault, bytes, max_inline_bytes_);
    case RequestFault::kUnaligned: return refused.keep_fault(fault, request.remote->address, 8);
    default: return refused.keep_fault(fault, bytes, 0);
  }
}

PostedRequest RDMAChannel::send(SliceList local, PostOptions options) noexcept {
  return core_of(*this).post_to_wait(send_request(local, options));
}

PostedRequest RDMAChannel::write(SliceList local, const RemoteRegion& remote, PostOptions options) noexcept {
  return core_of(*this).post_to_wait(rdma_request(Operation::kWrite, local, remote, options));
}

PostedRequest RDMAChannel::read(SliceList local, const RemoteRegion& remote, PostOptions options) noexcept {
  return core_of(*this).post_to_wait(rdma_request(Operation::kRead, local, remote, options));
}

PostedRequest RDMAChannel::fetch_add(const BufferSlice& result, const RemoteRegion& remote, FetchAdd operand,
                                     PostOptions options) noexcept {
  return core_of(*this).post_to_wait(fetch_add_request(result, remote, operand, options));
}

PostedRequest RDMAChannel::compare_swap(const BufferSlice& result, const RemoteRegion& remote, CompareSwap operands,
                                        PostOptions options) noexcept {
  return core_of(*this).post_to_wait(compare_swap_request(result, remote, operands, options));
}

PostedRequest RDMAChannel::recv(SliceList local, RecvOptions options) noexcept {
  ChannelCore& core = core_of(*this);
  const std::uint32_t position = core.recv_.posted.load(std::memory_order_relaxed);
  if (core.source_ == nullptr) return {*this, Errc::kWrongState, Operation::kRecv, position};
  PostedRequest posted(*this, post_recv(local, options), Operation::kRecv, position);
  const std::size_t slices = local.slices().size();
  if (!posted.outcome_ && slices > core.max_recv_slices_) {
    posted.keep_fault(RequestFault::kTooManySlices, slices, core.max_recv_slices_);
  }
  return posted;
}

Result<Completion> PostedRequest::wait(Deadline deadline) const {
  return core_of(*channel_).wait_for(*this, deadline);
}

Result<Completion> ChannelCore::wait_for(const PostedRequest& request, Deadline deadline) {
  if (!request.outcome_) return not_posted(request);
  const bool is_recv = request.operation_ == Operation::kRecv;
  for (;;) {
    if (const auto kept = source_->take_kept(*this, is_recv, request.position_)) return outcome_of(*kept);
    const std::uint32_t newer = newest_completed(is_recv) - request.position_;
    if (static_cast<std::int32_t>(newer) >= 0) return already_returned();
    if (Status next = source_->keep_next(deadline); !next) {
      return next.code() == Errc::kTimeout ? outstanding_still(request.operation_) : next.error();
    }
  }
}

Error ChannelCore::not_posted(const PostedRequest& request) const {
  const Outcome outcome = request.outcome_;
  const std::string what = std::string(to_text(request.operation_)) + " on channel \"" + name_ + "\" was not posted: ";
  if (source_ == nullptr) {
    return make_error(
        Errc::kWrongState,
        what +
            "a thread of the session gives the channel's completions to the hooks, so no other thread can "
            "wait for them; use post_..., or set ThreadMode::kApplication");
  }
  if (outcome == Errc::kNotConnected) {
    if (const Status over = source_->over(); !over) return over.error();
  }
  if (outcome == Errc::kInvalidArgument) {
    return make_error(outcome.code(),
                      what + to_text(request.fault_, request.operation_, request.value_, request.limit_));
  }
  return make_error(outcome.code(), what + outcome.message());
}

Error ChannelCore::outstanding_still(Operation operation) const {
  const char* const hint = operation == Operation::kSend   ? "; has the peer posted a receive?"
                           : operation == Operation::kRecv ? "; the peer has sent no message for it"
                           : operation == Operation::kWrite
                               ? "; a WRITE with an immediate needs a receive that the peer has posted"
                               : "";
  return make_error(Errc::kTimeout,
                    std::string(to_text(operation)) + " on channel \"" + name_ + "\" is still outstanding" + hint);
}

/// The error for a request that is complete, but whose completion is not kept any more. Also close() drops completions.
Error ChannelCore::already_returned() const {
  if (const Status over = source_->over(); !over) return over.error();
  return make_error(Errc::kWrongState,
                    "the completion of this request on channel \"" + name_ +
                        "\" was already returned, by an earlier wait for it or by poll(), wait() or next()");
}

/// The result for a completion. If a request was flushed, or the peer's device did not answer, and the endpoint has
/// ended, the reason for that end is returned.
Result<Completion> ChannelCore::outcome_of(const Completion& completion) const {
  if (completion.ok()) return completion;
  if (completion.error == Errc::kFlushed || completion.error == Errc::kRetryExceeded) {
    if (const Status over = source_->over(); !over) return over.error();
  }
  return completion.status().error();
}

Result<Completion> ChannelCore::OwnSource::take_next(Deadline deadline) {
  Completion one;
  for (unsigned polls = 1;; ++polls) {
    const Polled polled = channel_.poll_rest({&one, 1}, 0);
    if (!polled.empty()) return one;
    if (!polled) {
      return make_error(polled.outcome().code(),
                        "the completion queue of channel \"" + channel_.name() + "\" has failed");
    }
    if (deadline.passed()) return make_error(Errc::kTimeout, {});  // wait_for() names the request
    if (polls % kPollsPerYield == 0) std::this_thread::yield();
  }
}

}  // namespace rdmacomm
