// session.h - servers that accept peers, clients that connect to them, and what the application does when.
// Layer: session. Uses: base, device, channel, connector, endpoint.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rdmacomm/completion.h"
#include "rdmacomm/config.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/device.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/receive_pool.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMASession;
class RDMACOMM_API SessionCore;

/// What a session is made with. A value.
struct RDMACOMM_API SessionOptions {
  DeviceOptions device = {};  ///< which device to open, where `shared_device` is empty
  /// One that is open already; empty: the session opens one. Sessions may share it, also with the application, which
  /// then reads its asynchronous events by RDMADevice::take_events() only.
  RDMADevice shared_device = {};
  /// Another session, started, on the same shared_device. Endpoints of this session in
  /// ThreadMode::kThreadPerCompletionQueue use that session's completion queues and threads: with the same
  /// shared_queue_key, endpoints of both are on one queue. Hooks stay separate. If that session stops, these endpoints
  /// end. It may be moved, and must be destroyed after this one. nullptr: queues of this session's own.
  const RDMASession* queues_of = nullptr;
  ConnectorKind connector = ConnectorKind::kAuto;  ///< how peers connect; the same on both sides
  TcpOptions tcp = {};                             ///< also the time limits of rdma_cm
  /// How long an established peer may send no heartbeat (sessions send one each second) before it counts as lost: its
  /// process is stopped, or hangs as a whole, or its host is gone. 3 s..1 h; 0: for ever, to stop peers in a
  /// debugger.
  std::chrono::milliseconds silent_peer_after{10'000};
  /// Server: where to listen; an empty host is every address, port 0 picks one. Client: the server.
  HostPort address = {};
  /// Server: connections that may be in the handshake at a time, 1..1024; more of them wait. Each takes a thread, for
  /// at most a few times tcp.handshake_timeout.
  int handshake_slots = 64;
  /// Server: of these, connections from one source, 1..1024. A source is one IPv4 address, or one IPv6 network of 64
  /// bits. So a host that connects and says nothing cannot keep clients of other addresses out.
  int handshakes_per_source = 32;
  /// Server: a handshake keeps its slot at least this long, 1 ms..1 h. After that the session may end it, if all slots
  /// are taken and a client waits whose source has fewer slots. It is chosen at random among those of the source with
  /// the most slots.
  std::chrono::milliseconds handshake_patience{1000};
  /// Server: connections that may wait for a slot, 1..4096. Each takes a descriptor. Beyond that the source with the
  /// most waiting connections loses one, chosen at random.
  int waiting_handshakes = 256;
  /// Endpoints at a time, 1..65536; a client beyond that is refused.
  int max_endpoints = 1024;
  /// Server: endpoints of one source at a time, 1..65536; a client beyond that is refused. More than max_endpoints is
  /// the same as max_endpoints: then one host can take all of them.
  int max_endpoints_per_source = 512;

  /// kInvalidArgument: a value outside its range; the context names it.
  [[nodiscard]] Status validate() const;
};

/// What is known of a peer before there are queue pairs. A value.
struct RDMACOMM_API PeerInfo {
  std::string address = {};    ///< "10.0.0.2:41234"
  std::string node = {};       ///< its host name
  std::uint32_t pid = 0;       ///< its process
  std::uint64_t instance = 0;  ///< random: tells two sessions apart, even of one process
  /// What the client's HcaConfig has as private data: a client speaks first, so the server can fit its own
  /// configuration to it. Empty on the client's side; see EndPoint::peer_private_data().
  std::vector<std::byte> private_data = {};
};

/// What an application does at the turning points of a session, in the order in which they are called. Applications
/// derive a class from this, override what they need, and give an object of it to a session, which shares its
/// ownership. Several sessions may have the same. SessionFunctions is the same as a struct of functions.
///
/// Threads. Hooks of one endpoint never overlap and are called in the order below. Exception: between on_established
/// and on_disconnected, completion hooks of different channels may overlap in ThreadMode::kThreadPerChannel, and for
/// channels on devices of their own. Hooks of different endpoints may run at the same time on different threads:
///   init_session                   the thread that calls start() or the first connect()
///   lazy_config_hca,               client: the thread that calls connect(); server: a thread of the session for each
///   post_connecting                connection in the handshake
///   on_established,                ThreadMode::kApplication: on_established where post_connecting was, on_disconnected
///   on_disconnected                on the session's control thread; else on the thread that calls the completion hooks
///   on_ended                       as on_disconnected; where post_connecting was, if no on_established was called
///   on_completion                  the channel's thread, the endpoint's, or the completion queue's; not in
///                                  ThreadMode::kApplication
///   on_receives_low                the session's control thread
///   on_connect_failed              server: as lazy_config_hca
/// A hook may call anything of the library, stop() of its session and close() of any EndPoint too (they then do not
/// wait), but must not destroy the session. Do not block in a hook. A hook on the control thread delays heartbeats to
/// all peers: if it blocks for longer than their SessionOptions::silent_peer_after (10 s by default), they report
/// this process as lost. It also delays new connections and the ends of other endpoints. A hook on a completion thread
/// delays the completions of all endpoints on that thread. Call connect(), and whatever else waits for a peer, on a
/// thread of your own.
///
/// Exceptions. Hooks should not throw. One that does is logged, and ends what it was called for with kHookFailed:
/// init_session the start() or connect(); lazy_config_hca and post_connecting the connection, whose peer is refused;
/// the hooks after them their endpoint. After on_disconnected, on_ended, on_receives_low and on_connect_failed nothing
/// is left to end. Everything else goes on, and the hooks that follow are called as ever.
class RDMACOMM_API SessionHooks {
 public:
  virtual ~SessionHooks() = default;

