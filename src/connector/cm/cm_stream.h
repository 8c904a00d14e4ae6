// cm_stream.h - a queue pair connected by rdma_cm as a ByteStream. Private to the connector layer.
// Wire form: docs/wire_format.md "Segments"
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/turn.h"
#include "base/wake_event.h"
#include "connector/byte_stream.h"
#include "connector/cm/cm_failure.h"
#include "connector/cm/cm_id.h"
#include "connector/cm/cm_private_data.h"
#include "connector/cm/cm_segment.h"
#include "connector/cm/segment_window.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

/// Bytes are sent by SEND in segments of up to kSegmentBytes, each with a header. One thread at a time sleeps for all.
class CmStream final : public ByteStream {
 public:
  static constexpr std::uint16_t kSlots = 64;  ///< in each direction
  /// With its header a segment is one packet of MTU 1024, which every Ethernet supports. rdma_cm knows only the client
  /// interface's MTU, and a larger packet is lost if the server's MTU is smaller.
  static constexpr std::uint32_t kSegmentBytes = 1016;

  /// Creates the queue pair on `id`, whose device is known, and posts all receives.
  [[nodiscard]] static Result<std::unique_ptr<CmStream>> create(std::unique_ptr<CmId> id);
  /// Connects to the listener that `id` was resolved to. Returns the listener's private data.
  /// Errors: std::errc::connection_refused: no program listens there; kPeerRefused; kTimeout; kStopped;
  ///         an errno of rdma_cm
  [[nodiscard]] Result<CmPrivateData> connect(const CmWait& wait);
  /// Accepts the connection request of `id`, without waiting. peer: the private data of the request.
  [[nodiscard]] Status accept(const CmPrivateData& peer, std::uint64_t token);
  ~CmStream() override;

  [[nodiscard]] Transfer receive(std::span<std::byte> room) override;
  [[nodiscard]] Transfer send(std::span<const std::byte> bytes) override;
  void await_input(Deadline deadline) override;
  [[nodiscard]] bool await_room(Deadline deadline) override;
  [[nodiscard]] bool ended() override;
  void end_sending() noexcept override;
  void shut_down(LastBytes last) noexcept override;

  [[nodiscard]] WatchedFd watched() const noexcept override;
  [[nodiscard]] const std::string& local_address() const noexcept override { return local_text_; }
  [[nodiscard]] const std::string& peer_address() const noexcept override { return peer_text_; }
  [[nodiscard]] const Gid& local_gid() const noexcept override { return local_gid_; }
  [[nodiscard]] const CmId& id() const noexcept { return *id_; }
  /// Readable once the stream was shut down locally.
  [[nodiscard]] int stop_fd() const noexcept { return stop_->fd(); }

 private:
  struct Segment {
    std::uint32_t slot = 0;
    std::uint32_t begin = 0;  ///< of the payload that was not handed out yet
    std::uint32_t end = 0;
  };

  explicit CmStream(std::unique_ptr<CmId> id) : id_(std::move(id)) {}
  Status make_queues();
  Status make_memory();
  Status post_receive(std::uint32_t slot);
  [[nodiscard]] CmPrivateData introduction(std::uint64_t token) const;
  Status take_over(const CmPrivateData& peer);
  std::byte* receive_slot(std::uint32_t slot) { return memory_.data() + std::size_t{slot} * kSlotBytes; }
  std::byte* send_slot(std::uint32_t slot) { return receive_slot(kSlots + slot); }

  // Under mutex_.
  void progress();
  void take_completion(const ibv_wc& completion);
  void take_segment(std::uint32_t slot, std::uint32_t bytes);
  void take_cm_events();
  void give_back(std::uint32_t slot);
  bool post_segment(std::span<const std::byte> bytes, std::uint16_t flags);
  void give_credits();
  void lose();
  void fail(const std::string& why, std::error_code code = std::make_error_code(std::errc::connection_reset));
  void end_by(const CmFailure& failure);
  [[nodiscard]] bool failed() const { return !failure_.empty(); }
  [[nodiscard]] Transfer failure() const;
  [[nodiscard]] bool may_send() const;
  template <typename Condition>
  bool wait_until(Condition condition, Deadline deadline);
  void lead(std::unique_lock<std::mutex>& lock, Deadline deadline);

  static constexpr std::uint32_t kHeaderBytes = CmSegment::kHeaderBytes;
  static constexpr std::uint32_t kSlotBytes = kHeaderBytes + kSegmentBytes;
  static_assert(kSlotBytes <= 1024);

  std::unique_ptr<CmId> id_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{2} * kSlots * kSlotBytes);
  verbs::PdHandle pd_;
  verbs::MrHandle mr_;
  verbs::CompChannelHandle wake_;
  verbs::CqHandle cq_;
  std::optional<WakeEvent> stop_;
  std::optional<WakeEvent> nudge_;  ///< wakes the leader: another thread has taken the event that would have woken it
  std::string local_text_;
  std::string peer_text_;
  Gid local_gid_{};

  std::mutex mutex_;
  Turn<> turn_;  // to sleep on the descriptors
  std::optional<SegmentWindow> window_;
  std::deque<Segment> arrived_;
  std::vector<std::uint32_t> free_send_slots_;
  unsigned unacknowledged_events_ = 0;
  bool may_send_ = false;  ///< iWARP: the server must not send before the client has
  bool peer_ended_ = false;
  bool gone_ = false;  ///< the connection has ended
  bool stopped_ = false;
  std::string failure_;  ///< why it has failed; empty: it has not
  std::error_code failure_code_;
};

}  // namespace rdmacomm
