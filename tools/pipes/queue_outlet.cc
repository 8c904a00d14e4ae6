#include "pipes/queue_outlet.h"

#include <chrono>
#include <utility>

#include "support/peer_loss.h"

namespace rdmacomm::pipes {
namespace {

/// The time for an aborted stream to inform its receiver. After it, the endpoint is stopped.
constexpr std::chrono::milliseconds kAbortTime{300};

}  // namespace

QueueOutlet::QueueOutlet(EndPoint endpoint, RDMAStream stream, Failed failed)
    : Outlet(std::move(endpoint), std::move(stream), std::move(failed)) {
  thread_ = std::thread([this] { run(); });
}

QueueOutlet::~QueueOutlet() {
  abort("the sender has ended");
  (void)join();
}

void QueueOutlet::push(const BufferSlice& slice, std::shared_ptr<const void> keep) {
  {
    const std::lock_guard lock(mutex_);
    if (over_ || aborted_) return;
    pieces_.push_back({slice, std::move(keep)});
  }
  changed_.notify_all();
}

void QueueOutlet::finish(const Total& total) {
  {
    const std::lock_guard lock(mutex_);
    total_ = total;
  }
  changed_.notify_all();
}

void QueueOutlet::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (over_ || std::exchange(aborted_, true)) return;
  }
  changed_.notify_all();
  stream_.abort(reason);
}

void QueueOutlet::endpoint_has_ended() {
  // Taking the lock makes sure that a thread that has already checked its condition is waiting.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

/// join() also finds an end that came before endpoint_has_ended() could find this object.
void QueueOutlet::look() {
  if (!endpoint_.alive()) (void)join();
}

Status QueueOutlet::join() {
  if (!thread_.joinable()) return outcome_;
  bool over = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || aborted_; });
    over = changed_.wait_for(lock, kAbortTime, [this] { return over_; });
  }
  if (!over) endpoint_.stop();  // the receiver does not respond: its process is stopped, or its host is down
  thread_.join();
  return outcome_;
}

void QueueOutlet::run() {
  Status outcome = programs::explained(endpoint_, send_all());
  std::deque<Piece> dropped;
  bool aborted = false;
  {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
    over_ = true;
    aborted = aborted_;
    dropped.swap(pieces_);
  }
  changed_.notify_all();
  dropped.clear();
  if (!outcome.ok() && !aborted) failed_(*this, outcome);
}

Status QueueOutlet::send_all() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !pieces_.empty() || total_ || aborted_ || !endpoint_.alive(); });
    if (aborted_) return make_error(Errc::kAborted, "this process has aborted the stream");
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

Status QueueOutlet::send(Piece piece, bool last_for_now) {
  const Status written = stream_.write_from(piece.slice, std::move(piece.keep), Deadline::never());
  // The stream sends only within calls. Everything must be sent before this thread sleeps.
  return written.ok() && last_for_now ? stream_.flush(Deadline::never()) : written;
}

}  // namespace rdmacomm::pipes
