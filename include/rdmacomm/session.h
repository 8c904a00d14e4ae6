// session.h - servers that accept peers, clients that connect to them, and the hooks of the application.
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

/// The options of a session. A value.
struct RDMACOMM_API SessionOptions {
  // With braces, g++ 12 warns at -O3 in programs that use it: "may be used uninitialized".
  DeviceOptions device = DeviceOptions();  ///< which device to open, if `shared_device` is empty
  /// A device that is open already; empty: the session opens one. Several sessions and the application may share it.
  /// The application must then take the device's events only with RDMADevice::take_events().
  RDMADevice shared_device = {};
  /// Another session, started, on the same shared_device. Endpoints of this session in
  /// ThreadMode::kThreadPerCompletionQueue use that session's completion queues and threads: with the same
  /// shared_queue_key, endpoints of both sessions share a queue. Hooks stay separate. If that session stops, these
  /// endpoints end. It may be moved, and must be destroyed after this one. nullptr: this session has its own queues.
  const RDMASession* queues_of = nullptr;
  ConnectorKind connector = ConnectorKind::kAuto;  ///< how peers connect; the same at both ends
  TcpOptions tcp = {};                             ///< its timeouts also hold for rdma_cm
  /// An established peer that sends no heartbeat for this time counts as lost: its process is stopped, or hangs as a
  /// whole, or its host is gone. Sessions send one heartbeat each second. 3 s..1 h; 0: never lost, so that peers can be
  /// stopped in a debugger.
  std::chrono::milliseconds silent_peer_after{10'000};
  /// Servers: where to listen; an empty host means every address, port 0 lets the system choose. Clients: the server.
  HostPort address = {};
  /// Servers: maximum number of connections in the handshake at a time, 1..1024; further connections wait. Each uses a
  /// thread, for at most a few times tcp.handshake_timeout.
  int handshake_slots = 64;
  /// Servers: maximum number of connections in the handshake from one source, 1..1024. A source is one IPv4 address, or
  /// one IPv6 network of 64 bits. So a host that connects and sends nothing cannot keep clients of other addresses out.
  int handshakes_per_source = 32;
  /// Servers: a handshake keeps its slot at least for this time, 1 ms..1 h. After that the session may end it, if all
  /// slots are taken and a waiting client's source has fewer slots. The session then ends a random handshake of the
  /// source with the most slots.
  std::chrono::milliseconds handshake_patience{1000};
  /// Servers: maximum number of connections that wait for a slot, 1..4096. Each uses a descriptor. Beyond this number
  /// the session drops a random waiting connection of the source with the most waiting connections.
  int waiting_handshakes = 256;
  /// Maximum number of endpoints at a time, 1..65536; further clients are refused.
  int max_endpoints = 1024;
  /// Servers: maximum number of endpoints of one source (as for handshakes_per_source) at a time, 1..65536; further
  /// clients are refused. Values above max_endpoints mean max_endpoints: one host can then take all of them.
  int max_endpoints_per_source = 512;

  /// Checks the ranges above, also those of `device` and `tcp`. start() and connect() call it.
  ///
  /// Returns  kInvalidArgument: a value outside its range; the context names it
  [[nodiscard]] Status validate() const;
};

/// The information about a peer that is known before its queue pairs exist. A value.
struct RDMACOMM_API PeerInfo {
  std::string address = {};    ///< "10.0.0.2:41234"
  std::string node = {};       ///< its host name
  std::uint32_t pid = 0;       ///< its process
  std::uint64_t instance = 0;  ///< random: distinguishes two sessions, also of one process
  /// The private data that the client has in its HcaConfig. The client sends first, so the server can adapt its own
  /// configuration. Empty at the client; see EndPoint::peer_private_data().
  std::vector<std::byte> private_data = {};
};

/// The hooks that a session calls in the application, in the order in which they are called. Applications derive a
/// class, override the hooks that they need, and pass an object of it to a session, which shares its ownership. Several
/// sessions may use the same object. SessionFunctions is the same as a struct of functions.
///
/// Threads. Hooks of one endpoint never overlap and are called in the order below. Exception: between on_established
/// and on_disconnected, completion hooks of different channels may overlap in ThreadMode::kThreadPerChannel, and for
/// channels on devices of their own. Hooks of different endpoints may run at the same time on different threads:
///
/// - init_session: the thread that calls start() or the first connect()
/// - lazy_config_hca, post_connecting: at a client the thread that calls connect(); at a server a thread of the session
///   for each connection in the handshake
/// - on_established: in ThreadMode::kApplication the thread of post_connecting; else the thread that calls the
///   completion hooks
/// - on_disconnected: in ThreadMode::kApplication the session's control thread; else the thread that calls the
///   completion hooks
/// - on_ended: as on_disconnected; the thread of post_connecting, if on_established was not called
/// - on_completion: the channel's thread, the endpoint's, or the completion queue's; not in ThreadMode::kApplication
/// - on_receives_low: the session's control thread
/// - on_connect_failed: at a server the same as lazy_config_hca
///
/// Rules. Hooks may call all functions of the library, except that they must not destroy the session. stop() of their
/// session and close() of any EndPoint do not wait in a hook. Do not block in a hook. A hook on the control thread
/// delays heartbeats to all peers: if it blocks for longer than their SessionOptions::silent_peer_after (10 s by
/// default), they report this process as lost. It also delays new connections and the ends of other endpoints. A hook
/// on a completion thread delays the completions of all endpoints on that thread. Call connect(), and all other
/// functions that wait for a peer, on a thread of your own.
///
/// Exceptions. Hooks should not throw. If a hook throws, the exception is logged, and the operation that called the
/// hook ends with kHookFailed. For init_session that is start() or connect(). For lazy_config_hca and post_connecting
/// it is the connection, and the peer is refused. For the later hooks it is their endpoint. Exceptions in
/// on_disconnected, on_ended, on_receives_low and on_connect_failed end nothing. Everything else continues, and the
/// later hooks are called as usual.
class RDMACOMM_API SessionHooks {
 public:
  virtual ~SessionHooks() = default;

