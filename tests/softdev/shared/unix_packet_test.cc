// Connections by the names of UNIX sockets.
#include "softdev/shared/unix_packet.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace rdmacomm::softdev::test {
namespace {

/// Another process may have bound the name without accepting connections.
TEST(Connecting, EndsWithATimeoutIfNoProcessAccepts) {
  const std::string name = std::string(1, '\0') + "rdmacomm/unix_packet_test/" + std::to_string(getpid());
  const UniqueFd owner = bind_to(name);
  ASSERT_TRUE(owner);
  ASSERT_EQ(listen(owner.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  while (UniqueFd one = connect_to(name)) waiting.push_back(std::move(one));
  EXPECT_EQ(errno, ETIMEDOUT);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
