// connector.h - one connection to a peer beside the queue pairs: handshake messages, barriers, and the peer's state.
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

/// The state of the peer, as far as it is known.
enum class PeerState : std::uint8_t {
  kOpen,    ///< no sign that the connection has ended
  kClosed,  ///< the peer sent GOODBYE
  kLost,    ///< closed, crashed, unreachable, refused, or sent an invalid message; or the local device was removed
};

/// A descriptor to watch for the end of the connection, with the events to watch: for edge-triggered epoll.
struct WatchedFd {
  int fd = -1;
  std::uint32_t events = 0;
};

/// The local device, port and GID of an RDMA connection, as rdma_cm has chosen them. A value.
struct RdmaWay {
  std::string device = {};
  std::uint8_t port = 1;              ///< of the device
  std::optional<int> gid_index = {};  ///< in the port's table; empty: its packets carry no GID (iWARP, or one subnet)
};

/// A connection that carries whole messages: by TCP (TcpConnection) or by rdma_cm (CmConnector). A resource: neither
/// copyable nor movable. Its destructor closes the connection without a GOODBYE.
///
/// Threads: all functions from any thread. Messages of several senders never mix. Receivers that wait for different
/// types do not disturb each other. exchange_hello: one thread at a time.
///
/// Besides their own errors, all functions that send or receive return:
///   kTimeout      the deadline passed. If a message was sent in part by then, the connection cannot be used any more
///   kPeerClosed   the peer ended the connection in order
///   kPeerLost     the connection ended without GOODBYE, or the peer's host is silent
///   kDeviceLost   by rdma_cm: the local RDMA device is being removed
///   kPeerRefused  the peer sent a kReject; the context has its reason. kServerBusy: this was the reason
///   kBadMessage, kVersionMismatch   the peer's bytes are no message of this version; the peer was sent a kReject
///                                   (unless its bytes do not begin with our magic), and nothing more is received
///   kStopped      shutdown() was called
///   std::errc::not_enough_memory  a message of the peer could not be stored; the peer was sent a kReject
/// Messages that arrived before the connection ended can still be received.
class Connector {
 public:
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  virtual ~Connector();

  /// Returns how to connect one queue pair to the peer's, if their addresses alone do not suffice. The caller keeps the
  /// result as long as the queue pair. nullptr: use RDMAAdapter::connect().
  ///
  /// local, remote   the queue pairs' addresses, as exchanged with the peer
  /// deadline        of all its steps together
  [[nodiscard]] virtual std::unique_ptr<verbs::QueuePairLink> link(const QpAddress& local, const QpAddress& remote,
                                                                   Deadline deadline);
  /// The last queue pair of this peer is connected: link() is not called again, and later requests of the peer for
  /// queue pairs are not kept.
  virtual void all_linked() noexcept {}

  /// The device, port and GID that the connection and its queue pairs use; empty: it uses no RDMA device. Call it only
  /// after a message from the peer has arrived. Returns  the error of rdma_cm
  [[nodiscard]] virtual Result<std::optional<RdmaWay>> rdma_way() const { return std::optional<RdmaWay>(); }

  /// Sends `mine` and waits for the peer's. Both peers call it first, in any order.
  /// Returns  kBadMessage: also if the peer's first message is no kHello
  [[nodiscard]] Result<Hello> exchange_hello(const Hello& mine, Deadline deadline);

  /// The same for the server: waits for the client's kHello first, and sends nothing before.
  [[nodiscard]] Result<Hello> answer_hello(const Hello& mine, Deadline deadline);

  /// Sends one message. Returns kInvalidArgument: longer than max_payload_bytes(type).
  /// Returns once the system has taken the bytes. Only a reply proves that the peer has read them.
  [[nodiscard]] Status send_message(MessageType type, std::span<const std::byte> payload, Deadline deadline);
  /// Waits for the next message of type `type`. Messages of other types are kept for other receivers: at most
  /// kMaxInboxMessages and kMaxInboxBytes. If more arrive, the connection is not read until one of them is taken.
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(MessageType type, Deadline deadline);
  /// Waits for the next message of any type, which must be `type`. Otherwise returns kBadMessage and sends a kReject.
  [[nodiscard]] Result<std::vector<std::byte>> expect_message(MessageType type, Deadline deadline);
  static constexpr std::size_t kMaxInboxMessages = 256;
  static constexpr std::size_t kMaxInboxBytes = 4 * kMaxPayloadBytes;
  /// Changes the limit of bytes kept for other receivers: at most kMaxInboxBytes. In addition to them, one message that
  /// exceeds `bytes` may be kept, and one may be in transfer. Sessions keep one message until the peer's OFFER or ANSWER has
  /// arrived, and then kMaxInboxBytesInHandshake until the endpoint is established.
  void limit_inbox(std::size_t bytes);
  /// From now on a message with a longer payload is refused (kBadMessage), as soon as its header has arrived. Sessions
  /// allow kMaxOfferBytes until the peer's OFFER or ANSWER has arrived, and then kMaxPayloadBytes, which is the default.
  void limit_messages(std::size_t bytes);
  static constexpr std::size_t kMaxInboxBytesInHandshake = kMaxPayloadBytes;