  /// Called once for each session, when its device is open. An error ends start() or connect() with that error.
  [[nodiscard]] virtual Status init_session(const RDMADevice& device) {
    (void)device;
    return {};
  }

  /// Called once for each endpoint, when the peer is known and before any queue pair exists. Set up `hca` for this
  /// endpoint. An error refuses the peer, which receives the reason.
  [[nodiscard]] virtual Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) {
    (void)hca;
    (void)peer;
    return {};
  }

  /// Called when the queue pairs are in RTS and the peer waits at the barrier. Post receives here. Do not start
  /// requests that need the peer to be ready. Before the barrier the peer stores at most 1 MiB of
  /// EndPoint::send_message(). An error refuses the peer. on_ended follows in every case.
  [[nodiscard]] virtual Status post_connecting(const EndPoint& endpoint) {
    (void)endpoint;
    return {};
  }

  /// Called when both ends have posted their receives: all operations are allowed. Except in ThreadMode::kApplication,
  /// connect() and accept() may return before this call.
  virtual void on_established(const EndPoint& endpoint) { (void)endpoint; }

  /// One request is complete, or has failed. `completion.id` and `completion.channel` name the request. By default it
  /// calls one of the seven hooks that follow. Not in ThreadMode::kApplication, the default: there the application
  /// takes the completions with EndPoint::poll() and wait().
  virtual void on_completion(const EndPoint& endpoint, const Completion& completion);
  virtual void on_send_done(const EndPoint&, const Completion&) {}    ///< a local SEND is complete
  virtual void on_recv_done(const EndPoint&, const Completion&) {}    ///< a SEND of the peer has filled a receive
  virtual void on_write_done(const EndPoint&, const Completion&) {}   ///< a local WRITE or WRITE_WITH_IMM is complete
  virtual void on_read_done(const EndPoint&, const Completion&) {}    ///< a local READ has filled its slices
  virtual void on_atomic_done(const EndPoint&, const Completion&) {}  ///< a local atomic has stored the old value
  virtual void on_recv_write_imm_done(const EndPoint&, const Completion&) {
  }  ///< a WRITE_WITH_IMM of the peer took a receive
  /// A request of any kind failed. After the first failure that is not kFlushed the channel cannot be used any more. At
  /// every end, also an orderly one, the requests that are still outstanding fail with kFlushed, for example the
  /// receives.
  virtual void on_failed(const EndPoint&, const Completion&) {}

