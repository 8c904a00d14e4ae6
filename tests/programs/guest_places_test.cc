#include "support/guest_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "support/available_memory.h"

namespace rdmacomm::programs {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::HasSubstr;

Deadline now() {
  return Deadline::after({});
}
Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

/// Lets a guest leave when it is dismissed, and then adds its address to `dismissed`.
void leaves_when_dismissed(GuestPlaces& places, Guest& guest, const std::string& address,
                           std::vector<std::string>& dismissed) {
  places.set_dismissal(guest, [&places, &dismissed, address](const Error& why) {
    EXPECT_EQ(why.code, Errc::kServerBusy);
    dismissed.push_back(address);
    places.remove(address);
  });
}

TEST(GuestPlaces, AreLimitedInNumber) {
  GuestPlaces places({.guests = 2, .guests_of_a_host = 2, .shared_bytes = 100, .rest = hours(1)});
  ASSERT_TRUE(places.admit("10.0.0.1:1", 1, now()).has_value());
  ASSERT_TRUE(places.admit("10.0.0.2:1", 1, now()).has_value());
  const auto third = places.admit("10.0.0.3:1", 1, now());
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.code(), Errc::kServerBusy);
  EXPECT_THAT(third.error().message(), HasSubstr("busy with 2 clients"));
  places.remove("10.0.0.1:1");
  EXPECT_TRUE(places.admit("10.0.0.3:1", 1, now()).has_value());
}

TEST(GuestPlaces, AreLimitedForOneHost) {
  GuestPlaces places({.guests = 10, .guests_of_a_host = 2, .shared_bytes = 100, .rest = hours(1)});
  ASSERT_TRUE(places.admit("[::1]:1", 1, now()).has_value());
  ASSERT_TRUE(places.admit("[::1]:2", 1, now()).has_value());
  EXPECT_FALSE(places.admit("[::1]:3", 1, now()).has_value());
  EXPECT_TRUE(places.admit("[::2]:3", 1, now()).has_value());
}

// One machine can have all addresses of its IPv6 network.
TEST(GuestPlaces, AreLimitedForOneNetworkOfIpv6) {
  GuestPlaces places({.guests = 10, .guests_of_a_host = 1, .shared_bytes = 100, .rest = hours(1)});
  ASSERT_TRUE(places.admit("[fd00::2]:1", 1, now()).has_value());
  EXPECT_FALSE(places.admit("[fd00::3]:1", 1, now()).has_value());
  EXPECT_TRUE(places.admit("[fd00:0:0:1::3]:1", 1, now()).has_value());
}

TEST(GuestPlaces, AreLimitedInMemoryExceptForOneLargerGuest) {
  GuestPlaces places({.guests = 10, .guests_of_a_host = 10, .shared_bytes = 100, .rest = hours(1)});
  ASSERT_TRUE(places.admit("10.0.0.1:1", 40, now()).has_value());
  ASSERT_TRUE(places.admit("10.0.0.2:2", 40, now()).has_value());
  EXPECT_FALSE(places.admit("10.0.0.3:2", 40, now()).has_value());
  EXPECT_TRUE(places.admit("10.0.0.3:3", 20, now()).has_value());
  EXPECT_TRUE(places.admit("10.0.0.1:4", 1000, now()).has_value());
  EXPECT_FALSE(places.admit("10.0.0.1:5", 51, now()).has_value());
  places.remove("10.0.0.1:4");
  EXPECT_TRUE(places.admit("10.0.0.1:5", 51, now()).has_value());
}

TEST(GuestPlaces, OneHostHasAtMostHalfOfTheMemory) {
  GuestPlaces places({.guests = 10, .guests_of_a_host = 10, .shared_bytes = 100, .rest = hours(1)});
  ASSERT_TRUE(places.admit("10.0.0.1:1", 30, now()).has_value());
  EXPECT_FALSE(places.admit("10.0.0.1:2", 30, now()).has_value());
  EXPECT_TRUE(places.admit("10.0.0.1:3", 20, now()).has_value());
  EXPECT_TRUE(places.admit("10.0.0.2:1", 50, now()).has_value());
}

