#include "pipes/outlet.h"

#include <chrono>
#include <utility>

#include "support/peer_loss.h"
#include "support/program.h"

namespace rdmacomm::pipes {
namespace {

/// So long a stream that was aborted may take to say so; then its endpoint is stopped.
constexpr std::chrono::milliseconds kAbortTime{300};
/// So often who sends at once looks whether it is given up, while the receiver takes nothing.
constexpr std::chrono::milliseconds kLookAround{200};

}  // namespace

Outlet::Outlet(std::shared_ptr<EndPoint> endpoint, std::unique_ptr<RDMAStream> stream, Way way, Callbacks callbacks)
    : endpoint_(std::move(endpoint)), stream_(std::move(stream)), way_(way), callbacks_(std::move(callbacks)) {
  if (way == Way::kBeside) thread_ = std::thread([this] { end(programs::explained(*endpoint_, send_all())); });
}

Outlet::~Outlet() {
  abort("the sender has ended");
  (void)join();
}

void Outlet::push(const BufferSlice& slice, std::shared_ptr<const void> keep) {
  Piece piece{slice, std::move(keep)};
  {
    const std::lock_guard lock(mutex_);
    if (over_ || aborted_) return;
    busy_ = way_ == Way::kAtOnce;
    if (!busy_) pieces_.push_back(std::move(piece));
  }
  if (way_ == Way::kBeside) return changed_.notify_all();
  if (const Status sent = send_at_once(piece); !sent.ok()) return end(sent);
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  if (!endpoint_->alive())
    end(programs::explained(*endpoint_, why_ended()));  // which look_at_endpoint() has left to this
}

void Outlet::finish(const Total& total) {
  {
    const std::lock_guard lock(mutex_);
    total_ = total;
  }
  changed_.notify_all();
}

void Outlet::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (over_ || std::exchange(aborted_, true)) return;
  }
  changed_.notify_all();
  stream_->abort(reason);
}

Status Outlet::look_at_endpoint() {
  {
    // The lock is for a thread, too, that has looked, and does not wait yet.
    const std::lock_guard lock(mutex_);
    if (way_ == Way::kAtOnce && (busy_ || over_ || endpoint_->alive())) return {};
  }
  changed_.notify_all();
  if (way_ == Way::kBeside) return {};
  const Status why = programs::explained(*endpoint_, why_ended());
  return set_outcome(why) ? why : Status();
}

Status Outlet::join() {
  if (way_ == Way::kAtOnce) return join_at_once();
  if (!thread_.joinable()) return outcome_;
  bool over = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || aborted_; });
    over = changed_.wait_for(lock, kAbortTime, [this] { return over_; });
  }
  if (!over) endpoint_->stop();  // its receiver answers nothing: it is stopped, or its host is gone
  thread_.join();
  return outcome_;
}

Status Outlet::join_at_once() {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return outcome_;
    if (aborted_ || !total_) return make_error(Errc::kAborted, "given up on this side");
    busy_ = true;
  }
  end(programs::explained(*endpoint_, conclude(*total_)));
  const std::lock_guard lock(mutex_);
  return outcome_;
}

/// This is how it went.
void Outlet::end(const Status& outcome) {
  if (set_outcome(outcome)) callbacks_.failed(*this, outcome);
}

/// Returns  whether somebody is to hear of it
bool Outlet::set_outcome(const Status& outcome) {
  std::deque<Piece> dropped;
  bool aborted = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(over_, true)) return false;
    outcome_ = outcome;
    aborted = aborted_;
    dropped.swap(pieces_);
  }
  changed_.notify_all();
  return !outcome.ok() && !aborted;
}

Status Outlet::send_all() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !pieces_.empty() || total_ || aborted_ || !endpoint_->alive(); });
    if (aborted_) return make_error(Errc::kAborted, "given up on this side");
    if (pieces_.empty() && total_) {
      const Total total = *total_;
      lock.unlock();
      return conclude(total);
    }
    if (pieces_.empty()) {
      lock.unlock();
      return why_ended();
    }
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    const bool last_for_now = pieces_.empty();
    lock.unlock();
    if (Status sent = send(std::move(piece), last_for_now); !sent.ok()) return sent;
  }
}

Status Outlet::send(Piece piece, bool last_for_now) {
  const Status written = stream_->write_from(piece.slice, std::move(piece.keep), Deadline::never());
  // Nothing is sent but by calls: before this thread sleeps, all must be out.
  return written.ok() && last_for_now ? stream_->flush(Deadline::never()) : written;
}

Status Outlet::send_at_once(const Piece& piece) {
  Status stopped;
  const auto patiently = [&](const auto& call) {
    for (;;) {
      Status done = call(Deadline::after(kLookAround));
      if (done.code() != Errc::kTimeout) return done;
      stopped = callbacks_.may_go_on();
      if (!stopped.ok()) return stopped;
    }
  };
  Status sent = patiently([&](Deadline deadline) { return stream_->write_from(piece.slice, piece.keep, deadline); });
  if (sent.ok()) sent = patiently([&](Deadline deadline) { return stream_->flush(deadline); });
  if (stopped.ok()) return programs::explained(*endpoint_, std::move(sent));
  stream_->abort(programs::reason_text(stopped));
  return stopped;
}

Status Outlet::conclude(const Total& total) {
  if (Status told = endpoint_->send_message(total.encode(), Deadline::never()); !told.ok()) {
    const Status why = why_ended();
    return why.ok() ? told : why;
  }
  if (Status finished = stream_->finish(Deadline::never()); !finished.ok()) return finished;
  const auto message = endpoint_->receive_message(Deadline::never());
  if (!message) return message.error();
  const auto verdict = Verdict::decode(*message);
  if (!verdict) return verdict.error();
  if (!verdict->failure) return {};
  return make_error(Errc::kAborted, "the receiver, " + endpoint_->peer() + ", says: " + *verdict->failure);
}

/// The endpoint has ended. What the receiver has said before that is still there, and says more.
Status Outlet::why_ended() {
  const auto next = stream_->next(Deadline::after({}));
  if (!next && next.code() != Errc::kTimeout) return next.error();
  return endpoint_->status();
}

}  // namespace rdmacomm::pipes
