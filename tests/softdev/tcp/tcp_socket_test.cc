// The number of bytes that one call passes to a socket.
#include "softdev/tcp/tcp_socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace rdmacomm::softdev::test {
namespace {

struct BothEnds {
  UniqueFd out;
  UniqueFd in;

  BothEnds() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  std::string received() {
    std::string text(100, ' ');
    iovec place{text.data(), text.size()};
    text.resize(tcp_receive(in.get(), {&place, 1}).bytes);
    return text;
  }
};

/// Sends "onetwothree" as three pieces.
Moved send_words(int socket, std::size_t longest) {
  static std::array<std::string, 3> words{"one", "two", "three"};
  std::array<iovec, 3> pieces;
  for (std::size_t i = 0; i < words.size(); ++i) pieces[i] = {words[i].data(), words[i].size()};
  return tcp_send(socket, pieces, longest);
}

TEST(TcpSocket, GetsAllBytesInOneCall) {
  BothEnds ends;
  EXPECT_EQ(send_words(ends.out.get(), SIZE_MAX).bytes, 11U);
  EXPECT_EQ(ends.received(), "onetwothree");
}

TEST(TcpSocket, GetsAtMostTheLongestPiece) {
  constexpr std::string_view kAll = "onetwothree";
  for (std::size_t longest = 1; longest <= kAll.size() + 1; ++longest) {
    BothEnds ends;
    const Moved sent = send_words(ends.out.get(), longest);
    EXPECT_EQ(sent.error, 0);
    EXPECT_EQ(sent.bytes, std::min(longest, kAll.size()));
    EXPECT_EQ(ends.received(), kAll.substr(0, longest));
  }
}

TEST(TcpSocket, TheLongestPieceDependsOnCongestionControl) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  constexpr std::string_view kReno = "reno";  // each kernel has it, for all users
  ASSERT_EQ(setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size()), 0);
  EXPECT_EQ(tcp_longest_send(socket.get()), SIZE_MAX);
  constexpr std::string_view kBbr = "bbr";
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kBbr.data(), kBbr.size()) != 0) {
    GTEST_SKIP() << "no BBR here";
  }
  EXPECT_LT(tcp_longest_send(socket.get()), SIZE_MAX);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
