// soft_srq.h - shared receive queues.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "softdev/common/event_queue.h"
#include "softdev/memory/posted_receive.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

class MrTable;
class SoftQp;
struct Premises;

/// A queue of receives for several queue pairs: each message takes the receive that was posted first. The initiators of
/// all these queue pairs, in any process, take entries one after another. A message's inbound slot contains the number
/// of its entry. The entry is free again when the message's completion was polled.
/// Threads: any.
class SoftSrq : public ibv_srq {
 public:
  SoftSrq(const Premises& premises, SharedBlock block, std::uint32_t pd_number, const ibv_srq_attr& attributes);
  SoftSrq(const SoftSrq&) = delete;
  SoftSrq& operator=(const SoftSrq&) = delete;

  [[nodiscard]] static SoftSrq& from(ibv_srq* srq) noexcept { return *static_cast<SoftSrq*>(srq); }
  /// The number of entries: the next power of two of the depth.
  [[nodiscard]] static std::uint32_t entries(const ibv_srq_attr& attributes) noexcept;

  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
  /// Returns  0, or an errno value.
  int modify(const ibv_srq_attr& attributes, int mask) noexcept;
  void query(ibv_srq_attr& attributes) noexcept;

  // For the queue pairs.
  /// True if `entry`, which a message claims to have taken, was posted and has not been polled since. Another thread
  /// may have posted it without any synchronization with the caller.
  [[nodiscard]] bool holds(std::uint32_t entry) const noexcept {
    (void)view_.shared->posted.load(std::memory_order_acquire);
    return entry < in_use_.size() && in_use_[entry] != 0;
  }
  // For an entry that holds() has accepted.
  [[nodiscard]] std::uint64_t wr_id(std::uint32_t entry) const noexcept { return receives_.wr_id(entry); }
  [[nodiscard]] std::uint32_t room(std::uint32_t entry) const noexcept { return receives_.room(entry); }
  [[nodiscard]] std::span<const ibv_sge> slices(std::uint32_t entry) const noexcept { return receives_.slices(entry); }
  [[nodiscard]] ReceiveMemory memory() const noexcept;
  /// The message of `entry` was polled. Does nothing if the queue does not hold the entry.
  void give_back(std::uint32_t entry) noexcept;
  /// `entry` was taken without a message, so it can be taken again. Does nothing if it can be taken anyway.
  void put_back(std::uint32_t entry) noexcept;
  /// The initiator of this queue pair has died: releases the queue if the initiator was its holder.
  void forget_initiator(std::uint32_t qpn, QpShared& target) noexcept;
  /// See SoftQp::expect_refusal.
  void expect_refusal(std::uint32_t key) noexcept;
  /// Sends an asynchronous event to the application.
  void raise(ibv_event_type type);

  [[nodiscard]] std::uint32_t entry_count() const noexcept { return view_.mask + 1; }
  [[nodiscard]] std::uint32_t max_wr() const noexcept { return attributes_.max_wr; }
  [[nodiscard]] std::uint32_t max_sge() const noexcept { return attributes_.max_sge; }
  [[nodiscard]] std::uint32_t pd_number() const noexcept { return pd_number_; }
  [[nodiscard]] std::uint64_t segment_offset() const noexcept { return block_.offset; }
  [[nodiscard]] SharedBlock take_block() noexcept { return std::move(block_); }

  EventSource events;
  std::atomic<int> users{0};   ///< number of queue pairs
  SoftQp* arrivals = nullptr;  ///< for XRC: the receiver of messages to its number

 private:
  void append_locked(std::uint32_t entry) noexcept;
  [[nodiscard]] std::uint32_t first_left() const noexcept;

  const MrTable& registrations_;
  EventQueue& event_queue_;
  SharedBlock block_;
  SrqView view_;
  const std::uint32_t pd_number_;
  const ibv_srq_attr attributes_;
  SpinLock lock_;
  ReceiveTable receives_;
  std::vector<std::uint32_t> free_;   // numbers of the entries that can be posted
  std::vector<std::uint8_t> in_use_;  // by entry: it is not in free_
};

}  // namespace rdmacomm::softdev