  /// An established endpoint has ended; on_ended follows. `why` is ok if the peer has closed it in order, and after a
  /// local stop() or close(). Otherwise it is the reason (kPeerLost, ...).
  virtual void on_disconnected(const EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Called exactly once for each endpoint for which post_connecting was called, also if that failed. It is the last
  /// hook for the endpoint: release here the resources that post_connecting has created. `why` is that of
  /// on_disconnected, or the reason why the endpoint was not established. Nothing is outstanding on the endpoint any
  /// more. Exception: in ThreadMode::kApplication, after it was established, the application must call close() for
  /// that.
  virtual void on_ended(const EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Fewer receives of a pool than its low_water are posted: the application holds too many back, or the peers send too
  /// much for the pool. If the pool gets empty, their messages wait. Called once each time, see
  /// ReceivePool::times_low().
  virtual void on_receives_low(const ReceivePool& pool) { (void)pool; }

  /// Called by servers when a connection did not become an endpoint. It sent other data than a handshake, or nothing in
  /// time, or it was closed, or it was refused.
  ///
  /// peer     the address of the connection
  /// why      the reason
  /// Returns  whether the application has handled it. If not, the session logs a refusal as a warning, and all else at
  ///          level 1. It logs at most one such warning in 10 s, which says how many other refusals occurred
  virtual bool on_connect_failed(const std::string& peer, const Error& why) {
    (void)peer;
    (void)why;
    return false;
  }
};

/// The hooks of a session as functions, by name: `{.lazy_config_hca = ..., .on_completion = ...}`. An empty function
/// does nothing. SessionHooks describes them. Only the general completion hook is here. If it is given, an endpoint in
/// ThreadMode::kApplication is refused with kInvalidArgument, because no thread would call it.
struct RDMACOMM_API SessionFunctions {
  /// As SessionHooks::init_session(); empty: ok.
  std::function<Status(const RDMADevice& device)> init_session{};
  /// As SessionHooks::lazy_config_hca(); empty: the default configuration.
  std::function<Status(HcaConfig& hca, const PeerInfo& peer)> lazy_config_hca{};
  /// As SessionHooks::post_connecting(); empty: ok.
  std::function<Status(const EndPoint& endpoint)> post_connecting{};
  /// As SessionHooks::on_established().
  std::function<void(const EndPoint& endpoint)> on_established{};
  /// As SessionHooks::on_completion(), for all operations and for failures; empty: completions are dropped.
  std::function<void(const EndPoint& endpoint, const Completion& completion)> on_completion{};
  /// As SessionHooks::on_disconnected().
  std::function<void(const EndPoint& endpoint, const Status& why)> on_disconnected{};
  /// As SessionHooks::on_ended().
  std::function<void(const EndPoint& endpoint, const Status& why)> on_ended{};
  /// As SessionHooks::on_receives_low().
  std::function<void(const ReceivePool& pool)> on_receives_low{};
  /// As SessionHooks::on_connect_failed(); empty: false, so the session logs the failure.
  std::function<bool(const std::string& peer, const Error& why)> on_connect_failed{};
};

/// The common part of ServerSession and ClientSession: a device, the endpoints on it, and one control thread that
/// watches their connections. So the death of a peer is noticed, also if its queue pairs show no error. Movable, not
/// copyable. After a move only assignment to it and its destructor are allowed; any other call ends the program. The
/// destructor calls stop(). Endpoints may outlive the session; they have then ended.
///
/// Threads  any thread; move and destroy it only while no other thread uses it, and not in a hook
class RDMACOMM_API RDMASession {
 public:
  /// Ends everything: refuses new connections, ends connect() and all waits with kStopped, stops the endpoints, and
  /// waits until the last hook has returned and all threads of the session have ended. In a hook it does not wait. A
  /// stopped session cannot be started again. Calling it again is harmless.
  void stop() const;
  /// Whether stop() was called.
  [[nodiscard]] bool stopped() const;

  /// The endpoints that are established and have not ended.
  [[nodiscard]] std::vector<EndPoint> endpoints() const;
  /// The device; empty before start() or the first connect().
  [[nodiscard]] RDMADevice device() const;
  /// The options that it was created with. The reference is valid while the session lives.
  [[nodiscard]] const SessionOptions& options() const;

 private:
  friend class ServerSession;
  friend class ClientSession;
  friend class SessionCore;  // for SessionOptions::queues_of, which names another session
  RDMASession(SessionOptions options, std::shared_ptr<SessionHooks> hooks, bool is_server);
  RDMASession(SessionOptions options, SessionFunctions functions, bool is_server);
  RDMASession(RDMASession&& other) noexcept;
  RDMASession& operator=(RDMASession&& other) noexcept;
  ~RDMASession();
  RDMACOMM_LOCAL [[nodiscard]] SessionCore& core() const;

  std::unique_ptr<SessionCore> core_;
};

/// The session that listens. Its threads: see RDMASession. Its hooks: see SessionHooks.
///
/// A connection that sends nothing, garbage, or half a handshake uses one of SessionOptions::handshake_slots until its
/// deadline; others are served meanwhile. Clients of other addresses get in, however many such connections come from
/// one address. A client for which no slot is left receives kServerBusy.
class RDMACOMM_API ServerSession final : public RDMASession {
 public:
  /// Makes a session that is not started.
  ///
  /// options  start() checks them
  /// hooks    must not own the session; nullptr: no hooks
  explicit ServerSession(SessionOptions options = {}, std::shared_ptr<SessionHooks> hooks = nullptr)
      : RDMASession(std::move(options), std::move(hooks), true) {}
  /// The same with functions as hooks, which the session keeps. They must not own the session.
  ServerSession(SessionOptions options, SessionFunctions functions)
      : RDMASession(std::move(options), std::move(functions), true) {}

  /// Opens the device, listens, and returns; from then on peers are accepted. If options().device does not name a
  /// device, the device that has options().address is opened. May be called once.
  ///
  /// Returns  kInvalidArgument: SessionOptions::validate(); kWrongState: started already; kStopped;
  ///          std::errc::address_in_use: another program listens there; or as open_device(), init_session() and
  ///          TCPListener::listen. Looking up the name of a host takes at most tcp.connect_timeout in all
  [[nodiscard]] Status start() const;
  /// The port at which peers are accepted; 0 before start().
  [[nodiscard]] std::uint16_t port() const;

  /// Waits for the next endpoint that is established and was not returned before. For applications without hooks. An
  /// endpoint in ThreadMode::kApplication is also returned if its peer has disconnected meanwhile, because its
  /// completions can still be polled; at most kMaxEndedUnclaimed of these are kept.
  ///
  /// Returns  kTimeout; kStopped; kWrongState: before start()
  [[nodiscard]] Result<EndPoint> accept(Deadline deadline) const;
  /// Maximum number of ended endpoints that wait for accept().
  static constexpr std::size_t kMaxEndedUnclaimed = 16;

  /// Ends the handshake of a client that is not established yet. The client receives `why`; after kServerBusy it tries
  /// again. Returns at once; the hooks for its end follow. No effect if no such handshake exists any more. Hooks may
  /// call it.
  ///
  /// peer_address  PeerInfo::address
  /// why           its code and its text are sent to the client
  void end_handshake(const std::string& peer_address, const Error& why) const;
};

/// The session that connects. Its threads: see RDMASession. Its hooks: see SessionHooks.
class RDMACOMM_API ClientSession final : public RDMASession {
 public:
  /// Makes a session without a device. The first connect() opens it.
  ///
  /// options  connect() checks them
  /// hooks    must not own the session; nullptr: no hooks
  explicit ClientSession(SessionOptions options = {}, std::shared_ptr<SessionHooks> hooks = nullptr)
      : RDMASession(std::move(options), std::move(hooks), false) {}
  /// The same with functions as hooks, which the session keeps. They must not own the session.
  ClientSession(SessionOptions options, SessionFunctions functions)
      : RDMASession(std::move(options), std::move(functions), false) {}

  /// Connects to options().address. May be called repeatedly, also by several threads: each call creates an endpoint.
  /// The first call opens the device. If options().device does not name a device, the device on the route to the server
  /// is opened. All endpoints of a session are on one device.
  ///
  /// Returns  kInvalidArgument: SessionOptions::validate(); std::errc::connection_refused: no process listens there;
  ///          kTimeout: no answer; std::errc::resource_unavailable_try_again: no name server answered; kPeerRefused:
  ///          the server refused (the context has its reason); kServerBusy: the server had too many clients until
  ///          connect_timeout; kHookFailed; kStopped; or as open_device(), the hooks, and the device's error.
  ///          kInvalidArgument also: rdma_cm uses another device, port or GID than options().device asks for
  [[nodiscard]] Result<EndPoint> connect() const;
  /// The same, but connects to `server`.
  [[nodiscard]] Result<EndPoint> connect(const HostPort& server) const;
};

/// The purpose of open_device(), which decides the route. A value.
struct RDMACOMM_API OpenFor {
  HostPort address{};      ///< address of the server; if is_server, an empty host means every address
  bool is_server = false;  ///< whether `address` is for a server to listen at
  /// How the peers will connect. Devices that cannot be connected in this way are not chosen, unless they are named.
  ConnectorKind connector = ConnectorKind::kAuto;
  /// Until when to look up the host's name (a client repeats the lookup while it fails temporarily). Empty: for the
  /// default of TcpOptions::connect_timeout.
  std::optional<Deadline> find_by = {};
  int cancel_fd = -1;  ///< becomes readable to cancel the lookup; -1: none
};

/// Opens a device in the same way as a session without a shared_device. A client gets the device on the route to its
/// server; a server gets the device that has the address at which it listens. `options` may restrict the choice. For
/// programs that need the device before the session exists, to create buffers on it.
///
/// Returns  kInvalidArgument: a host that has no address; std::errc::resource_unavailable_try_again: no name server
///          answered in time; or as RDMADevice::open; for a client also std::errc::connection_refused, kTimeout: as
///          ClientSession::connect()
[[nodiscard]] RDMACOMM_API Result<RDMADevice> open_device(const DeviceOptions& options, const OpenFor& purpose);

}  // namespace rdmacomm