  /// Once for each session, when its device is open. An error ends start() or connect() with it.
  [[nodiscard]] virtual Status init_session(const RDMADevice& device) {
    (void)device;
    return {};
  }

  /// Once for each endpoint, when the peer is known and before there is any queue pair: change `hca` to what this
  /// endpoint shall be. An error refuses the peer, which is told the reason.
  [[nodiscard]] virtual Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) {
    (void)hca;
    (void)peer;
    return {};
  }

  /// The queue pairs are in RTS, and the peer waits at the barrier. Post receives here. Do not start requests that need
  /// the peer to be ready. Before the barrier the peer stores at most 1 MiB of EndPoint::send_message(). An error
  /// refuses the peer. on_ended follows in every case.
  [[nodiscard]] virtual Status post_connecting(const EndPoint& endpoint) {
    (void)endpoint;
    return {};
  }

  /// Both sides have posted: anything goes. Except in ThreadMode::kApplication, connect() and accept() may return
  /// before it has been called.
  virtual void on_established(const EndPoint& endpoint) { (void)endpoint; }

  /// One request is complete, or has failed. `completion.id` is what it was posted with, `completion.channel` where. By
  /// default it calls one of the seven that follow. Not in ThreadMode::kApplication, the default: there the application
  /// takes the completions, by EndPoint::poll() and wait().
  virtual void on_completion(const EndPoint& endpoint, const Completion& completion);
  virtual void on_send_done(const EndPoint&, const Completion&) {}
  virtual void on_recv_done(const EndPoint&, const Completion&) {}
  virtual void on_write_done(const EndPoint&, const Completion&) {}  ///< WRITE and WRITE_WITH_IMM, on the writing side
  virtual void on_read_done(const EndPoint&, const Completion&) {}
  virtual void on_atomic_done(const EndPoint&, const Completion&) {}
  virtual void on_recv_write_imm_done(const EndPoint&, const Completion&) {
  }  ///< a peer's WRITE_WITH_IMM took a receive
  /// A request of any kind failed; after the first one that is not kFlushed the channel is of no more use. At each end,
  /// also one in order, the requests that are still outstanding fail with kFlushed: the receives, for example.
  virtual void on_failed(const EndPoint&, const Completion&) {}

