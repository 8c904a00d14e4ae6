#include "support/guest_places.h"

#include <algorithm>
#include <utility>

#include "support/available_memory.h"
#include "support/sizes.h"

namespace rdmacomm::programs {
namespace {

/// How often a client that waits looks whether a guest has begun to rest.
constexpr std::chrono::milliseconds kLookForRest{50};

/// "10.0.0.2:41234" and "[::1]:41234" without the port.
std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

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
  guest->host_ = host_of(address);
  guest->bytes_ = bytes;
  std::unique_lock lock(mutex_);
  const auto of_its_host = [&](const Newcomer& each) { return each.host == guest->host_; };
  if (std::ranges::count_if(waiting_, of_its_host) >= limits_.guests_of_a_host) return busy();
  const auto newcomer = waiting_.insert(waiting_.end(), {.host = guest->host_, .bytes = bytes});
  while (!fits(*newcomer) || !is_next(*newcomer)) {
    if (const auto resting = find_resting(*newcomer, clock_())) {
      last_host_ = resting->host_;
      resting->dismissed_ = true;
      const auto dismiss = std::exchange(resting->dismiss_, {});
      lock.unlock();
      dismiss(make_error(Errc::kPeerRefused, "this client did nothing while another one waited for its place"));
      lock.lock();
      continue;
    }
    if (closed_ || deadline.passed()) {
      waiting_.erase(newcomer);
      changed_.notify_all();
      return busy();
    }
    changed_.wait_until(lock, Deadline::after(kLookForRest).sooner(deadline).time_point());
  }
  waiting_.erase(newcomer);
  changed_.notify_all();
  if (Status enough = check_memory(bytes); !enough.ok()) return enough.error();
  guest->seen_at_ = clock_();
  guests_.push_back(guest);
  return guest;
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

void GuestPlaces::leave(const std::string& address) {
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

int GuestPlaces::guests_of(const std::string& host) const {
  return static_cast<int>(std::ranges::count_if(guests_, [&](const auto& guest) { return guest->host_ == host; }));
}

bool GuestPlaces::fits(const Newcomer& newcomer) const {
  if (guests_.size() >= static_cast<std::size_t>(limits_.guests)) return false;
  if (guests_of(newcomer.host) >= limits_.guests_of_a_host) return false;
  std::uint64_t shared = newcomer.bytes;
  for (const auto& guest : guests_) {
    if (is_large(guest->bytes_) && is_large(newcomer.bytes)) return false;
    if (!is_large(guest->bytes_)) shared += guest->bytes_;
  }
  return is_large(newcomer.bytes) || shared <= limits_.shared_bytes;
}

/// Whether no client of another host waits while this one's host has had the last place.
bool GuestPlaces::is_next(const Newcomer& newcomer) const {
  if (newcomer.host != last_host_) return true;
  return std::ranges::none_of(waiting_, [&](const Newcomer& other) { return other.host != last_host_ && fits(other); });
}

/// Whether the guest has the place, or the memory, that the waiting client needs.
bool GuestPlaces::in_the_way(const Guest& guest, const Newcomer& newcomer) const {
  if (guests_of(newcomer.host) >= limits_.guests_of_a_host) return guest.host_ == newcomer.host;
  if (guests_.size() >= static_cast<std::size_t>(limits_.guests)) return true;
  return is_large(guest.bytes_) == is_large(newcomer.bytes);
}

/// One that may be dismissed for the newcomer: of those that rest, one of the host that has most guests. None while as
/// many are about to leave as clients wait.
std::shared_ptr<Guest> GuestPlaces::find_resting(const Newcomer& newcomer, Clock::time_point now) {
  const auto leaving = std::ranges::count_if(guests_, [](const auto& guest) { return guest->dismissed_; });
  if (fits(newcomer) || leaving >= static_cast<std::ptrdiff_t>(waiting_.size())) return nullptr;
  std::shared_ptr<Guest> found;
  for (const auto& guest : guests_) {
    const std::uint64_t progress = guest->progress_.load(std::memory_order_relaxed);
    if (std::exchange(guest->seen_progress_, progress) != progress || guest->working_.load(std::memory_order_relaxed)) {
      guest->seen_at_ = now;
    }
    const auto pause = std::max(guest->pause_.load(std::memory_order_relaxed), limits_.rest);
    const bool rests = guest->dismiss_ && now - guest->seen_at_ >= pause;
    if (!rests || !in_the_way(*guest, newcomer)) continue;
    if (!found || guests_of(guest->host_) > guests_of(found->host_)) found = guest;
  }
  return found;
}

Error GuestPlaces::busy() const {
  std::string whom;
  for (const auto& guest : guests_)
    whom = guests_.size() == 1 ? guest->address_ : std::to_string(guests_.size()) + " clients";
  return make_error(std::make_error_code(std::errc::device_or_resource_busy),
                    "this server is busy" + (whom.empty() ? std::string() : " with " + whom) + ": try again later");
}

}  // namespace rdmacomm::programs