  /// A barrier: returns when both peers have called it with the same tag of at most 255 bytes. Several threads may wait
  /// at different tags at a time. Each call with a tag matches one call of the peer with the same tag.
  /// Returns  kTimeout: may be called again with the same tag, to continue waiting;
  ///          kWrongState: also a timeout, and the peer waits at another tag, at which no local call waits (the context
  ///          names both)
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline);

  /// Sends the peer the reason why the connection ends here, and then sends no more. A message that cannot be sent at
  /// once is dropped. Waits at most kLastMessageTime, and only while another thread is sending a message.
  void refuse(const Error& reason) noexcept;
  /// Sends GOODBYE, which means an end in order, and then sends no more. Waits as refuse() does. Receiving continues.
  void send_goodbye() noexcept;
  static constexpr std::chrono::milliseconds kLastMessageTime{50};
  /// Ends the connection for a local reason: the peer is informed as by refuse(), and every wait, now and later, ends
  /// with `reason`. No effect if the connection has already ended.
  void give_up(const Error& reason) noexcept;
  /// Ends the connection and every wait on it, now and later, with kStopped.
  virtual void shutdown() noexcept;

  /// Whether the peer is still connected. Does not block. If it is not, everything that it sent is ready to be
  /// received. To know when to call this, watch watched() by edge-triggered epoll.
  [[nodiscard]] PeerState check_peer();
  [[nodiscard]] WatchedFd watched() const noexcept;

  /// Sends a heartbeat to the peer, if the connection has room for it now, and checks whether data has arrived from the
  /// peer recently. Both peers must call it about every kHeartbeatPeriod. Does not block.
  ///
  /// now           the time; must not decrease from call to call
  /// silent_after  how long the peer may be silent before the connection counts as lost (kPeerLost names the time): its
  ///               process is stopped or hangs, or its host is down. 0: for ever
  [[nodiscard]] PeerState keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after);
  static constexpr std::chrono::milliseconds kHeartbeatPeriod{1000};
  /// ok while the connection is open, else the reason for its end.
  [[nodiscard]] Status status() const;

  [[nodiscard]] const std::string& peer_address() const noexcept;   ///< "10.0.0.2:41234"
  [[nodiscard]] const std::string& local_address() const noexcept;  ///< "10.0.0.1:2020"
  /// The peer for messages: "10.0.0.2:41234 (node7, pid 4711)"; the part in brackets after exchange_hello().
  [[nodiscard]] std::string peer_text() const;
  /// The local address of the connection as a GID (IPv4 mapped), for DeviceCore::choose_gid.
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
  void exit_barrier(const std::string& tag, bool sent_one_is_used_up);
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
  bool claim_last_message(std::unique_lock<std::mutex>& lock);
  void send_last(MessageType type, const Error* reason) noexcept;
  std::string who() const;
  Error late(std::string_view what) const;

  const std::unique_ptr<ByteStream> stream_;

  mutable std::mutex mutex_;       // never held while waiting for the network
  Turn<> turn_;                    // to receive from the stream; also for changes of inbox_ and end_
  std::condition_variable sent_;   // sending_, last_sent_ or end_ changed
  bool sending_ = false;           // one sender is in the middle of a message
  bool last_sent_ = false;         // kGoodbye or kReject was sent
  std::vector<std::byte> unsent_;  // the rest of a heartbeat, sent before the next message; with sending_ set
  MessageAssembler assembler_;
  std::deque<Message> inbox_;
  std::size_t inbox_bytes_ = 0;
  std::size_t inbox_limit_ = kMaxInboxBytes;
  PeerState peer_state_ = PeerState::kOpen;
  std::optional<Error> end_;  // why nothing more will arrive
  std::optional<Hello> hello_;
  /// For one tag: the running calls of sync_with_peer(), and the BARRIERs sent that have not been matched by one from
  /// the peer. A call that times out leaves its BARRIER for the next call.
  struct Barrier {
    int calls = 0;
    int sent = 0;
  };
  std::map<std::string, Barrier> barriers_;  // by tag
  std::uint64_t bytes_received_ = 0;
  std::uint64_t bytes_seen_ = 0;  // bytes_received_ when keep_alive() last saw it change, at last_bytes_at_
  std::chrono::steady_clock::time_point last_bytes_at_{};
  std::optional<std::chrono::steady_clock::time_point> looked_at_;  // when keep_alive() was last called
};

}  // namespace rdmacomm
