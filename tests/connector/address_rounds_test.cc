#include "connector/address_rounds.h"

#include <gtest/gtest.h>

#include "base/wake_event.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

const HostPort kServer{"127.0.0.1", 2020};
const Error kRefused = make_error(std::make_error_code(std::errc::connection_refused), "no");
const Error kLate = make_error(Errc::kTimeout, "late");

/// Returns each of its errors in turn, then 7.
struct Script {
  std::vector<Error> errors;
  std::size_t calls = 0;
  Result<int> operator()(const SocketAddress& /*address*/, Deadline /*deadline*/) {
    if (calls < errors.size()) return errors[calls++];
    ++calls;
    return 7;
  }
};

TEST(AddressRounds, ContinuesWhileConnectionsAreRefused) {
  Script script{{kRefused, kRefused}};
  EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).value(), 7);
  EXPECT_EQ(script.calls, 3U);
}

TEST(AddressRounds, ContinuesAfterEachTemporaryError) {
  for (const std::error_code code :
       {std::error_code(Errc::kTimeout), std::make_error_code(std::errc::timed_out),
        std::make_error_code(std::errc::host_unreachable), std::make_error_code(std::errc::network_unreachable),
        std::make_error_code(std::errc::network_down), std::make_error_code(std::errc::connection_reset),
        std::make_error_code(std::errc::address_not_available)}) {
    SCOPED_TRACE(code.message());
    Script script{{make_error(code, "not now"), make_error(code, "not now")}};
    EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).value(), 7);
    EXPECT_EQ(script.calls, 3U);
  }
}

TEST(AddressRounds, GivesUpAtOnceAfterAPermanentError) {
  Script script{{make_error(std::make_error_code(std::errc::too_many_files_open), "no descriptor")}};
  EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).error().context, "no descriptor");
  EXPECT_EQ(script.calls, 1U);
}

TEST(AddressRounds, RetriesALookupThatFailsTemporarily) {
  int looked_up = 0;
  const auto look_up = [&](const HostPort& where) -> Result<std::vector<SocketAddress>> {
    if (++looked_up < 3) return make_error(std::make_error_code(std::errc::resource_unavailable_try_again), "later");
    return resolve(where);
  };
  Script script;
  EXPECT_EQ(AddressRounds(kServer, {}, -1, look_up).run<int>(script).value(), 7);
  EXPECT_EQ(looked_up, 3);
}

TEST(AddressRounds, DoesNotRetryTheLookupOfAnUnknownName) {
  int looked_up = 0;
  const auto look_up = [&](const HostPort&) -> Result<std::vector<SocketAddress>> {
    ++looked_up;
    return make_error(Errc::kInvalidArgument, "unknown");
  };
  Script script;
  EXPECT_EQ(AddressRounds(kServer, {}, -1, look_up).run<int>(script).error().context, "unknown");
  EXPECT_EQ(looked_up, 1);
}

TEST(AddressRounds, ReportsTheTimeThatItHasTried) {
  const TcpOptions options{.connect_timeout = 1h};  // must outlive rounds
  AddressRounds rounds(kServer, options, -1);
  Script script{{make_error(std::make_error_code(std::errc::too_many_files_open), "final")}};
  ASSERT_FALSE(rounds.run<int>(script));
  EXPECT_TRUE(rounds.gave_up().ends_with("s")) << rounds.gave_up();
  EXPECT_FALSE(rounds.gave_up().ends_with("3600 s")) << rounds.gave_up();
}

TEST(AddressRounds, AnInterruptedRoundDoesNotHideAnEarlierRefusal) {
  const TcpOptions soon{.connect_timeout = 1ms};
  Script script{{kRefused, kLate, kLate, kLate}};
  EXPECT_EQ(AddressRounds(kServer, soon, -1).run<int>(script).error().context, "no");
}

TEST(AddressRounds, SharesTheTimeAmongTheAddresses) {
  const Deadline whole = Deadline::after(4s);
  const auto three = [](const HostPort& where) -> Result<std::vector<SocketAddress>> {
    return std::vector(3, resolve(where).value().front());
  };
  std::vector<Deadline::Clock::duration> shares;
  (void)AddressRounds(kServer, {.connect_timeout = 4s}, -1, three)
      .run<int>([&](const SocketAddress& /*address*/, Deadline share) -> Result<int> {
        shares.push_back(share.remaining());
        if (shares.size() == 3) return make_error(Errc::kStopped, "enough");
        return kLate;
      });
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_LE(shares.front(), whole.remaining() / 3 + 1s);
}

TEST(AddressRounds, TriesNoAddressForLongAtATime) {
  Deadline::Clock::duration first{};
  (void)AddressRounds(kServer, {.connect_timeout = 1h}, -1)
      .run<int>([&](const SocketAddress& /*address*/, Deadline share) -> Result<int> {
        first = share.remaining();
        return make_error(Errc::kStopped, "enough");
      });
  EXPECT_LE(first, AddressRounds::kLongestTry);
}

TEST(AddressRounds, EndsWithTheFirstErrorThatConcernsAllAddresses) {
  for (const std::error_code code :
       {std::error_code(Errc::kStopped), std::make_error_code(std::errc::operation_not_permitted)}) {
    Script script{{kRefused, make_error(code, "final")}};
    EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).code(), code);
    EXPECT_EQ(script.calls, 2U);
  }
}

TEST(AddressRounds, IsCancelledBetweenTwoRounds) {
  const auto stop = WakeEvent::create();
  ASSERT_TRUE(stop);
  stop->signal();
  Script script{{kRefused}};
  const auto stopped = AddressRounds(kServer, {}, stop->fd()).run<int>(script);
  EXPECT_EQ(stopped.code(), Errc::kStopped);
  EXPECT_EQ(stopped.error().context, "stopped while connecting to 127.0.0.1:2020");
}

}  // namespace
}  // namespace rdmacomm
