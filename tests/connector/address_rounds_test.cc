#include "connector/address_rounds.h"

#include <gtest/gtest.h>

#include "rdmacomm/connector/stop_event.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

const HostPort kServer{"127.0.0.1", 2020};
const Error kRefused = make_error(std::make_error_code(std::errc::connection_refused), "no");
const Error kLate = make_error(Errc::kTimeout, "late");

/// Answers with each of its errors in turn, then with 7.
struct Script {
  std::vector<Error> errors;
  std::size_t calls = 0;
  Result<int> operator()(const SocketAddress& /*address*/, Deadline /*deadline*/) {
    if (calls < errors.size()) return errors[calls++];
    ++calls;
    return 7;
  }
};

TEST(AddressRounds, GoesOnWhileSomebodySaysNo) {
  Script script{{kRefused, kRefused}};
  EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).value(), 7);
  EXPECT_EQ(script.calls, 3U);
}

TEST(AddressRounds, GivesUpAtOnceWhereNobodyIs) {
  Script script{{kLate}};
  EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).error().context, "late");
  EXPECT_EQ(script.calls, 1U);
}

TEST(AddressRounds, ARoundThatIsCutShortDoesNotHideTheRefusalBefore) {
  const TcpOptions soon{.connect_timeout = 1ms};
  Script script{{kRefused, kLate, kLate, kLate}};
  EXPECT_EQ(AddressRounds(kServer, soon, -1).run<int>(script).error().context, "no");
}

TEST(AddressRounds, SharesTheTimeAmongTheAddresses) {
  const Deadline whole = Deadline::after(1h);
  std::vector<Deadline::Clock::duration> shares;
  (void)AddressRounds({"localhost", 2020}, {.connect_timeout = 1h}, -1)
      .run<int>([&](const SocketAddress& /*address*/, Deadline share) -> Result<int> {
        shares.push_back(share.remaining());
        return kLate;
      });
  ASSERT_FALSE(shares.empty());
  EXPECT_LE(shares.front(), whole.remaining() / static_cast<long>(shares.size()) + 1s);
}

TEST(AddressRounds, EndsWithTheFirstErrorThatNoOtherAddressMends) {
  for (const std::error_code code :
       {std::error_code(Errc::kStopped), std::make_error_code(std::errc::operation_not_permitted)}) {
    Script script{{kRefused, make_error(code, "final")}};
    EXPECT_EQ(AddressRounds(kServer, {}, -1).run<int>(script).code(), code);
    EXPECT_EQ(script.calls, 2U);
  }
}

TEST(AddressRounds, IsCancelledBetweenTwoRounds) {
  const auto stop = StopEvent::create();
  ASSERT_TRUE(stop);
  stop->signal();
  Script script{{kRefused}};
  const auto stopped = AddressRounds(kServer, {}, stop->fd()).run<int>(script);
  EXPECT_EQ(stopped.code(), Errc::kStopped);
  EXPECT_EQ(stopped.error().context, "stopped while connecting to 127.0.0.1:2020");
}

}  // namespace
}  // namespace rdmacomm
