#include "rdma_copy/answers.h"

#include <algorithm>

namespace rdmacomm::copying {

Answers::Answers(RDMAStream& stream, const Events& events, Work& work) : stream_(stream), events_(events), work_(work) {
  thread_ = std::thread([this] { run(); });
}

Answers::~Answers() {
  thread_.join();
}

Result<Have> Answers::have(std::uint32_t id) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return over_ || (have_ && have_->id == id); });
  if (have_ && have_->id == id) return *have_;
  return *over_;
}

Result<BlockSums> Answers::sums(std::uint64_t block) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return over_ || block < sums_.size(); });
  if (block < sums_.size()) return sums_[block];
  return *over_;
}

bool Answers::has_failed(std::uint32_t id) const noexcept {
  const std::uint32_t failed = failed_.load(std::memory_order_relaxed);
  return failed != 0 && (failed == id || std::ranges::find(folders_, failed) != folders_.end());
}

Result<Counts> Answers::result() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return over_ || result_; });
  if (result_) return *result_;
  return *over_;
}

void Answers::run() {
  Status ended = read_all();
  if (ended.code() == Errc::kBadMessage) stream_.abort(ended.message());
  {
    const std::lock_guard lock(mutex_);
    over_ = ended.ok() ? make_error(Errc::kPeerLost, "the receiving rdma_copy has ended the copy too early")
                       : ended.error();
  }
  changed_.notify_all();
}

Status Answers::read_all() {
  FrameReader reader(stream_);
  for (;;) {
    const auto frame = reader.next(Deadline::never());
    if (!frame) return frame.error();
    if (!*frame) return {};
    if (Status taken = take(**frame); !taken.ok()) return taken;
  }
}

Status Answers::take(const Frame& frame) {
  if (frame.kind == FrameKind::kHashes) return take_sums(frame.payload);
  if (frame.kind == FrameKind::kFailure) {
    auto failure = Failure::decode(frame.payload);
    if (!failure) return failure.error();
    failures_.fetch_add(1, std::memory_order_relaxed);
    // Entries in a directory that has failed do not fail themselves. So the directory stays the last failure while the
    // source is in it.
    failed_.store(std::max(failure->id, failed_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
    if (events_.failed) events_.failed(failure->text);
    return {};
  }
  if (frame.kind == FrameKind::kHave) {
    const auto have = Have::decode(frame.payload);
    if (!have) return have.error();
    const std::lock_guard lock(mutex_);
    have_ = *have;
    sums_.clear();
  } else if (frame.kind == FrameKind::kResult) {
    const auto result = Counts::decode(frame.payload);
    if (!result) return result.error();
    const std::lock_guard lock(mutex_);
    result_ = *result;
  } else {
    return make_error(Errc::kBadMessage, "the receiving rdma_copy has sent a frame of kind " +
                                             std::to_string(static_cast<int>(frame.kind)) + ", which it may not send");
  }
  changed_.notify_all();
  return {};
}

Status Answers::take_sums(std::span<const std::byte> payload) {
  const auto hashes = Hashes::decode(payload);
  if (!hashes) return hashes.status();
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t due = have_ && have_->base != Have::Base::kNone ? have_->blocks() - sums_.size() : 0;
    if (hashes->blocks.size() > due) {
      return make_error(Errc::kBadMessage, "the receiving rdma_copy has sent more hashes than its file has blocks");
    }
    sums_.insert(sums_.end(), hashes->blocks.begin(), hashes->blocks.end());
  }
  changed_.notify_all();
  return {};
}

}  // namespace rdmacomm::copying
