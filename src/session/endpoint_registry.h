// endpoint_registry.h - the endpoints of a session, and how many there may be. Private to the session layer.
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

/// From a place for an endpoint that is to be set up, to its end. No hook is called, and nothing is waited for or destroyed, with its
/// lock held. Threads: all functions from any.
class EndPointRegistry {
 public:
  using Id = ControlLoop::Id;

  /// A place among max_endpoints that a handshake has, until its endpoint has it. The caller's; the registry's lock guards it.
  struct Admission {
    SourceNetwork source = {};
    bool held = false;
  };

  /// An endpoint, and the number by which ControlLoop knows it.
  struct Entry {
    std::shared_ptr<EndPointCore> endpoint;
    SourceNetwork source = {};  ///< a server's: from where it came
    bool watched = false;       ///< its beginning was told, so its end may be
  };

  /// first_id  of the numbers that it gives
  EndPointRegistry(const SessionOptions& options, bool is_server, ControlLoop& loop, Id first_id) noexcept
      : options_(options), is_server_(is_server), loop_(loop), next_id_(first_id) {}

  // Those that are being set up -----------------------------------------------------------------------------------

  /// Takes a place. Returns  kServerBusy: no place now, handshakes have some; kPeerRefused: endpoints have them all
  [[nodiscard]] Status admit(Admission& admission);
  /// It will be no endpoint. Without effect if it has no place, or has become one.
  void give_up(Admission& admission);
  /// Its endpoint has the place from now on. Returns  its number; kStopped
  [[nodiscard]] Result<Id> enter(const std::shared_ptr<EndPointCore>& endpoint, Admission& admission);
  /// Has the loop watch the endpoint's connection, unless it was forgotten in the meantime. Returns  as ControlLoop::watch
  [[nodiscard]] Status watch(Id id, const EndPointCore& endpoint);

  // Those that are there ------------------------------------------------------------------------------------------

  [[nodiscard]] std::map<Id, Entry> all() const;
  /// nullptr: it was forgotten.
  [[nodiscard]] std::shared_ptr<EndPointCore> find(Id id) const;
  [[nodiscard]] std::optional<Id> id_of(const EndPointCore& endpoint) const;
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> alive() const;
  /// Those for which `concerned` returns true. It is called with the lock held. No other endpoint is held by this, so none is
  /// destroyed where the caller must not do that.
  template <typename Concerned>
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> all_that(const Concerned& concerned) const {
    std::vector<std::shared_ptr<EndPointCore>> found;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : endpoints_) {
      if (concerned(*entry.endpoint)) found.push_back(entry.endpoint);
    }
    return found;
  }
  /// It has ended: its place is free.
  void forget(Id id) noexcept;

  // Those that the application has not accepted -------------------------------------------------------------------

  void offer(const std::shared_ptr<EndPointCore>& endpoint);
  /// Returns  as ServerSession::accept
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> accept(Deadline deadline, std::uint16_t port);

  /// None is entered or accepted from now on.
  void close();
  /// Drops those that nobody has accepted. After close().
  void drop_unclaimed();

 private:
  /// What endpoints, and handshakes that may become some, have of a bound.
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
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool closed_ = false;
  Id next_id_;
  int admitted_ = 0;                           // on their way to become endpoints
  std::map<SourceNetwork, Places> places_of_;  // a server's, by their source
  std::map<Id, Entry> endpoints_;
  std::deque<std::shared_ptr<EndPointCore>> unclaimed_;
};

}  // namespace rdmacomm
