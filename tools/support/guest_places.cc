#include "support/guest_places.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/wait.h"
#include "connector/source_network.h"
#include "support/available_memory.h"
#include "support/sizes.h"

namespace rdmacomm::programs {
namespace {

/// How often a waiting client checks whether a guest has become idle.
constexpr std::chrono::milliseconds kLookForRest{50};

Status check_memory(std::uint64_t bytes) {
  const auto available = available_memory();
  if (!available || bytes <= *available) return {};
  return make_error(std::make_error_code(std::errc::not_enough_memory),
                    "the client needs " + size_text(bytes) + " bytes on the server, which has " + gib_text(*available) +
                        " available: choose smaller messages");
}

}  // namespace

Result<std::shared_ptr<Guest>> GuestPlaces::admit(const std::string& address, std::uint64_t bytes, Deadline deadline) {
  const auto guest = std::make_shared<Guest>();
  guest->address_ = address;
  guest->source_ = SourceNetwork::of(address).to_text();
  guest->bytes_ = bytes;
  std::unique_lock lock(mutex_);
  refuse_one_of(guest->source_);
  const auto candidate = waiting_.insert(waiting_.end(), {.source = guest->source_, .bytes = bytes});
  while (!fits(*candidate) || !is_next(*candidate)) {
    if (const Choice chosen = choose_guest(*candidate, clock_()); chosen.guest) {
      last_source_ = chosen.guest->source_;
      chosen.guest->dismissed_ = true;
      const auto dismiss = std::exchange(chosen.guest->dismiss_, {});
      const Error why =
          make_error(Errc::kServerBusy,
                     chosen.rests ? "this client was idle while another client waited for its place"
                                  : "a client of another host waited, and the host of this client has used its share");
      chosen.guest->told_ = why;
      lock.unlock();
      dismiss(why);
      lock.lock();
      continue;
    }
    if (closed_ || candidate->refused || deadline.passed()) {
      waiting_.erase(candidate);
      changed_.notify_all();
      return busy();
    }
    wait(changed_, lock, Deadline::after(kLookForRest).sooner(deadline));
  }
  waiting_.erase(candidate);
  changed_.notify_all();
  if (Status enough = check_memory(bytes); !enough.ok()) return enough.error();
  guest->since_ = guest->seen_at_ = clock_();
  guests_.push_back(guest);
  return guest;
}

GuestPlaces::Random GuestPlaces::seeded_random() {
  return [engine = std::minstd_rand(std::random_device{}())](std::size_t below) mutable {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(engine);
  };
}

/// Called when another client of that host arrives. If the allowed number already waits, refuses one of these.
void GuestPlaces::refuse_one_of(const std::string& source) {
  std::vector<Candidate*> waiting;
  for (Candidate& each : waiting_) {
    if (each.source == source && !each.refused) waiting.push_back(&each);
  }
  if (waiting.size() < static_cast<std::size_t>(limits_.waiting_of_a_host)) return;
  waiting[random_(waiting.size())]->refused = true;
  changed_.notify_all();
}

void GuestPlaces::set_dismissal(Guest& guest, std::function<void(const Error&)> dismiss) {
  const std::lock_guard lock(mutex_);
  guest.dismiss_ = std::move(dismiss);
  guest.seen_at_ = clock_();
  changed_.notify_all();
}

bool GuestPlaces::keep(Guest& guest) {
  const std::lock_guard lock(mutex_);
  guest.dismiss_ = {};
  return !guest.dismissed_;
}

Status GuestPlaces::explained(const Guest& guest, Status outcome) const {
  const std::lock_guard lock(mutex_);
  return !outcome.ok() && guest.told_ ? Status(*guest.told_) : outcome;
}

void GuestPlaces::remove(const std::string& address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(guests_, [&](const auto& guest) { return guest->address_ == address; });
  changed_.notify_all();
}

void GuestPlaces::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::size_t GuestPlaces::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

int GuestPlaces::guests_of(const std::string& source) const {
  return static_cast<int>(std::ranges::count_if(guests_, [&](const auto& guest) { return guest->source_ == source; }));
}

std::uint64_t GuestPlaces::shared_bytes_of(const std::string& source) const {
  std::uint64_t bytes = 0;
  for (const auto& guest : guests_) {
    if (guest->source_ == source && !is_large(guest->bytes_)) bytes += guest->bytes_;
  }
  return bytes;
}

/// Whether the client's host already has all the places, or all the memory, that one host may have.
bool GuestPlaces::has_its_most(const Candidate& candidate) const {
  if (guests_of(candidate.source) >= limits_.guests_of_a_host) return true;
  return !is_large(candidate.bytes) && shared_bytes_of(candidate.source) + candidate.bytes > limits_.shared_bytes / 2;
}

bool GuestPlaces::fits(const Candidate& candidate) const {
  if (places_are_taken() || has_its_most(candidate)) return false;
  std::uint64_t shared = candidate.bytes;
  for (const auto& guest : guests_) {
    if (is_large(guest->bytes_) && is_large(candidate.bytes)) return false;
    if (!is_large(guest->bytes_)) shared += guest->bytes_;
  }
  return is_large(candidate.bytes) || shared <= limits_.shared_bytes;
}

/// Whether a free place is for this candidate: see the class.
bool GuestPlaces::is_next(const Candidate& candidate) const {
  const auto rank = [this](const Candidate& each) {
    return std::pair(guests_of(each.source), each.source == last_source_);
  };
  const auto own = rank(candidate);
  bool arrived_before = true;
  for (const Candidate& other : waiting_) {
    if (&other == &candidate) {
      arrived_before = false;
    } else if (!other.refused && fits(other) && (rank(other) < own || (arrived_before && rank(other) == own))) {
      return false;
    }
  }
  return true;
}

/// Whether the guest holds the place, or the memory, that the waiting client needs.
bool GuestPlaces::in_the_way(const Guest& guest, const Candidate& candidate) const {
  if (has_its_most(candidate)) return guest.source_ == candidate.source;
  if (places_are_taken()) return true;
  return is_large(guest.bytes_) == is_large(candidate.bytes);
}

/// How much a host holds of the resource that the waiting client lacks: places, shared bytes, or the one large place.
/// Guests that are already dismissed do not count.
std::uint64_t GuestPlaces::share_of(const std::string& source, const Candidate& candidate) const {
  std::uint64_t share = 0;
  for (const auto& guest : guests_) {
    if (guest->source_ != source || guest->dismissed_) continue;
    if (places_are_taken()) {
      ++share;
    } else if (is_large(guest->bytes_) == is_large(candidate.bytes)) {
      share += is_large(candidate.bytes) ? 1 : guest->bytes_;
    }
  }
  return share;
}

bool GuestPlaces::rests(Guest& guest, Clock::time_point now) const {
  const std::uint64_t progress = guest.progress_.load(std::memory_order_relaxed);
  if (std::exchange(guest.seen_progress_, progress) != progress || guest.working_.load(std::memory_order_relaxed)) {
    guest.seen_at_ = now;
  }
  return now - guest.seen_at_ >= std::max(guest.pause_.load(std::memory_order_relaxed), limits_.rest);
}

bool GuestPlaces::has_more_than_its_share(const Guest& guest, const Candidate& candidate, Clock::time_point now) const {
  if (guest.source_ == candidate.source || now - guest.since_ < limits_.rest) return false;
  const std::uint64_t own = share_of(candidate.source, candidate);
  const std::uint64_t asked = places_are_taken() || is_large(candidate.bytes) ? 1 : candidate.bytes;
  if (share_of(guest.source_, candidate) > own + asked) return true;
  return own == 0 && limits_.turn && now - guest.since_ >= *limits_.turn;
}

/// Selects the guest that must give up its place for `candidate`. None if the dismissed guests already make room for
/// all waiting clients.
GuestPlaces::Choice GuestPlaces::choose_guest(const Candidate& candidate, Clock::time_point now) {
  const auto dismissed = std::ranges::count_if(guests_, [](const auto& guest) { return guest->dismissed_; });
  if (fits(candidate) || dismissed >= static_cast<std::ptrdiff_t>(waiting_.size())) return {};
  Choice found;
  for (const auto& guest : guests_) {
    const bool resting = rests(*guest, now);
    if (!guest->dismiss_ || !in_the_way(*guest, candidate)) continue;
    if (!resting && !has_more_than_its_share(*guest, candidate, now)) continue;
    const std::uint64_t share = share_of(guest->source_, candidate);
    const bool better = std::pair(resting, share) > std::pair(found.rests, found.share);
    if (!found.guest || better) found = {.guest = guest, .rests = resting, .share = share};
  }
  return found;
}

Error GuestPlaces::busy() const {
  std::string whom;
  for (const auto& guest : guests_)
    whom = guests_.size() == 1 ? guest->address_ : std::to_string(guests_.size()) + " clients";
  return make_error(Errc::kServerBusy,
                    "this server is busy" + (whom.empty() ? std::string() : " with " + whom) + ": try again later");
}

}  // namespace rdmacomm::programs
