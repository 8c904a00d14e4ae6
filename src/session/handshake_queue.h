// handshake_queue.h - which of the connections that arrive may be in the handshake. Private to the session layer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "connector/source_network.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm {

/// Shares the places in the handshake among the sources of connections, so that no source can keep another one out.
///
/// - A connection starts if a place is free and its source has fewer than `per_source`. The source with the fewest
/// starts
///   first; connections of one source start in the order of their arrival.
/// - If all places are taken, the connection waits. Once a handshake has lasted for `patience`, it may have to give its
///   place to a waiting connection whose source has fewer. The source with the most places loses one, chosen at random.
/// - If more than `waiting` connections wait, the source with the most of them loses one, chosen at random. If each of
/// them
///   is of another source, it is full(): the caller accepts no more for now.
///
/// sshd (MaxStartups) drops the connection that arrives. Here the longest-lasting handshakes of the largest source are
/// dropped instead, because a real client takes milliseconds: it is never the one that has lasted.
///
/// A pure policy: it knows numbers, not sockets, and time and random numbers are passed in. Threads: one at a time.
class HandshakeQueue {
 public:
  using Id = std::uint64_t;
  using Clock = Deadline::Clock;
  struct Bounds {
    int slots = 64;                            ///< handshakes at a time
    int per_source = 32;                       ///< of them from one source; more than `slots` is the same as `slots`
    int waiting = 256;                         ///< connections that wait for a place
    std::chrono::milliseconds patience{1000};  ///< how long a handshake keeps its place for certain
  };
  /// Returns a number below its argument, which is at least 1; all of them equally often.
  using Random = std::function<std::size_t(std::size_t)>;

  HandshakeQueue(const Bounds& bounds, Random random);

  /// What to do, in this order. An id to drop is either waiting, and forgotten with this, or in the handshake: then
  /// it keeps its place until finished().
  struct Decision {
    std::vector<Id> start = {};
    std::vector<Id> drop = {};
  };

  /// A connection has arrived. Ask decide() next. If it throws for lack of memory, the connection has not arrived.
  void arrive(Id id, const SourceNetwork& source);
  /// A handshake that was started has ended. No effect on other ids.
  void finished(Id id);
  /// Adds to `decision` what is to be done now. It throws if there is no memory. What it has added before that holds
  /// all the same; the next call decides the rest.
  void decide(Clock::time_point now, Decision& decision);
  /// When decide() may have another answer although nothing arrives or finishes.
  [[nodiscard]] Deadline next_look() const;
  /// Whether as many wait as may, and each source has only one: then connections had better wait with the system.
  [[nodiscard]] bool full() const;
  /// The waiting connection to give up first if the process has run out of descriptors; it is forgotten with this.
  [[nodiscard]] std::optional<Id> shed();

 private:
  struct Waiting {
    Id id;
    SourceNetwork source;
  };
  struct Started {
    Id id;
    SourceNetwork source;
    Clock::time_point since;
    bool dropped = false;
  };

  [[nodiscard]] int places_of(const SourceNetwork& source) const;
  [[nodiscard]] int kept_places_of(const SourceNetwork& source) const;
  [[nodiscard]] std::list<Waiting>::const_iterator next_waiting() const;
  [[nodiscard]] std::optional<SourceNetwork> next_in_need() const;
  [[nodiscard]] std::optional<Id> late_one(const SourceNetwork& for_source, Clock::time_point now);

  const Bounds bounds_;
  const Random random_;
  std::list<Waiting> waiting_;  // in the order of their arrival
  std::list<Started> started_;
  std::map<SourceNetwork, int> waiting_of_;  // of those that have any
  std::map<SourceNetwork, int> places_of_;
  std::map<SourceNetwork, int> dropped_of_;  // of places_of_: handshakes that were told to end and have not
};

}  // namespace rdmacomm
