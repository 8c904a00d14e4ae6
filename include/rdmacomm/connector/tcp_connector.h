// tcp_connector.h - one TCP connection to a peer: handshake messages, barrier, and who is still there.
// Layer: connector. Uses: base, verbs.   Messages: handshake.h
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/base/unique_fd.h"
#include "rdmacomm/connector/handshake.h"
#include "rdmacomm/connector/tcp_options.h"

namespace rdmacomm {

/// What is known of the other end of a connection.
enum class PeerState : std::uint8_t {
  kOpen,  ///< nothing says that it is gone
  kLeft,  ///< it said goodbye
  kLost,  ///< it closed, crashed, became unreachable, refused, or sent what is no message
};

/// A TCP connection that carries whole messages. A resource: neither copyable nor movable; its destructor closes the
/// connection without a goodbye.
///
/// Threads: all functions from any thread. Messages of several senders never mix. Receivers that wait for different
/// types do not disturb each other. sync_with_peer and exchange_hello: one thread at a time.
///
/// All functions that send or receive return, besides what they list,
///   kTimeout      the deadline passed. A message that was sent in part by then breaks the connection for good
///   kPeerLost     the peer closed the connection (the context says whether it said goodbye), or its host is silent
///   kPeerRefused  the peer sent a kReject; the context has its reason
///   kBadMessage, kVersionMismatch   the peer's bytes are no message of this version; the peer was told by a kReject
///                                   (unless its bytes had not even our magic), and nothing more will be received
///   kStopped      shutdown() was called
/// What had arrived before the connection ended can still be received.
class TCPConnector {
 public:
  /// Connects to a server. Tries every address of the host in turn, and again while they refuse, until
  /// options.connect_timeout has passed: the server may start later than its client.
  ///
  /// cancel_fd  becomes readable (and stays so) to give up; -1: none
  /// Returns    std::errc::connection_refused: nobody listens there; kTimeout: no answer at all;
  ///            kInvalidArgument: options.validate(), or a host that has no address; kStopped: cancel_fd;
  ///            std::errc::operation_not_permitted: a priority that needs CAP_NET_ADMIN; else what the system said
  /// Waits for the resolver without a deadline where the host is a name (getaddrinfo(3) knows none): use addresses,
  /// or names from /etc/hosts, where that matters.
  [[nodiscard]] static Result<std::unique_ptr<TCPConnector>> connect(const HostPort& server,
                                                                     const TcpOptions& options = {},
                                                                     int cancel_fd = -1);
  /// Takes over a connected TCP socket and sets it up as `options` say.
  [[nodiscard]] static Result<std::unique_ptr<TCPConnector>> adopt(UniqueFd socket, const TcpOptions& options);
  TCPConnector(const TCPConnector&) = delete;
  TCPConnector& operator=(const TCPConnector&) = delete;
  ~TCPConnector() = default;

  /// Sends `mine` and waits for the peer's. The first thing to do on both sides, in any order.
  /// Returns  kBadMessage: also where the peer's first message is no kHello
  [[nodiscard]] Result<Hello> exchange_hello(const Hello& mine, Deadline deadline);

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

  /// A barrier: returns when both sides have called it. Both sides give the same tag, at most 255 bytes.
  /// Returns  kWrongState: the peer is at another tag (the context names both);
  ///          kTimeout: may be called again with the same tag, to go on waiting
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline);

  /// Tells the peer why this side ends the connection, and sends no more. What cannot be sent at once is dropped;
  /// waits at most kLastWordsTime, and only for another thread that is in the middle of a message.
  void refuse(const Error& reason) noexcept;
  /// Tells the peer that this side ends in order, and sends no more. Waits as refuse() does. Receiving goes on.
  void say_goodbye() noexcept;
  static constexpr std::chrono::milliseconds kLastWordsTime{50};
  /// Ends the connection and every wait on it, now and later, with kStopped.
  void shutdown() noexcept;

  /// Whether the peer is still there, without blocking. When it is gone, everything that it had sent is ready to be
  /// received. For watchers: EPOLLRDHUP on fd() says when to ask.
  [[nodiscard]] PeerState check_peer();
  /// ok while the connection is open, else why it is not.
  [[nodiscard]] Status status() const;

  [[nodiscard]] const std::string& peer_address() const noexcept { return peer_address_; }    ///< "10.0.0.2:41234"
  [[nodiscard]] const std::string& local_address() const noexcept { return local_address_; }  ///< "10.0.0.1:2020"
  /// The peer for people: "10.0.0.2:41234 (node7, pid 4711)", the part in brackets after exchange_hello().
  [[nodiscard]] std::string peer_text() const;
  /// The address by which this side is reached, as a GID (IPv4 mapped): what RDMADevice::choose_gid asks for.
  [[nodiscard]] const ibv_gid& local_gid_hint() const noexcept { return local_gid_; }
  /// To watch for EPOLLRDHUP only.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  explicit TCPConnector(UniqueFd socket);
  void pump(bool limited);
  void sort_in(Message message);
  void end(PeerState state, const Error& why);
  void fail_protocol(const Error& why);
  bool inbox_full() const noexcept;
  std::optional<Message> pop(MessageType type);
  Result<Message> take(MessageType type, bool must_be_next, Deadline deadline);
  void wait_for_more(std::unique_lock<std::mutex>& lock, Deadline deadline);
  Status write_all(std::span<const std::byte> frame, Deadline deadline);
  Status claim_sending(Deadline deadline);
  void release_sending();
  Error why_not_sent(std::error_code why);
  bool claim_last_words(std::unique_lock<std::mutex>& lock);
  void send_last(MessageType type, std::span<const std::byte> payload) noexcept;
  std::string who() const;
  Error late(std::string_view what) const;

  UniqueFd socket_;
  std::string peer_address_;
  std::string local_address_;
  ibv_gid local_gid_{};

  mutable std::mutex mutex_;         // never held while waiting for the network
  std::condition_variable changed_;  // inbox_, end_, reading_ or sending_ changed
  bool reading_ = false;             // one receiver waits for the socket; the others wait for it
  bool sending_ = false;             // one sender is in the middle of a message
  bool last_sent_ = false;           // kGoodbye or kReject is out
  MessageAssembler assembler_;
  std::deque<Message> inbox_;
  std::size_t inbox_bytes_ = 0;
  PeerState peer_state_ = PeerState::kOpen;
  std::optional<Error> end_;  // why nothing more will come
  std::optional<Hello> hello_;
  std::optional<std::string> barrier_sent_;  // tag of a barrier that this side has reached and not left
};

}  // namespace rdmacomm
