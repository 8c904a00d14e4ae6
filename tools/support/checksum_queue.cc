#include "support/checksum_queue.h"

#include <utility>

namespace rdmacomm::programs {

ChecksumQueue::ChecksumQueue(Way way) {
  if (way == Way::kBeside) thread_ = std::thread([this] { run(); });
}

ChecksumQueue::~ChecksumQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ChecksumQueue::add(Checksum& checksum, std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  if (!thread_.joinable()) {
    checksum.update(bytes);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back({.checksum = &checksum, .bytes = bytes, .keep = std::move(keep)});
    if (pieces_.size() > 1) return;
  }
  changed_.notify_all();
}

void ChecksumQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pieces_.empty(); });
}

void ChecksumQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    const Piece& piece = pieces_.front();
    lock.unlock();
    piece.checksum->update(piece.bytes);
    lock.lock();
    std::shared_ptr<const void> keep = std::move(pieces_.front().keep);
    pieces_.pop_front();
    const bool empty = pieces_.empty();
    lock.unlock();
    if (empty) changed_.notify_all();
    keep.reset();
    lock.lock();
  }
}

}  // namespace rdmacomm::programs