/// Guests that are never idle: they do something whenever their activity is checked.
struct ActiveGuests {
  explicit ActiveGuests(const PlaceLimits& limits)
      : places(limits, [this] {
          for (const auto& guest : guests) guest->note_progress();
          return time;
        }) {}
  void add(const std::string& address, std::uint64_t bytes = 1) {
    auto guest = places.admit(address, bytes, now());
    ASSERT_TRUE(guest.has_value());
    leaves_when_dismissed(places, **guest, address, dismissed);
    guests.push_back(std::move(*guest));
  }

  Deadline::Clock::time_point time{};
  std::vector<std::shared_ptr<Guest>> guests;
  std::vector<std::string> dismissed;
  GuestPlaces places;
};

TEST(GuestPlaces, AHostAboveItsShareLosesAnActiveGuest) {
  ActiveGuests active({.guests = 4, .guests_of_a_host = 3, .shared_bytes = 100, .rest = milliseconds(1000)});
  for (const char* address : {"10.0.0.2:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"}) active.add(address);
  active.time += milliseconds(999);
  EXPECT_FALSE(active.places.admit("10.0.0.3:1", 1, now()).has_value()) << "for a second each keeps its place";
  active.time += milliseconds(1);
  active.guests.clear();  // no more activity; but none counts as idle yet, because each was just active
  EXPECT_TRUE(active.places.admit("10.0.0.3:1", 1, soon()).has_value());
  EXPECT_THAT(active.dismissed, testing::ElementsAre("10.0.0.1:1")) << "the one that was there longest";
}

TEST(GuestPlaces, AHostIsNotAboveItsShareIfAnotherWouldThenHaveTheSame) {
  ActiveGuests active({.guests = 2, .guests_of_a_host = 2, .shared_bytes = 100, .rest = milliseconds(1)});
  active.add("10.0.0.1:1");
  active.add("10.0.0.2:1");
  for (const auto& guest : active.guests) guest->set_working(true);
  active.time += hours(1);
  EXPECT_FALSE(active.places.admit("10.0.0.3:1", 1, now()).has_value());
  EXPECT_TRUE(active.dismissed.empty());
}

TEST(GuestPlaces, AHostAboveItsShareOfTheMemoryLosesAGuest) {
  ActiveGuests active({.guests = 9, .guests_of_a_host = 9, .shared_bytes = 100, .rest = milliseconds(1)});
  active.add("10.0.0.1:1", 25);
  active.add("10.0.0.1:2", 25);
  active.add("10.0.0.2:1", 40);
  for (const auto& guest : active.guests) guest->set_working(true);
  active.time += milliseconds(1);
  EXPECT_FALSE(active.places.admit("10.0.0.3:1", 50, now()).has_value()) << "it would have as much as the others";
  EXPECT_TRUE(active.places.admit("10.0.0.3:2", 20, soon()).has_value());
  EXPECT_THAT(active.dismissed, testing::ElementsAre("10.0.0.1:1"));
}

TEST(GuestPlaces, AGuestAtTheEndOfItsTurnIsReplacedByAHostWithoutPlaces) {
  ActiveGuests active({.guests = 1, .rest = milliseconds(1), .turn = hours(1)});
  active.add("10.0.0.1:1");
  active.guests.front()->set_working(true);
  active.time += hours(1) - milliseconds(1);
  EXPECT_FALSE(active.places.admit("10.0.0.2:1", 1, now()).has_value());
  active.time += milliseconds(1);
  EXPECT_FALSE(active.places.admit("10.0.0.1:2", 1, now()).has_value());
  EXPECT_TRUE(active.places.admit("10.0.0.2:1", 1, soon()).has_value());
  EXPECT_THAT(active.dismissed, testing::ElementsAre("10.0.0.1:1"));
}

TEST(GuestPlaces, NeverHaveMoreMemoryThanTheMachine) {
  GuestPlaces places({.guests = 1});
  const auto available = available_memory();
  ASSERT_TRUE(available.has_value());
  const auto guest = places.admit("10.0.0.1:1", 4 * *available, now());
  ASSERT_FALSE(guest.has_value());
  EXPECT_EQ(guest.code(), std::errc::not_enough_memory);
  EXPECT_TRUE(places.admit("10.0.0.1:2", 1, now()).has_value());
}

