// The amount of data that one end of a connection keeps while the peer does not read.
#include "softdev/tcp/tcp_output.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "softdev/common/device_limits.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::array<std::byte, 8> kOutputBytes{};
constexpr std::size_t kAnswer = sizeof(TcpAnswer) + kOutputBytes.size();

TcpAnswer answer(TcpAnswer::Kind kind) {
  TcpAnswer answer;
  answer.kind = kind;
  return answer;
}

/// The answers to all requests that a peer may have outstanding, and the additional answers for a message without a
/// receive.
void answer_as_many_as_may_be_asked_for(TcpOutput& output) {
  for (int i = 0; i < kMaxReadDepth; ++i) output.respond(kOutputBytes);
  output.send_answer(answer(TcpAnswer::kNotReady));
  output.send_answer(answer(TcpAnswer::kReady));
}

TEST(TcpOutput, MoreAnswersThanAPeerMayAskForAreTooMany) {
  TcpOutput output;
  answer_as_many_as_may_be_asked_for(output);
  EXPECT_FALSE(output.is_flooded());
  output.respond(kOutputBytes);
  EXPECT_TRUE(output.is_flooded());
  output.sent(kAnswer - 1);
  EXPECT_TRUE(output.is_flooded());
  output.sent(1);
  EXPECT_FALSE(output.is_flooded());
}

TEST(TcpOutput, AnswersBehindALongReadAreCountedToo) {
  TcpOutput output;
  output.respond_later(TcpRequest{});
  ASSERT_TRUE(output.next_response());
  ASSERT_TRUE(output.is_reading());
  answer_as_many_as_may_be_asked_for(output);
  EXPECT_TRUE(output.is_flooded());
  output.sent(output.bytes().size());
  output.end_reading();
  EXPECT_FALSE(output.is_flooded());
  output.respond_later(TcpRequest{});
  EXPECT_TRUE(output.is_flooded());
}

TEST(TcpOutput, TheUnsentAmountDoesNotDependOnEarlierAnswers) {
  TcpOutput output;
  for (int i = 0; i < 100'000; ++i) {
    output.respond(kOutputBytes);
    output.respond(kOutputBytes);
    output.sent(kAnswer);  // one of the two remains
    ASSERT_FALSE(output.is_flooded()) << i;
    output.sent(kAnswer - 1);
    output.sent(1);
  }
  EXPECT_TRUE(output.bytes().empty());
  for (int i = 0; i < kMaxReadDepth; ++i) output.respond(kOutputBytes);
  for (int i = 0; i < 100'000; ++i) {
    output.sent(kAnswer);
    output.respond(kOutputBytes);
    ASSERT_FALSE(output.is_flooded()) << i;
    ASSERT_EQ(output.bytes().size(), kMaxReadDepth * kAnswer);
  }
  EXPECT_LE(output.kept(), 4 * kMaxReadDepth * kAnswer) << "what was sent is not kept";
}

TEST(TcpOutput, BytesThatGoFirstAreNotCountedAsAnswers) {
  TcpOutput output;
  answer_as_many_as_may_be_asked_for(output);
  output.go_first(std::vector<std::byte>(1000));
  EXPECT_FALSE(output.is_flooded());
  output.respond(kOutputBytes);
  output.sent(1000);
  EXPECT_TRUE(output.is_flooded());
  output.sent(kAnswer);
  EXPECT_FALSE(output.is_flooded());
}

TEST(TcpOutput, BytesThatGoFirstAreNotTakenForTheLastReport) {
  TcpOutput output;
  output.one_is_done();
  output.report_done();
  output.sent(sizeof(TcpAnswer));
  output.go_first(std::vector<std::byte>(1000));
  output.one_is_done();
  output.report_done();
  EXPECT_EQ(output.bytes().size(), 1000 + sizeof(TcpAnswer));
}

TEST(TcpOutput, UnsentReportsAreMerged) {
  TcpOutput output;
  for (int i = 0; i < 1000; ++i) {
    output.one_is_done();
    output.report_done();
  }
  ASSERT_EQ(output.bytes().size(), sizeof(TcpAnswer));
  TcpAnswer said;
  std::memcpy(&said, output.bytes().data(), sizeof(said));
  EXPECT_EQ(said.kind, TcpAnswer::kDone);
  EXPECT_EQ(said.done, 1000U);
  output.sent(1);  // that one is being sent
  output.one_is_done();
  output.report_done();
  EXPECT_EQ(output.bytes().size(), 2 * sizeof(TcpAnswer) - 1);
  output.sent(sizeof(TcpAnswer) - 1);
  std::memcpy(&said, output.bytes().data(), sizeof(said));
  EXPECT_EQ(said.done, 1001U);
}

}  // namespace
}  // namespace rdmacomm::softdev
