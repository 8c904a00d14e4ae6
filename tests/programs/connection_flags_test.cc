#include "support/connection_flags.h"

#include <gflags/gflags.h>
#include <gtest/gtest.h>

#include <chrono>

namespace rdmacomm::programs {
namespace {

using std::chrono::milliseconds;

milliseconds handshake_timeout(const char* role, const char* connect_timeout) {
  const gflags::FlagSaver flags;
  gflags::SetCommandLineOption("role", role);
  gflags::SetCommandLineOption("connect_timeout", connect_timeout);
  return read_connection_flags().value().session.tcp.handshake_timeout;
}

// The help of --connect-timeout says: it tries to connect for this time, and then waits for each answer for this time.
TEST(ConnectionFlags, AClientWaitsForAnswersAsLongAsForThePeer) {
  for (const char* role : {"client", "both"}) {
    EXPECT_EQ(handshake_timeout(role, "60"), milliseconds(60'000)) << role;
    EXPECT_EQ(handshake_timeout(role, "0.5"), milliseconds(500)) << role;
  }
}

TEST(ConnectionFlags, AServerUsesTheDefaultHandshakeTimeout) {
  EXPECT_EQ(handshake_timeout("server", "0.5"), TcpOptions().handshake_timeout);
}

}  // namespace
}  // namespace rdmacomm::programs
