#include "rdma_copy/watch.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <string>
#include <system_error>

namespace rdmacomm::copying {
namespace {

/// Peers with a shorter limit rely on it, so it is a quarter of the shortest limit or less.
constexpr std::chrono::milliseconds kPeriod{1000};
constexpr std::array kAtWork{std::byte{1}};
/// The most messages to read at once.
constexpr int kMaxHeard = 1000;

std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace

bool StallClock::step(TimePoint now, bool moved) noexcept {
  idle_ += std::min<std::chrono::steady_clock::duration>(now - last_, 2 * period_);
  last_ = now;
  if (moved) idle_ = {};
  return limit_.count() > 0 && idle_ >= limit_;
}

Watch::Watch(const EndPoint& endpoint, RDMAStream& stream, std::chrono::milliseconds limit)
    : endpoint_(endpoint),
      stream_(stream),
      limit_(limit),
      period_(limit.count() > 0 ? std::clamp(limit / 4, std::chrono::milliseconds(1), kPeriod) : kPeriod) {}

Result<std::unique_ptr<Watch>> Watch::start(const EndPoint& endpoint, RDMAStream& stream,
                                            std::chrono::milliseconds limit) {
  std::unique_ptr<Watch> watch(new Watch(endpoint, stream, limit));
  try {
    watch->thread_ = std::thread([watch = watch.get()] { watch->run(); });
  } catch (const std::system_error& error) {
    return make_error(error.code(), "cannot start a thread that watches the copy");
  }
  return watch;
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watch::run() {
  StallClock clock(limit_, period_, std::chrono::steady_clock::now());
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period_, [this] { return over_; })) {
    lock.unlock();
    const bool heard = hear();
    const bool moved = has_moved();
    if (clock.step(std::chrono::steady_clock::now(), heard || moved)) {
      stream_.abort("no data moved for " + seconds_text(limit_) + ", and neither peer was working (--timeout)");
      return;
    }
    lock.lock();
  }
}

/// Whether the peer has reported that it is at work.
bool Watch::hear() {
  int heard = 0;
  while (heard < kMaxHeard && endpoint_.receive_message(Deadline::after(std::chrono::seconds(0)))) ++heard;
  return heard > 0;
}

/// Whether the local process is at work, or data was sent or received. If it is at work, informs the peer.
bool Watch::has_moved() {
  const std::uint64_t changes = work_.changes();
  const bool busy = work_.at_work() || changes != changes_;
  changes_ = changes;
  // If there is no room, the message is dropped: earlier ones are still unread.
  if (busy) (void)endpoint_.send_message(kAtWork, Deadline::after(std::chrono::seconds(0)));
  const StreamCounts counts = stream_.counts();
  const std::uint64_t blocks = counts.blocks_read + counts.blocks_written;
  const bool moved = blocks != blocks_;
  blocks_ = blocks;
  return busy || moved;
}

}  // namespace rdmacomm::copying
