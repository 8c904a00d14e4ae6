// rdma_channel.h - the verbs operations on one connected queue pair.
// Layer: channel. Uses: base, verbs, memory, adapter.   See docs/architecture.md "One write through every layer".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rdmacomm/adapter/rdma_adapter.h"
#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/channel/completion.h"
#include "rdmacomm/memory/rdma_buffer.h"
#include "rdmacomm/memory/remote_region.h"

namespace rdmacomm {

/// The slices of one request: a list, or a single slice. A view; it does not own what it shows.
class SliceList {
 public:
  SliceList() = default;  ///< no bytes
  SliceList(const BufferSlice& one) : list_(&one, 1) {}                  // NOLINT(google-explicit-constructor)
  SliceList(std::span<const BufferSlice> list) : list_(list) {}          // NOLINT(google-explicit-constructor)
  template <std::size_t N>
  SliceList(const BufferSlice (&list)[N]) : list_(list) {}               // NOLINT(google-explicit-constructor)
  [[nodiscard]] const BufferSlice* data() const noexcept { return list_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }

 private:
  std::span<const BufferSlice> list_;
};

/// Flags of a send-side request. Combine with |.
enum class PostFlags : std::uint8_t {
  kNone = 0,
  kUnsignaled = 1,  ///< no completion on success; freed from the queue by the next signaled one's completion
  kFence = 2,       ///< starts after all earlier READs and atomics of this channel are complete
  kSolicited = 4,   ///< SEND and WRITE_WITH_IMM: wakes a peer that waits for solicited completions only
  kInline = 8,      ///< the payload is copied now and may be overwritten at once; at most max_inline_bytes()
};
[[nodiscard]] constexpr PostFlags operator|(PostFlags a, PostFlags b) noexcept {
  return static_cast<PostFlags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool has(PostFlags flags, PostFlags flag) noexcept {
  return (static_cast<std::uint8_t>(flags) & static_cast<std::uint8_t>(flag)) != 0;
}

/// One send-side request, for post_chain().
struct SendRequest {
  Operation operation = Operation::kSend;  ///< any but kRecv and kRecvWriteImm
  SliceList local;
  RemoteRegion remote{};                   ///< WRITE, READ, atomics
  std::uint64_t id = 0;
  bool has_immediate = false;              ///< kSend; kWriteImm always has one
  std::uint32_t immediate = 0;             ///< host byte order
  std::uint64_t operand = 0;               ///< fetch_add: the addend; compare_swap: the expected value
  std::uint64_t swap = 0;                  ///< compare_swap: the new value
  PostFlags flags = PostFlags::kNone;
};

/// Ordered, reliable operations to one peer. A resource: neither copyable nor movable.
///
/// Threads: post_send, post_write, ... from one thread at a time; post_recv from one thread at a time; poll
/// from one thread at a time; the three may differ. state and counters from any.
/// Lifetime: must not outlive its RDMADevice and its CompletionQueue. Buffers in flight belong to the channel
/// until their completion was polled.
/// Every post returns at once; the outcome arrives in poll() under the request's id. Requests of one queue
/// complete in the order in which they were posted.
///
/// All post functions return
///   ok                 accepted
///   kSendQueueFull     (post_recv: kReceiveQueueFull) as many outstanding as the depth: poll, then retry
///   kNotConnected      the adapter has not reached RTS (post_recv: is in no state to receive), or was closed
///   kInvalidArgument   more slices than configured, an inline payload beyond max_inline_bytes(), a message
///                      beyond max_message_bytes(), an atomic whose result slice is not 8 bytes
/// and cost no allocation, lock, log or system call in the library.
class RDMAChannel {
 public:
  /// Makes a channel over a queue pair in INIT. It takes the adapter over.
  [[nodiscard]] static Result<std::unique_ptr<RDMAChannel>> create(std::string name, std::unique_ptr<RDMAAdapter> adapter);
  RDMAChannel(const RDMAChannel&) = delete;
  RDMAChannel& operator=(const RDMAChannel&) = delete;
  /// Flushes and forgets what is outstanding; see drain() for the orderly way.
  ~RDMAChannel();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] RDMAAdapter& adapter() noexcept { return *adapter_; }
  [[nodiscard]] const RDMAAdapter& adapter() const noexcept { return *adapter_; }
  [[nodiscard]] std::uint32_t max_inline_bytes() const noexcept { return max_inline_bytes_; }
  [[nodiscard]] std::uint32_t max_message_bytes() const noexcept { return max_message_bytes_; }
  [[nodiscard]] int send_depth() const noexcept { return static_cast<int>(send_.depth); }
  [[nodiscard]] int recv_depth() const noexcept { return static_cast<int>(recv_.depth); }
  /// Requests posted and not yet polled. Unsignaled ones count until a later completion frees them.
  [[nodiscard]] int outstanding_sends() const noexcept { return static_cast<int>(send_.outstanding()); }
  [[nodiscard]] int outstanding_recvs() const noexcept { return static_cast<int>(recv_.outstanding()); }

  /// Posts one SEND of `local`, which the peer's oldest posted receive takes.
  /// local    unchanged until its completion (kInline: until the call returns)
  /// Completes with  kRemoteInvalidRequest: the peer's receive is too short; kRnrRetryExceeded: none was posted
  /// Source   ibv_post_send(3)
  [[nodiscard]] std::error_code post_send(SliceList local, std::uint64_t id, PostFlags flags = PostFlags::kNone) noexcept;
  /// The same with 32 bits of immediate data for the peer's completion.
  [[nodiscard]] std::error_code post_send_imm(SliceList local, std::uint32_t immediate, std::uint64_t id,
                                              PostFlags flags = PostFlags::kNone) noexcept;
  /// Posts one receive: `local` is where an incoming SEND goes. May be empty, for WRITE_WITH_IMM and empty SENDs.
  /// local    not to be touched until its completion
  /// Completes with  kLocalLength: the message was longer than `local`
  /// Source   ibv_post_recv(3)
  [[nodiscard]] std::error_code post_recv(SliceList local, std::uint64_t id) noexcept;
  /// Posts one RDMA WRITE of `local` to the start of `remote`. The peer is not told.
  /// remote   at least as long as `local`
  /// Completes with  kRemoteAccess: wrong rkey, out of bounds, or the region does not allow kWrite
  [[nodiscard]] std::error_code post_write(SliceList local, const RemoteRegion& remote, std::uint64_t id,
                                           PostFlags flags = PostFlags::kNone) noexcept;
  /// The same, and it consumes one posted receive of the peer's, whose completion carries `immediate`.
  [[nodiscard]] std::error_code post_write_imm(SliceList local, const RemoteRegion& remote, std::uint32_t immediate,
                                               std::uint64_t id, PostFlags flags = PostFlags::kNone) noexcept;
  /// Posts one RDMA READ of as many bytes as `local` has, from the start of `remote`.
  /// local    not to be touched until its completion
  /// Completes with  kRemoteAccess: as post_write, for kRead
  [[nodiscard]] std::error_code post_read(SliceList local, const RemoteRegion& remote, std::uint64_t id,
                                          PostFlags flags = PostFlags::kNone) noexcept;
  /// Adds `addend` to the 8 bytes at `remote` (aligned to 8, host byte order) and puts the old value into
  /// `result` (8 bytes).  Completes with  kRemoteAccess: as post_write, for kAtomic
  [[nodiscard]] std::error_code fetch_add(const BufferSlice& result, const RemoteRegion& remote, std::uint64_t addend,
                                          std::uint64_t id, PostFlags flags = PostFlags::kNone) noexcept;
  /// Replaces the 8 bytes at `remote` by `desired` if they equal `expected`; `result` gets the old value.
  [[nodiscard]] std::error_code compare_swap(const BufferSlice& result, const RemoteRegion& remote,
                                             std::uint64_t expected, std::uint64_t desired, std::uint64_t id,
                                             PostFlags flags = PostFlags::kNone) noexcept;
  /// Posts `requests` in order, with one doorbell for up to kMaxChain of them. `posted` says how many were
  /// accepted when the result is an error; the rest were not touched.
  [[nodiscard]] std::error_code post_chain(std::span<const SendRequest> requests, std::size_t& posted) noexcept;
  static constexpr std::size_t kMaxChain = 32;

  /// Takes up to out.size() completions, without blocking. `count` says how many.
  /// Only where this channel alone reports to its CompletionQueue; shared ones are polled by CompletionPoller.
  /// Returns  ok, or kCompletionFailed when the completion queue itself has failed (overrun, device lost)
  [[nodiscard]] std::error_code poll(std::span<Completion> out, std::size_t& count) noexcept;
  /// The same, each completion handed to `handler`; at most `limit`.
  [[nodiscard]] std::error_code poll(CompletionHandler& handler, std::size_t& count, std::size_t limit = 64);

  /// Moves the queue pair to ERR and takes completions until nothing is outstanding, so that no buffer is in use
  /// any more. What comes is handed to `handler` where there is one, else dropped. Only as poll().
  /// Returns  kTimeout: the device did not hand all completions out in time
  [[nodiscard]] Status drain(Deadline deadline, CompletionHandler* handler = nullptr);

 private:
  friend class CompletionPoller;

  /// The ids of the requests outstanding in one queue, in posting order: index = position modulo depth.
  struct RequestRing {
    struct Entry {
      std::uint64_t id;
      Operation operation;
    };
    std::unique_ptr<Entry[]> entries;
    std::uint32_t depth = 0;  ///< requests, as configured
    std::uint32_t mask = 0;   ///< entries - 1; entries is depth rounded up to a power of two
    alignas(64) std::atomic<std::uint32_t> posted{0};     ///< written by the posting thread
    alignas(64) std::atomic<std::uint32_t> completed{0};  ///< written by the polling thread
    [[nodiscard]] std::uint32_t outstanding() const noexcept {
      return posted.load(std::memory_order_acquire) - completed.load(std::memory_order_acquire);
    }
  };

  RDMAChannel(std::string name, std::unique_ptr<RDMAAdapter> adapter);
  std::error_code post_one(const SendRequest& request) noexcept;
  Completion complete(const ibv_wc& wc) noexcept;

  std::string name_;
  std::unique_ptr<RDMAAdapter> adapter_;
  std::uint32_t max_inline_bytes_ = 0;
  std::uint32_t max_message_bytes_ = 0;
  RequestRing send_;
  RequestRing recv_;
};

}  // namespace rdmacomm