  /// The endpoint, which was established, has ended; on_ended follows. `why` is ok if the peer has closed it in order,
  /// and after stop() or close() on this side. Otherwise it says what happened (kPeerLost, ...).
  virtual void on_disconnected(const EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Exactly once for each endpoint that post_connecting was called for, also if that has failed, and the last hook
  /// that names it: here goes what post_connecting has made for the endpoint. `why` is what on_disconnected got; or why
  /// it was not established. Nothing is outstanding on the endpoint any more, except in ThreadMode::kApplication after
  /// it was established: there the application's own close() sees to that.
  virtual void on_ended(const EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Fewer receives of a pool than its low_water are posted: the application holds too many back, or the peers are too
  /// many for it; soon their messages will wait. Called once each time, see ReceivePool::times_low().
  virtual void on_receives_low(const ReceivePool& pool) { (void)pool; }

  /// Server: a connection did not become an endpoint. It sent what is no handshake, or nothing in time, or it left, or
  /// it was refused.
  /// Returns  whether the application has dealt with it. If not, the session logs a refusal as a warning, and all else
  ///          at level 1. There is at most one such warning in 10 s; it says how many other refusals there were
  virtual bool on_connect_failed(const std::string& peer, const Error& why) {
    (void)peer;
    (void)why;
    return false;
  }
};

/// The hooks of a session as functions, by name: `{.lazy_config_hca = ..., .on_completion = ...}`. What is empty does
/// nothing. For what each is, see SessionHooks. Only the general one of the completion hooks is here. If it is given,
/// an endpoint in ThreadMode::kApplication is refused with kInvalidArgument, because no thread would call it.
struct RDMACOMM_API SessionFunctions {
  std::function<Status(const RDMADevice& device)> init_session{};
  std::function<Status(HcaConfig& hca, const PeerInfo& peer)> lazy_config_hca{};
  std::function<Status(const EndPoint& endpoint)> post_connecting{};
  std::function<void(const EndPoint& endpoint)> on_established{};
  std::function<void(const EndPoint& endpoint, const Completion& completion)> on_completion{};
  std::function<void(const EndPoint& endpoint, const Status& why)> on_disconnected{};
  std::function<void(const EndPoint& endpoint, const Status& why)> on_ended{};
  std::function<void(const ReceivePool& pool)> on_receives_low{};
  std::function<bool(const std::string& peer, const Error& why)> on_connect_failed{};
};

/// What ServerSession and ClientSession have in common: a device, the endpoints on it, and one control thread that
/// watches their connections. So the death of a peer is noticed, whatever its queue pairs do. Movable, not copyable:
/// one that was moved from can only be assigned to and destroyed; any other call ends the program. The destructor calls
/// stop(). Endpoints may outlive the session, ended.
///
/// Threads  all functions from any; moving and destroying while nobody else uses it, and not by a hook
class RDMACOMM_API RDMASession {
 public:
  /// Ends everything: refuses new connections, ends connect() and all waits with kStopped, stops the endpoints, and
  /// waits until the last hook has returned and all threads of the session have ended. Called by a hook it does not
  /// wait. A stopped session stays so. Calling it again is harmless.
  void stop() const;
  /// Whether stop() was called.
  [[nodiscard]] bool stopped() const;

  /// The endpoints that are established and have not ended.
  [[nodiscard]] std::vector<EndPoint> endpoints() const;
  /// The device; empty before start() or the first connect().
  [[nodiscard]] RDMADevice device() const;
  [[nodiscard]] const SessionOptions& options() const;

 private:
  friend class ServerSession;
  friend class ClientSession;
  friend class SessionCore;  // of another session, with SessionOptions::queues_of
  RDMASession(SessionOptions options, std::shared_ptr<SessionHooks> hooks, bool is_server);
  RDMASession(SessionOptions options, SessionFunctions functions, bool is_server);
  RDMASession(RDMASession&& other) noexcept;
  RDMASession& operator=(RDMASession&& other) noexcept;
  ~RDMASession();
  RDMACOMM_LOCAL [[nodiscard]] SessionCore& core() const;

  std::unique_ptr<SessionCore> core_;
};

/// The side that listens. See RDMASession for threads, SessionHooks for what the application does when.
///
/// A connection that sends nothing, garbage, or half a handshake costs one of SessionOptions::handshake_slots until its
/// deadline; others are served meanwhile. However many of them come from one address, clients of other addresses get
/// in; a client for which no place is left is told kServerBusy.
class RDMACOMM_API ServerSession final : public RDMASession {
 public:
  /// hooks  must not own the session; nullptr: none
  explicit ServerSession(SessionOptions options = {}, std::shared_ptr<SessionHooks> hooks = nullptr)
      : RDMASession(std::move(options), std::move(hooks), true) {}
  ServerSession(SessionOptions options, SessionFunctions functions)
      : RDMASession(std::move(options), std::move(functions), true) {}

  /// Opens the device (if options().device leaves it open: the one that has options().address), listens, and returns;
  /// peers are accepted from then on. Once.
  /// Returns  kInvalidArgument: SessionOptions::validate(); kWrongState: started already; kStopped;
  ///          std::errc::address_in_use: another program listens there; or as open_device(), init_session() and
  ///          TCPListener::listen. Looking up the name of a host takes at most tcp.connect_timeout in all
  [[nodiscard]] Status start() const;
  /// The port that peers are accepted at; 0 before start().
  [[nodiscard]] std::uint16_t port() const;

  /// Waits for the next endpoint that has been established and not been handed out: for applications that drive
  /// themselves. One that the peer has left meanwhile is handed out too (what it did can still be polled), if
  /// it is in ThreadMode::kApplication; at most kMaxEndedUnclaimed of those are kept.
  /// Returns  kTimeout; kStopped
  [[nodiscard]] Result<EndPoint> accept(Deadline deadline) const;
  static constexpr std::size_t kMaxEndedUnclaimed = 16;

  /// Ends the handshake of a client that is not established yet, which is told `why`; kServerBusy lets it try again.
  /// Returns at once: the hooks of its end follow. No effect if there is no such handshake any more. Also from hooks.
  ///
  /// peer_address  PeerInfo::address
  void end_handshake(const std::string& peer_address, const Error& why) const;
};

/// The side that connects. See RDMASession for threads, SessionHooks for what the application does when.
class RDMACOMM_API ClientSession final : public RDMASession {
 public:
  /// hooks  must not own the session; nullptr: none
  explicit ClientSession(SessionOptions options = {}, std::shared_ptr<SessionHooks> hooks = nullptr)
      : RDMASession(std::move(options), std::move(hooks), false) {}
  ClientSession(SessionOptions options, SessionFunctions functions)
      : RDMASession(std::move(options), std::move(functions), false) {}

  /// Connects to options().address. May be called often, also by several threads: each call makes an endpoint.
  /// The first call opens the device, if options().device leaves it open the one on the route to the server: all
  /// endpoints of a session are on one device.
  /// Returns  kInvalidArgument: SessionOptions::validate(); std::errc::connection_refused: nobody listens there;
  ///          kTimeout: no answer; std::errc::resource_unavailable_try_again: no name server answered; kPeerRefused:
  ///          the server said no (the context has its reason); kServerBusy: too many clients waited for it at once,
  ///          until connect_timeout; kHookFailed; kStopped; or as open_device(), the hooks, and what the device said.
  ///          kInvalidArgument also: rdma_cm goes by another device, port or GID than those asked for
  [[nodiscard]] Result<EndPoint> connect() const;
  /// The same with another server.
  [[nodiscard]] Result<EndPoint> connect(const HostPort& server) const;
};

/// How the route to open_device() is found. A value.
struct RDMACOMM_API OpenFor {
  HostPort address{};      ///< client: the server; server: where it listens, an empty host being everywhere
  bool is_server = false;  ///< whose address that is
  ConnectorKind connector = ConnectorKind::kAuto;
  /// Until when the host's name is looked up (by a client, again, while it cannot be looked up for now); empty: as long
  /// as the default of TcpOptions::connect_timeout.
  std::optional<Deadline> find_by = {};
  int cancel_fd = -1;  ///< becomes readable to give that up; -1: none
};

/// Opens a device as sessions without a shared_device do: the one on the route to a client's server, or the one that
/// has the address at which a server listens, as far as `options` leave it open. For programs that need the device
/// before there is a session, to make buffers on it.
///
/// Returns  kInvalidArgument: a host that has no address; std::errc::resource_unavailable_try_again: no name server
///          answered in time; or as RDMADevice::open; for a client also std::errc::connection_refused, kTimeout: as
///          ClientSession::connect()
[[nodiscard]] RDMACOMM_API Result<RDMADevice> open_device(const DeviceOptions& options, const OpenFor& purpose);

}  // namespace rdmacomm
