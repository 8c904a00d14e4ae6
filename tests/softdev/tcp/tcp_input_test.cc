// Reading from a connection whose data is no longer needed.
#include "softdev/tcp/tcp_input.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <vector>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {
namespace {

int unread(const UniqueFd& socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket.get(), FIONREAD, &bytes), 0);
  return bytes;
}

TEST(TcpInput, AnEndlessSenderIsReadInPieces) {
  constexpr std::size_t kAtATime = 64;
  constexpr std::size_t kSent = 1024 * kAtATime;
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const UniqueFd ours(ends[0]);
  UniqueFd others(ends[1]);
  const std::vector<std::byte> much(kSent);
  ASSERT_EQ(send(others.get(), much.data(), much.size(), 0), static_cast<ssize_t>(kSent));

  TcpInput input(ours.get(), kAtATime);
  EXPECT_TRUE(input.linger());
  EXPECT_GT(unread(ours), 0) << "one call reads all there is, however much comes";
  for (int round = 0; round < 1024 && unread(ours) != 0; ++round) EXPECT_TRUE(input.linger());
  EXPECT_EQ(unread(ours), 0);

  others.reset();
  input.begin_round();
  EXPECT_FALSE(input.linger());
}

/// A process may have thousands of connections, most of which carry little data.
TEST(TcpInput, TheBufferGrowsWithTheBytesOfOneRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const UniqueFd ours(ends[0]);
  const UniqueFd others(ends[1]);
  TcpInput input(ours.get(), TcpInput::kFirst);
  const std::vector<std::byte> bytes(64 * 1024);
  const auto read_all = [&] {
    input.begin_round();
    while (input.fill(1) == 0) (void)input.skip(input.available());
  };
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(send(others.get(), bytes.data(), TcpInput::kFirst / 2, 0), static_cast<ssize_t>(TcpInput::kFirst / 2));
    read_all();
  }
  EXPECT_EQ(input.room(), TcpInput::kFirst);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(send(others.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    read_all();
  }
  EXPECT_GT(input.room(), bytes.size());
  EXPECT_LE(input.room(), TcpInput::kUsual);
}

}  // namespace
}  // namespace rdmacomm::softdev
