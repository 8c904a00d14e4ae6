// endpoint_registry.h - the endpoints of a session, and the limits of their number. Private to the session layer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "connector/source_network.h"
#include "endpoint/endpoint_core.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"
#include "session/control_loop.h"

namespace rdmacomm {

/// Keeps endpoints from the reservation of a place until their end. While its lock is held, no hook is called, and
/// nothing is waited for or destroyed.
/// Threads: any thread.
class EndPointRegistry {
 public:
  using Id = ControlLoop::Id;

  /// A place among max_endpoints. A handshake holds it until its endpoint takes it. The caller owns it; the registry's
  /// lock guards it.
  struct Admission {
    SourceNetwork source = {};
    bool held = false;
  };

  /// An endpoint, and where it came from.
  struct Entry {
    std::shared_ptr<EndPointCore> endpoint;
    SourceNetwork source = {};  ///< server: the source of its connection
    bool watched = false;       ///< whether the loop watches its connection, so that its end may be reported
  };

  /// first_id  the first number that it assigns
  EndPointRegistry(const SessionOptions& options, bool is_server, ControlLoop& loop, Id first_id) noexcept
      : options_(options), is_server_(is_server), loop_(loop), next_id_(first_id) {}

  // Endpoints that are being set up -------------------------------------------------------------------------------

  /// Takes a place. Returns  kServerBusy: no place now, but handshakes hold some; kPeerRefused: endpoints hold all
  [[nodiscard]] Status admit(Admission& admission);
  /// Gives the place back, because there will be no endpoint. No effect if it holds no place, or its endpoint has taken
  /// it.
  void give_up(Admission& admission);
  /// Adds the endpoint, which takes over the place. Returns  its number; kStopped
  [[nodiscard]] Result<Id> enter(const std::shared_ptr<EndPointCore>& endpoint, Admission& admission);
  /// Makes the loop watch the endpoint's connection, unless the endpoint was forgotten meanwhile. Returns  as
  /// ControlLoop::watch
  [[nodiscard]] Status watch(Id id, const EndPointCore& endpoint);

  // All endpoints -------------------------------------------------------------------------------------------------

  [[nodiscard]] std::map<Id, Entry> all() const;
  /// nullptr: the endpoint was forgotten.
  [[nodiscard]] std::shared_ptr<EndPointCore> find(Id id) const;
  [[nodiscard]] std::optional<Id> id_of(const EndPointCore& endpoint) const;
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> alive() const;
  /// The endpoints for which `concerned` returns true. It is called with the lock held. No reference to another
  /// endpoint is taken, so that the caller cannot destroy one by accident.
  template <typename Concerned>
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> all_that(const Concerned& concerned) const {
    std::vector<std::shared_ptr<EndPointCore>> found;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : endpoints_) {
      if (concerned(*entry.endpoint)) found.push_back(entry.endpoint);
    }
    return found;
  }
  /// The endpoint has ended: frees its place.
  void forget(Id id) noexcept;

  // Endpoints that the application has not accepted ---------------------------------------------------------------

  void offer(const std::shared_ptr<EndPointCore>& endpoint);
  /// Returns  as ServerSession::accept
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> accept(Deadline deadline, std::uint16_t port);

  /// From now on no endpoint is added or accepted.
  void close();
  /// Drops the endpoints that were not accepted. Call it after close().
  void drop_unclaimed();

 private:
  /// The number of places that endpoints, and handshakes before them, hold.
  struct Places {
    int endpoints = 0;
    int on_their_way = 0;
    [[nodiscard]] int taken() const noexcept { return endpoints + on_their_way; }
  };

  [[nodiscard]] Error none_left(const Places& places, const std::string& whose, const char* bound) const;
  void change_places_locked(const SourceNetwork& source, const Places& by);
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> prune_unclaimed_locked();

  const SessionOptions& options_;
  const bool is_server_;
  ControlLoop& loop_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool closed_ = false;
  Id next_id_;
  int admitted_ = 0;                           // places that handshakes hold
  std::map<SourceNetwork, Places> places_of_;  // server: by source
  std::map<Id, Entry> endpoints_;
  std::deque<std::shared_ptr<EndPointCore>> unclaimed_;
};

}  // namespace rdmacomm
