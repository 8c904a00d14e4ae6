// guest_places.h - which clients a server serves at a time, how much memory they may take, and who gives way to whom.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Bounds of a server. A host is a SourceNetwork. A value.
struct PlaceLimits {
  int guests = 1;              ///< at a time, at least 1
  int guests_of_a_host = 1;    ///< of these, of one host
  int waiting_of_a_host = 16;  ///< for a place, at least 1
  /// Bytes of memory of all guests together, and half of it those of one host. A guest that needs more than half of it
  /// is served beside them, one such at a time.
  std::uint64_t shared_bytes = 0;
  /// A guest for which the server has waited this long gives its place to a client that waits for one.
  std::chrono::milliseconds rest{1000};
  /// A guest that has had its place this long gives it, even if it does not rest, to a client of a host that has none.
  /// Empty: it keeps its place.
  std::optional<std::chrono::milliseconds> turn = {};
};

/// How long `bytes` take on a slow network: 100 ns each. A server sees nothing of its client while they are on the way.
[[nodiscard]] constexpr std::chrono::milliseconds time_on_slow_network(std::uint64_t bytes) noexcept {
  return std::chrono::milliseconds(bytes / 10'000);
}

/// One client that has a place. Threads: any.
class Guest {
 public:
  /// The guest did something. One thread at a time.
  void note_progress() noexcept {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// While the server itself works for the guest, and waits for nothing of it, the guest does not rest.
  void set_working(bool working) noexcept { working_.store(working, std::memory_order_relaxed); }
  /// While the client does what the server cannot see: the guest rests if it has done nothing for `most`, or for
  /// PlaceLimits::rest, whichever is longer.
  void set_pause(std::chrono::milliseconds most) noexcept { pause_.store(most, std::memory_order_relaxed); }

 private:
  friend class GuestPlaces;
  using Clock = Deadline::Clock;

  std::string address_ = {};
  std::string source_ = {};
  Clock::time_point since_ = {};
  std::uint64_t bytes_ = 0;
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> working_{false};
  std::atomic<std::chrono::milliseconds> pause_{};
  std::function<void(const Error&)> dismiss_ = {};
  bool dismissed_ = false;
  std::optional<Error> told_ = {};   // why it was dismissed
  std::uint64_t seen_progress_ = 0;  // progress_ when it was last seen to change, which was at seen_at_
  Clock::time_point seen_at_ = {};
};

/// The places of one server, shared among the hosts that its clients come from, so that no host can keep another one
/// out.
///
/// - A free place is given to the waiting client whose host has the fewest; of several, to one whose host has not lost
/// the last
///   place; then in the order of their arrival.
/// - If none is free, a guest in the way is dismissed: one that rests, or, if none does, one of a host with a larger
/// share than the
///   client's host would then have. That one has had its place for PlaceLimits::rest. The host with the largest share
///   loses a guest, the one that has been there longest: a client that is not made to hold a place is done before the
///   others.
/// - If no host has a larger share, PlaceLimits::turn decides.
/// - If more than PlaceLimits::waiting_of_a_host clients of one host wait, one of those that waited before is refused,
/// chosen at
///   random: clients that rest and come again keep none of their host's other clients from waiting.
///
/// Clients that are refused or dismissed hear kServerBusy, so that those that have no connection yet try again.
///
/// Clients are admitted before any memory is allocated for them, so what strangers can make a
/// server allocate is bounded by PlaceLimits. Threads: any.
class GuestPlaces {
 public:
  using Clock = Deadline::Clock;

  /// Returns a number below its argument, which is at least 1; all of them equally often.
  using Random = std::function<std::size_t(std::size_t)>;

  /// clock   by which guests rest
  /// random  by which clients that wait are refused
  explicit GuestPlaces(const PlaceLimits& limits, std::function<Clock::time_point()> clock = Clock::now,
                       Random random = seeded_random())
      : limits_(limits), clock_(std::move(clock)), random_(std::move(random)) {}
  GuestPlaces(const GuestPlaces&) = delete;
  GuestPlaces& operator=(const GuestPlaces&) = delete;

  /// Gives a client a place, in lazy_config_hca(). If none is free, this waits for one, as above.
  ///
  /// address  PeerInfo::address, by which leave() knows the guest
  /// bytes    of memory that is allocated for it
  /// Returns  kServerBusy: no place before the deadline, or refused because too many clients of its host wait;
  ///          std::errc::not_enough_memory: this machine has less than `bytes` left
  [[nodiscard]] Result<std::shared_ptr<Guest>> admit(const std::string& address, std::uint64_t bytes,
                                                     Deadline deadline);
  /// How the guest is dismissed: called at most once, from any thread, also after leave(). A guest without it is not.
  void set_dismissal(Guest& guest, std::function<void(const Error&)> dismiss);
  /// From now on the guest keeps its place until it leaves. Returns  false: it was dismissed before
  [[nodiscard]] bool keep(Guest& guest);
  /// How the guest's run ended: because it was dismissed, if it was, else as `outcome` says.
  [[nodiscard]] Status explained(const Guest& guest, Status outcome) const;
  /// The guest's place is free, because its memory is. Without effect if it has left already.
  void leave(const std::string& address);
  /// The server ends: clients that wait for a place, now or later, are refused at once.
  void close();
  /// How many clients wait for a place.
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Candidate {
    std::string source;
    std::uint64_t bytes;
    bool refused = false;
  };

  /// One that is to be dismissed, and what it is told.
  struct Leaver {
    std::shared_ptr<Guest> guest = nullptr;
    bool rests = false;
    std::uint64_t share = 0;  // its host's
  };

  [[nodiscard]] static Random seeded_random();
  void refuse_one_of(const std::string& source);
  [[nodiscard]] bool is_large(std::uint64_t bytes) const noexcept { return bytes > limits_.shared_bytes / 2; }
  [[nodiscard]] int guests_of(const std::string& source) const;
  [[nodiscard]] std::uint64_t shared_bytes_of(const std::string& source) const;
  [[nodiscard]] bool fits(const Candidate& candidate) const;
  [[nodiscard]] bool has_its_most(const Candidate& candidate) const;
  [[nodiscard]] bool is_next(const Candidate& candidate) const;
  [[nodiscard]] bool in_the_way(const Guest& guest, const Candidate& candidate) const;
  [[nodiscard]] bool places_are_taken() const noexcept {
    return guests_.size() >= static_cast<std::size_t>(limits_.guests);
  }
  [[nodiscard]] std::uint64_t share_of(const std::string& source, const Candidate& candidate) const;
  [[nodiscard]] bool rests(Guest& guest, Clock::time_point now) const;
  [[nodiscard]] bool has_more_than_its_share(const Guest& guest, const Candidate& candidate,
                                             Clock::time_point now) const;
  [[nodiscard]] Leaver find_leaver(const Candidate& candidate, Clock::time_point now);
  [[nodiscard]] Error busy() const;

  const PlaceLimits limits_;
  const std::function<Clock::time_point()> clock_;
  const Random random_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Guest>> guests_;
  std::list<Candidate> waiting_;
  std::string last_source_;  // of the guest that was dismissed last
  bool closed_ = false;
};

}  // namespace rdmacomm::programs
