// guest_places.h - limits a server's clients and their memory, and decides which client gives its place to another one.
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

/// Limits of a server. A host is a SourceNetwork. A value.
struct PlaceLimits {
  int guests = 1;              ///< at a time; at least 1
  int guests_of_a_host = 1;    ///< guests from one host at a time
  int waiting_of_a_host = 16;  ///< clients from one host that wait for a place; at least 1
  /// Bytes of memory of all guests together; the guests of one host may use half of it. A guest that needs more than
  /// half of it is served in addition to them, one such guest at a time.
  std::uint64_t shared_bytes = 0;
  /// A guest rests if it has made no progress for this long. It must then give its place to a waiting client.
  std::chrono::milliseconds rest{1000};
  /// A guest that has had its place for this long gives it to a client of a host that has no place, even if the guest
  /// does not rest. Empty: it keeps its place.
  std::optional<std::chrono::milliseconds> turn = {};
};

/// The time that `bytes` take on a slow network: 100 ns each. A server notices nothing of its client during that time.
[[nodiscard]] constexpr std::chrono::milliseconds time_on_slow_network(std::uint64_t bytes) noexcept {
  return std::chrono::milliseconds(bytes / 10'000);
}

/// A client that has a place. Threads: any.
class Guest {
 public:
  /// The guest has made progress. One thread at a time.
  void note_progress() noexcept {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// While the server itself works for the guest, and does not wait for it, the guest does not rest.
  void set_working(bool working) noexcept { working_.store(working, std::memory_order_relaxed); }
  /// For a time in which the client does work that the server cannot see: the guest rests only after no progress for
  /// `most` or PlaceLimits::rest, whichever is longer.
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
  std::uint64_t seen_progress_ = 0;  // progress_ when it was last seen to change, at seen_at_
  Clock::time_point seen_at_ = {};
};

/// Shares the places of one server among its clients' hosts, so that no host can keep another one out.
///
/// - A free place is given to the waiting client whose host has the fewest places. If several hosts have the fewest, a
///   host that did not lose the last place comes first; then the order of arrival decides.
/// - If no place is free, a guest in the way is dismissed. A resting guest is dismissed first. If none rests, the guest
///   must belong to a host with a larger share than the client's host would then have, and must have had its place for
///   PlaceLimits::rest. The host with the largest share loses its oldest guest, because a client that does not try to
///   hold a place is done before the others.
/// - If no host has a larger share, PlaceLimits::turn decides.
/// - If more than PlaceLimits::waiting_of_a_host clients of one host wait, one of the earlier ones is refused, chosen
///   at random. Therefore clients that rest and reconnect cannot keep other clients of their host from waiting.
/// A client that is refused or dismissed gets kServerBusy. If it has no connection yet, it tries again.
///
/// Clients are admitted before any memory is allocated for them, so PlaceLimits bounds the memory that clients can make
/// a server allocate. Threads: any.
class GuestPlaces {
 public:
  using Clock = Deadline::Clock;

  /// Returns a number below its argument, which is at least 1; all of them equally often.
  using Random = std::function<std::size_t(std::size_t)>;

  /// clock   the time for `rest` and `turn`
  /// random  selects the waiting client that is refused
  explicit GuestPlaces(const PlaceLimits& limits, std::function<Clock::time_point()> clock = Clock::now,
                       Random random = seeded_random())
      : limits_(limits), clock_(std::move(clock)), random_(std::move(random)) {}
  GuestPlaces(const GuestPlaces&) = delete;
  GuestPlaces& operator=(const GuestPlaces&) = delete;

  /// Gives a client a place, in lazy_config_hca(). If no place is free, waits for one as described above.
  ///
  /// address  PeerInfo::address, which identifies the guest in remove()
  /// bytes    memory that will be allocated for it
  /// Returns  kServerBusy: no place before the deadline, or refused because too many clients of its host wait;
  ///          std::errc::not_enough_memory: this machine has less than `bytes` left
  [[nodiscard]] Result<std::shared_ptr<Guest>> admit(const std::string& address, std::uint64_t bytes,
                                                     Deadline deadline);
  /// Sets the function that dismisses the guest: called at most once, from any thread, also after remove(). A guest
  /// without it cannot be dismissed.
  void set_dismissal(Guest& guest, std::function<void(const Error&)> dismiss);
  /// From now on the guest keeps its place until remove(). Returns  false: it was already dismissed
  [[nodiscard]] bool keep(Guest& guest);
  /// The outcome of this guest: the reason for its dismissal, if it was dismissed, else `outcome`.
  [[nodiscard]] Status explained(const Guest& guest, Status outcome) const;
  /// Frees the guest's place; its memory must be free already. No effect if it has left already.
  void remove(const std::string& address);
  /// The server ends: clients that wait for a place, now or later, are refused at once.
  void close();
  /// The number of clients that wait for a place.
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Candidate {
    std::string source;
    std::uint64_t bytes;
    bool refused = false;
  };

  /// The guest to dismiss, with the reasons for the choice.
  struct Choice {
    std::shared_ptr<Guest> guest = nullptr;
    bool rests = false;
    std::uint64_t share = 0;  // the share of its host
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
  [[nodiscard]] Choice choose_guest(const Candidate& candidate, Clock::time_point now);
  [[nodiscard]] Error busy() const;

  const PlaceLimits limits_;
  const std::function<Clock::time_point()> clock_;
  const Random random_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Guest>> guests_;
  std::list<Candidate> waiting_;
  std::string last_source_;  // the host of the guest that was dismissed last
  bool closed_ = false;
};

}  // namespace rdmacomm::programs
