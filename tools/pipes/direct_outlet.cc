#include "pipes/direct_outlet.h"

#include <chrono>
#include <utility>

#include "support/peer_loss.h"
#include "support/program.h"

namespace rdmacomm::pipes {
namespace {

/// While the receiver takes no data: how often to call may_go_on.
constexpr std::chrono::milliseconds kAsk{200};

}  // namespace

DirectOutlet::DirectOutlet(EndPoint endpoint, RDMAStream stream, Failed failed, std::function<Status()> may_go_on)
    : Outlet(std::move(endpoint), std::move(stream), std::move(failed)), may_go_on_(std::move(may_go_on)) {}

DirectOutlet::~DirectOutlet() {
  abort("the sender has ended");
}

void DirectOutlet::push(const BufferSlice& slice, std::shared_ptr<const void> keep) {
  if (outcome_) return;
  if (Status sent = send(slice, keep); !sent.ok()) end(std::move(sent));
}

void DirectOutlet::abort(const std::string& reason) {
  if (outcome_) return;
  outcome_ = make_error(Errc::kAborted, "this process has aborted the stream");
  stream_.abort(reason);
}

Status DirectOutlet::join() {
  if (!outcome_ && total_) end(programs::explained(endpoint_, conclude(*total_)));
  return outcome_ ? *outcome_ : make_error(Errc::kWrongState, "call finish() or abort() before join()");
}

void DirectOutlet::look() {
  if (!outcome_ && !endpoint_.alive()) end(programs::explained(endpoint_, why_ended()));
}

void DirectOutlet::end(Status outcome) {
  outcome_ = std::move(outcome);
  if (!outcome_->ok()) failed_(*this, *outcome_);
}

Status DirectOutlet::send(const BufferSlice& slice, const std::shared_ptr<const void>& keep) {
  Status stopped;
  const auto patiently = [&](const auto& call) {
    for (;;) {
      Status done = call(Deadline::after(kAsk));
      if (done.code() != Errc::kTimeout) return done;
      stopped = may_go_on_();
      if (!stopped.ok()) return stopped;
    }
  };
  Status sent = patiently([&](Deadline deadline) { return stream_.write_from(slice, keep, deadline); });
  // The stream sends only within calls. Everything must be sent before this thread waits for the next block.
  if (sent.ok()) sent = patiently([&](Deadline deadline) { return stream_.flush(deadline); });
  if (stopped.ok()) return programs::explained(endpoint_, std::move(sent));
  stream_.abort(programs::reason_text(stopped));
  return stopped;
}

}  // namespace rdmacomm::pipes
