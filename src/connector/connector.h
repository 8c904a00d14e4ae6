// connector.h - one connection to a peer beside the queue pairs: handshake messages, barrier, and who is still there.
// Layer: connector. Uses: base, verbs.   Messages: handshake.h
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/turn.h"
#include "connector/handshake.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"
#include "verbs/queue_pair_link.h"

namespace rdmacomm {

class ByteStream;

/// What is known of the other end of a connection.
enum class PeerState : std::uint8_t {
  kOpen,  ///< nothing says that it is gone
  kLeft,  ///< it said goodbye
  kLost,  ///< it closed, crashed, became unreachable, refused, or sent what is no message; or this side's device is gone
};

/// A descriptor to watch for the peer's end, with the events that tell of it: for epoll, edge-triggered.
struct WatchedFd {
  int fd = -1;
  std::uint32_t events = 0;
};

/// The way of a connection over RDMA, as rdma_cm has chosen it. A value.
struct RdmaWay {
  std::string device = {};
  std::uint8_t port = 1;              ///< of the device
  std::optional<int> gid_index = {};  ///< in the port's table; empty: its packets carry no GID (iWARP, or one subnet)
};

/// A connection that carries whole messages: by TCP (TcpConnection) or by rdma_cm (CmConnector). A resource: neither
/// copyable nor movable; its destructor closes the connection without a goodbye.
///
/// Threads: all functions from any thread. Messages of several senders never mix. Receivers that wait for different
/// types do not disturb each other. exchange_hello: one thread at a time.
///
/// All functions that send or receive return, besides what they list,
///   kTimeout      the deadline passed. A message that was sent in part by then breaks the connection for good
///   kPeerClosed   the peer ended the connection in order
///   kPeerLost     the connection ended without notice, or the peer's host is silent
///   kDeviceLost   by rdma_cm: the RDMA device of this side is being removed
///   kPeerRefused  the peer sent a kReject; the context has its reason. kServerBusy: that was the reason
///   kBadMessage, kVersionMismatch   the peer's bytes are no message of this version; the peer was told by a kReject
///                                   (unless its bytes had not even our magic), and nothing more will be received
///   kStopped      shutdown() was called
///   std::errc::not_enough_memory  there is no memory for what the peer sent; it was told by a kReject
/// What had arrived before the connection ended can still be received.
class Connector {
 public:
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  virtual ~Connector();

  /// How to connect one queue pair to the peer's, where the queue pairs' addresses alone do not do it: the caller keeps
  /// it as long as the queue pair. nullptr: by RDMAAdapter::connect().
  ///
  /// local, remote   what both sides have told each other of the queue pair
  /// deadline        of all its steps together
  [[nodiscard]] virtual std::unique_ptr<verbs::QueuePairLink> link(const QpAddress& local, const QpAddress& remote,
                                                                   Deadline deadline);
  /// The last queue pair of this peer is connected: link() will not be called again, and nothing that the peer asks for
  /// it is kept any more.
  virtual void all_linked() noexcept {}

  /// The way that the connection goes, and the queue pairs' with it; empty: it goes over no RDMA device. Not before the
  /// peer has been heard. Returns  what rdma_cm said
  [[nodiscard]] virtual Result<std::optional<RdmaWay>> rdma_way() const { return std::optional<RdmaWay>(); }

  /// Sends `mine` and waits for the peer's. The first thing to do on both sides, in any order.
  /// Returns  kBadMessage: also where the peer's first message is no kHello
  [[nodiscard]] Result<Hello> exchange_hello(const Hello& mine, Deadline deadline);

  /// The same for the side that was connected to: waits for the peer's first, and tells it nothing before.
  [[nodiscard]] Result<Hello> answer_hello(const Hello& mine, Deadline deadline);

  /// Sends one message. Returns kInvalidArgument: longer than max_payload_bytes(type).
  /// Returns once the system has taken the bytes; that the peer has read them, only a reply can tell.
  [[nodiscard]] Status send_message(MessageType type, std::span<const std::byte> payload, Deadline deadline);
  /// Waits for the next message of type `type`, leaving others to other receivers. At most kMaxInboxMessages and
  /// kMaxInboxBytes of others are kept; beyond that the connection is not read until one of them is taken.
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(MessageType type, Deadline deadline);
  /// Waits for the next message of all, which must be of type `type`. kBadMessage: it is not; the peer is told.
  [[nodiscard]] Result<std::vector<std::byte>> expect_message(MessageType type, Deadline deadline);
  static constexpr std::size_t kMaxInboxMessages = 256;
  static constexpr std::size_t kMaxInboxBytes = 4 * kMaxPayloadBytes;
  /// Changes how many bytes of others are kept: at most kMaxInboxBytes. Beside them, one message may be kept that
  /// exceeds `bytes`, and one is being received. Sessions keep one message until the peer's card has come, and then
  /// kMaxInboxBytesInHandshake until the endpoint is established.
  void limit_inbox(std::size_t bytes);
  /// Messages with more bytes of payload are refused from now on (kBadMessage), as soon as their header has come.
  /// Sessions allow kMaxOfferBytes until the peer's card has come, and then kMaxPayloadBytes, which is the default.
  void limit_messages(std::size_t bytes);
  static constexpr std::size_t kMaxInboxBytesInHandshake = kMaxPayloadBytes;