TEST(GuestPlaces, AnIdleGuestLosesItsPlace) {
  GuestPlaces places({.guests = 1, .rest = milliseconds(0)});
  std::vector<std::string> dismissed;
  auto first = places.admit("10.0.0.1:1", 1, now());
  ASSERT_TRUE(first.has_value());
  leaves_when_dismissed(places, **first, "10.0.0.1:1", dismissed);
  const Status stopped = make_error(Errc::kStopped, "stopped");
  EXPECT_EQ(places.explained(**first, stopped).code(), Errc::kStopped);
  EXPECT_TRUE(places.admit("10.0.0.2:1", 1, soon()).has_value());
  EXPECT_THAT(dismissed, testing::ElementsAre("10.0.0.1:1"));
  EXPECT_THAT(places.explained(**first, stopped).message(), HasSubstr("was idle while another client waited"));
  EXPECT_TRUE(places.explained(**first, {}).ok());
}

TEST(GuestPlaces, AnActiveGuestKeepsItsPlace) {
  GuestPlaces places({.guests = 1, .rest = milliseconds(1)});
  std::vector<std::string> dismissed;
  auto first = places.admit("10.0.0.1:1", 1, now());
  ASSERT_TRUE(first.has_value());
  leaves_when_dismissed(places, **first, "10.0.0.1:1", dismissed);
  (*first)->set_working(true);
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, Deadline::after(milliseconds(20))).has_value());
  EXPECT_TRUE(dismissed.empty());
  (*first)->set_working(false);
  EXPECT_TRUE(places.admit("10.0.0.2:1", 1, soon()).has_value());
}

/// Between two requests a client may compute, for a limited time.
TEST(GuestPlaces, AGuestKeepsItsPlaceDuringItsPause) {
  using std::chrono::seconds;
  Deadline::Clock::time_point time{};
  GuestPlaces places({.guests = 1, .rest = seconds(1)}, [&time] { return time; });
  std::vector<std::string> dismissed;
  const auto first = places.admit("10.0.0.1:1", 1, now()).value();
  leaves_when_dismissed(places, *first, "10.0.0.1:1", dismissed);
  first->set_pause(seconds(60));
  first->note_progress();
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());  // its pause counts from here
  time += seconds(59);
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());
  first->note_progress();
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());
  time += seconds(59);
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value()) << "it has done something meanwhile";
  EXPECT_TRUE(dismissed.empty());
  time += seconds(1);
  EXPECT_TRUE(places.admit("10.0.0.2:1", 1, soon()).has_value());
  EXPECT_THAT(dismissed, testing::ElementsAre("10.0.0.1:1"));
}

TEST(GuestPlaces, AGuestWithAShortPauseIsIdleAfterTheIdleLimit) {
  Deadline::Clock::time_point time{};
  GuestPlaces places({.guests = 1, .rest = std::chrono::seconds(5)}, [&time] { return time; });
  std::vector<std::string> dismissed;
  const auto first = places.admit("10.0.0.1:1", 1, now()).value();
  leaves_when_dismissed(places, *first, "10.0.0.1:1", dismissed);
  first->set_pause(milliseconds(0));
  time += std::chrono::seconds(4);
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());
  time += std::chrono::seconds(1);
  EXPECT_TRUE(places.admit("10.0.0.2:1", 1, soon()).has_value());
}

TEST(GuestPlaces, AGuestCanKeepItsPlaceUntilItIsDismissed) {
  GuestPlaces places({.guests = 1, .rest = milliseconds(0)});
  std::vector<std::string> dismissed;
  const auto first = places.admit("10.0.0.1:1", 1, now()).value();
  leaves_when_dismissed(places, *first, "10.0.0.1:1", dismissed);
  EXPECT_TRUE(places.keep(*first));
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());
  EXPECT_TRUE(dismissed.empty());
  places.remove("10.0.0.1:1");
  const auto second = places.admit("10.0.0.1:2", 1, now()).value();
  leaves_when_dismissed(places, *second, "10.0.0.1:2", dismissed);
  EXPECT_TRUE(places.admit("10.0.0.2:1", 1, soon()).has_value());
  EXPECT_FALSE(places.keep(*second));
}

TEST(GuestPlaces, AGuestThatIsStillBeingConnectedStays) {
  GuestPlaces places({.guests = 1, .rest = milliseconds(0)});
  ASSERT_TRUE(places.admit("10.0.0.1:1", 1, now()).has_value());
  EXPECT_FALSE(places.admit("10.0.0.2:1", 1, now()).has_value());
}

