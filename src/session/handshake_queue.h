// handshake_queue.h - decides which arriving connections may be in the handshake. Private to the session layer.
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
///   places starts first; connections of one source start in the order of their arrival.
/// - If all places are taken, the connection waits. After `patience` a handshake may have to give its place to a
///   waiting connection whose source has fewer. The source with the most places loses one, chosen at random.
/// - If more than `waiting` connections wait, the source with the most of them loses one, chosen at random. If
///   `waiting` connections wait, and all are of different sources, full() is true: the caller accepts no more for now.
///
/// sshd (MaxStartups) drops the connection that arrives. This class drops long handshakes of the largest source
/// instead, because the handshake of a real client takes only milliseconds.
///
/// A pure policy: it knows numbers, not sockets. Time and random numbers are passed in.
/// Threads: one at a time.
class HandshakeQueue {
 public:
  using Id = std::uint64_t;
  using Clock = Deadline::Clock;
  struct Bounds {
    int slots = 64;                            ///< handshakes at a time
    int per_source = 32;                       ///< handshakes of one source; more than `slots` is the same as `slots`
    int waiting = 256;                         ///< connections that wait for a place
    std::chrono::milliseconds patience{1000};  ///< a handshake keeps its place at least for this time
  };
  /// Returns a number below its argument, which is at least 1; all numbers are equally likely.
  using Random = std::function<std::size_t(std::size_t)>;

  HandshakeQueue(const Bounds& bounds, Random random);

  /// The actions to take, in this order. An id in `drop` is either waiting, and then forgotten with this, or in the
  /// handshake: then it keeps its place until finished().
  struct Decision {
    std::vector<Id> start = {};
    std::vector<Id> drop = {};
  };

  /// A connection has arrived. Call decide() next. If it throws for lack of memory, the connection is not added.
  void arrive(Id id, const SourceNetwork& source);
  /// A handshake that was started has ended. No effect on other ids.
  void finished(Id id);
  /// Adds the actions that are due to `decision`. It may throw for lack of memory. Actions added before that are valid;
  /// the next call decides the rest.
  void decide(Clock::time_point now, Decision& decision);
  /// The time at which decide() may give another answer without an arrival or a finished handshake.
  [[nodiscard]] Deadline next_look() const;
  /// Whether the maximum number of connections waits, all of different sources. New connections should then wait in the
  /// system's queue.
  [[nodiscard]] bool full() const;
  /// Chooses and forgets the waiting connection that is dropped first if the process has run out of descriptors.
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
  std::map<SourceNetwork, int> waiting_of_;  // only sources with waiting connections
  std::map<SourceNetwork, int> places_of_;
  std::map<SourceNetwork, int>
      dropped_of_;  // part of places_of_: handshakes that were told to end and have not ended yet
};

}  // namespace rdmacomm