  /// A barrier: returns when both sides have called it with the same tag, at most 255 bytes. Several threads may be at
  /// barriers with different tags at a time; of those at the same tag, each meets one call of the peer's.
  /// Returns  kTimeout: may be called again with the same tag, to go on waiting;
  ///          kWrongState: the same, and the peer waits at another tag, where nobody waits here (the context names
  ///          both)
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline);

  /// Tells the peer why this side ends the connection, and sends no more. What cannot be sent at once is dropped;
  /// waits at most kLastWordsTime, and only for another thread that is in the middle of a message.
  void refuse(const Error& reason) noexcept;
  /// Tells the peer that this side ends in order, and sends no more. Waits as refuse() does. Receiving goes on.
  void send_goodbye() noexcept;
  static constexpr std::chrono::milliseconds kLastWordsTime{50};
  /// Ends the connection because of something on this side: the peer is told as by refuse(), and every wait, now and
  /// later, ends with `reason`. Without effect where the connection has ended already.
  void give_up(const Error& reason) noexcept;
  /// Ends the connection and every wait on it, now and later, with kStopped.
  virtual void shutdown() noexcept;

  /// Whether the peer is still there, without blocking. When it is gone, everything that it had sent is ready to be
  /// received. For watchers: watched() says what to watch, by edge-triggered epoll, to know when to ask.
  [[nodiscard]] PeerState check_peer();
  [[nodiscard]] WatchedFd watched() const noexcept;

  /// A sign of life to the peer, if the connection has room for it now; and a look whether the peer has given one
  /// lately. To be called about every kHeartbeatPeriod on both sides. Does not block.
  ///
  /// now           the time; calls may not go back in it
  /// silent_after  how long the peer may be silent before the connection counts as lost (kPeerLost says how long it
  ///               was): a process that is stopped or hangs as a whole, a host that is gone. 0: for ever
  [[nodiscard]] PeerState keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after);
  static constexpr std::chrono::milliseconds kHeartbeatPeriod{1000};
  /// ok while the connection is open, else why it is not.
  [[nodiscard]] Status status() const;

  [[nodiscard]] const std::string& peer_address() const noexcept;   ///< "10.0.0.2:41234"
  [[nodiscard]] const std::string& local_address() const noexcept;  ///< "10.0.0.1:2020"
  /// The peer for people: "10.0.0.2:41234 (node7, pid 4711)", the part in brackets after exchange_hello().
  [[nodiscard]] std::string peer_text() const;
  /// The address by which this side is reached, as a GID (IPv4 mapped): what DeviceCore::choose_gid asks for.
  [[nodiscard]] const Gid& local_gid_hint() const noexcept;

 protected:
  explicit Connector(std::unique_ptr<ByteStream> stream);
  [[nodiscard]] ByteStream& stream() noexcept { return *stream_; }

 private:
  Result<Hello> receive_hello(Deadline deadline);
  void pump(bool limited);
  void receive_all(bool limited);
  void sort_in(Message message);
  void end(PeerState state, const Error& why);
  void fail_protocol(const Error& why);
  bool inbox_full() const noexcept;
  std::optional<Message> pop(MessageType type);
  Result<Message> take(MessageType type, bool must_be_next, Deadline deadline);
  Status wait_at_barrier(const std::string& tag, std::span<const std::byte> payload, Deadline deadline);
  bool enter_barrier(const std::string& tag);
  void leave_barrier(const std::string& tag, bool sent_one_is_used_up);
  Error late_at_barrier(const std::string& tag) const;
  void wait_for_more(std::unique_lock<std::mutex>& lock, Deadline deadline);
  Status write_all(std::vector<std::byte> frame, Deadline deadline);
  void send_heartbeat();
  std::chrono::milliseconds silence(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after);
  Status claim_sending(Deadline deadline);
  void release_sending();
  void notify_all() noexcept {
    turn_.notify();
    sent_.notify_all();
  }
  Error why_not_sent(const std::string& why);
  bool claim_last_words(std::unique_lock<std::mutex>& lock);
  void send_last(MessageType type, const Error* reason) noexcept;
  std::string who() const;
  Error late(std::string_view what) const;

  const std::unique_ptr<ByteStream> stream_;

  mutable std::mutex mutex_;       // never held while waiting for the network
  Turn<> turn_;                    // to receive from the stream; for changes of inbox_ and end_, too
  std::condition_variable sent_;   // sending_, last_sent_ or end_ changed
  bool sending_ = false;           // one sender is in the middle of a message
  bool last_sent_ = false;         // kGoodbye or kReject is out
  std::vector<std::byte> unsent_;  // the rest of a heartbeat, to go before the next message; with sending_ set
  MessageAssembler assembler_;
  std::deque<Message> inbox_;
  std::size_t inbox_bytes_ = 0;
  std::size_t inbox_limit_ = kMaxInboxBytes;
  PeerState peer_state_ = PeerState::kOpen;
  std::optional<Error> end_;  // why nothing more will come
  std::optional<Hello> hello_;
  /// Of one tag: calls of sync_with_peer() under way, and BARRIERs sent that have not met one of the peer's. A call
  /// that times out leaves its BARRIER to the next one.
  struct Barrier {
    int calls = 0;
    int sent = 0;
  };
  std::map<std::string, Barrier> barriers_;  // by tag
  std::uint64_t bytes_received_ = 0;
  std::uint64_t bytes_seen_ = 0;  // bytes_received_ when keep_alive() last saw it change, which was at heard_at_
  std::chrono::steady_clock::time_point heard_at_{};
  std::optional<std::chrono::steady_clock::time_point> looked_at_;  // when keep_alive() was called last
};

}  // namespace rdmacomm
