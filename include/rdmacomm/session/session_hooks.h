// session_hooks.h - where an application has its say in a session.
// Layer: session. Uses: base, channel, endpoint.
#pragma once

#include "rdmacomm/base/result.h"
#include "rdmacomm/channel/completion.h"
#include "rdmacomm/endpoint/endpoint.h"
#include "rdmacomm/endpoint/hca_config.h"
#include "rdmacomm/session/session_options.h"

namespace rdmacomm {

/// The hooks of a session, in the order in which they are called; all are empty by default. Applications derive from
/// ServerSession or ClientSession and override what they need.
///
/// Threads. Hooks of one endpoint never overlap, and come in the order below; but in ThreadMode::kThreadPerChannel, and for
/// channels on devices of their own, the completion hooks of different channels may, between on_established and
/// on_disconnected. Hooks of different endpoints may run at the same time on different threads:
///   init_session                   the thread that calls start() or the first connect()
///   lazy_config_hca,               client: the thread that calls connect(); server: a thread of the session for each
///   post_connecting                connection in the handshake
///   on_established,                ThreadMode::kApplication: on_established where post_connecting was, on_disconnected
///   on_disconnected                on the session's control thread; else on the thread that calls the completion hooks
///   on_ended                       as on_disconnected; where post_connecting was, if no on_established was called
///   on_send_done .. on_failed      the channel's thread, the endpoint's, or the completion queue's; not in
///                                  ThreadMode::kApplication
///   on_receives_low                the session's control thread
///   on_connect_failed              server: as lazy_config_hca
/// A hook may call anything of the library, stop() of its session and close() of any EndPoint too (they then do not wait), but
/// must not destroy the session. A hook that blocks holds up what its thread does: the handshake of its peer, or the completions
/// of its endpoints. On the control thread that is much: signs of life to all peers, who take this process for lost when
/// they miss them for as long as they are told to (10 s), newcomers, and the ends of other endpoints. So what waits for a
/// peer, as connect() does, belongs on a thread of the application's there.
///
/// Exceptions. Hooks should not throw. One that does is logged, and ends what it was called for with kHookFailed: init_session
/// the start() or connect(); lazy_config_hca and post_connecting the connection, whose peer is refused; the hooks after them
/// their endpoint. After on_disconnected, on_ended, on_receives_low and on_connect_failed nothing is left to end. Everything
/// else goes on, and the hooks that follow are called as ever.
class SessionHooks {
 public:
  virtual ~SessionHooks() = default;

  /// Once for each session, when the device is open. An error ends start() or connect() with it.
  [[nodiscard]] virtual Status init_session() { return {}; }

  /// Once for each endpoint, when the peer is known and before there is any queue pair: change `hca` to what this
  /// endpoint shall be. An error refuses the peer, which is told the reason.
  [[nodiscard]] virtual Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) {
    (void)hca;
    (void)peer;
    return {};
  }

  /// The queue pairs are in RTS, and the peer waits at the barrier: post receives here, and nothing that the peer's
  /// memory or receives must be ready for. Of EndPoint::send_message(), less than 1 MiB: the peer keeps no more before the
  /// barrier. An error refuses the peer. on_ended follows in every case.
  [[nodiscard]] virtual Status post_connecting(EndPoint& endpoint) {
    (void)endpoint;
    return {};
  }

  /// Both sides have posted: anything goes.
  virtual void on_established(EndPoint& endpoint) { (void)endpoint; }

  // One request is complete. `completion.id` is what it was posted with, `completion.channel` where.
  virtual void on_send_done(EndPoint&, const Completion&) {}
  virtual void on_recv_done(EndPoint&, const Completion&) {}
  virtual void on_write_done(EndPoint&, const Completion&) {}  ///< WRITE and WRITE_WITH_IMM, on the writing side
  virtual void on_read_done(EndPoint&, const Completion&) {}
  virtual void on_atomic_done(EndPoint&, const Completion&) {}
  virtual void on_recv_write_imm_done(EndPoint&, const Completion&) {}  ///< a peer's WRITE_WITH_IMM took a receive
  /// A request of any kind failed; after the first one that is not kFlushed the channel is of no more use.
  virtual void on_failed(EndPoint&, const Completion&) {}

  /// The endpoint, which was established, has ended; on_ended follows. `why` is ok after a goodbye of the peer's and after stop() or
  /// close() on this side, else it says what happened (kPeerLost, ...).
  virtual void on_disconnected(EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Exactly once for each endpoint that post_connecting was called for, also if that has failed, and the last hook that names
  /// it: here goes what post_connecting has made for the endpoint. `why` is what on_disconnected got; or why it was not
  /// established. Nothing is outstanding on the endpoint any more, except in ThreadMode::kApplication after it was
  /// established: there the application's own close() sees to that.
  virtual void on_ended(EndPoint& endpoint, const Status& why) {
    (void)endpoint;
    (void)why;
  }

  /// Fewer receives of a pool than its low_water are posted: the application holds too many back, or the peers are too
  /// many for it; soon their messages will wait. Called once each time, see ReceivePool::note_low().
  virtual void on_receives_low(ReceivePool& pool) { (void)pool; }

  /// Server: a connection did not become an endpoint. It sent what is no handshake, or nothing in time, or it left, or it was
  /// refused. By default the session logs a refusal as a warning, and all else at level 1. There is at most one such warning in
  /// 10 s; it says how many other refusals there were.
  virtual void on_connect_failed(const std::string& peer, const Error& why) {
    (void)peer;
    (void)why;
  }
};

}  // namespace rdmacomm