TEST(GuestPlaces, OnlyOneOfManyIdleGuestsLosesItsPlace) {
  GuestPlaces places({.guests = 3, .guests_of_a_host = 3, .shared_bytes = 100, .rest = milliseconds(0)});
  std::vector<std::string> dismissed;
  for (const char* address : {"10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:2"}) {
    auto guest = places.admit(address, 1, now());
    ASSERT_TRUE(guest.has_value());
    leaves_when_dismissed(places, **guest, address, dismissed);
  }
  EXPECT_TRUE(places.admit("10.0.0.3:1", 1, soon()).has_value());
  ASSERT_EQ(dismissed.size(), 1u);
  EXPECT_THAT(dismissed.front(), testing::StartsWith("10.0.0.2:"));  // of the host with the most places
}

TEST(GuestPlaces, AHostWithAllPlacesLosesOneOfThem) {
  GuestPlaces places({.guests = 9, .guests_of_a_host = 1, .shared_bytes = 100, .rest = milliseconds(0)});
  std::vector<std::string> dismissed;
  for (const char* address : {"10.0.0.1:1", "10.0.0.2:1"}) {
    auto guest = places.admit(address, 1, now());
    ASSERT_TRUE(guest.has_value());
    leaves_when_dismissed(places, **guest, address, dismissed);
  }
  EXPECT_TRUE(places.admit("10.0.0.2:2", 1, soon()).has_value());
  EXPECT_THAT(dismissed, testing::ElementsAre("10.0.0.2:1"));
}

TEST(GuestPlaces, AnotherHostGetsThePlaceFirst) {
  GuestPlaces places({.guests = 1, .rest = milliseconds(0)});
  auto first = places.admit("10.0.0.1:1", 1, now());
  ASSERT_TRUE(first.has_value());
  std::promise<void> dismissed;
  places.set_dismissal(**first, [&](const Error&) { dismissed.set_value(); });
  // A client of the same host waits first. The session then ends the guest, but the place stays taken until a client of
  // the other host waits, too.
  auto same = std::async(std::launch::async, [&] { return places.admit("10.0.0.1:2", 1, soon()); });
  dismissed.get_future().wait();
  auto other = std::async(std::launch::async, [&] { return places.admit("10.0.0.2:1", 1, soon()); });
  while (places.waiting() < 2) std::this_thread::yield();
  places.remove("10.0.0.1:1");
  ASSERT_TRUE(other.get().has_value());
  places.remove("10.0.0.2:1");
  EXPECT_TRUE(same.get().has_value());
}

TEST(GuestPlaces, IfTooManyOfAHostWaitOneOfThemIsRefused) {
  std::size_t asked_below = 0;
  GuestPlaces places({.guests = 1, .waiting_of_a_host = 2, .rest = hours(1)}, Deadline::Clock::now,
                     [&](std::size_t below) {
                       asked_below = below;
                       return std::size_t{1};
                     });
  ASSERT_TRUE(places.admit("10.0.0.1:1", 1, now()).has_value());
  const auto wait_as = [&](const char* address, std::size_t number) {
    auto waits = std::async(std::launch::async, [&places, address] { return places.admit(address, 1, soon()); });
    while (places.waiting() < number && waits.wait_for(milliseconds(0)) != std::future_status::ready)
      std::this_thread::yield();
    return waits;
  };
  auto other_host = wait_as("10.0.0.2:1", 1);
  auto first = wait_as("10.0.0.1:2", 2);
  auto second = wait_as("10.0.0.1:3", 3);
  auto third = wait_as("10.0.0.1:4", 3);  // three wait again after the second has left
  EXPECT_EQ(second.get().code(), Errc::kServerBusy);
  EXPECT_EQ(asked_below, 2u);
  places.remove("10.0.0.1:1");
  EXPECT_TRUE(other_host.get().has_value());
  places.remove("10.0.0.2:1");
  EXPECT_TRUE(first.get().has_value());
  places.remove("10.0.0.1:2");
  EXPECT_TRUE(third.get().has_value());
}

TEST(GuestPlaces, TheEndOfTheServerEndsAllWaits) {
  GuestPlaces places({.guests = 1, .rest = hours(1)});
  ASSERT_TRUE(places.admit("10.0.0.1:1", 1, now()).has_value());
  auto waiting = std::async(std::launch::async, [&] { return places.admit("10.0.0.2:1", 1, Deadline::never()); });
  while (places.waiting() < 1) std::this_thread::yield();
  places.close();
  EXPECT_FALSE(waiting.get().has_value());
}

}  // namespace
}  // namespace rdmacomm::programs
