#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mesh_comm_service/link.h"
#include "mesh_comm_service/mail.h"
#include "mesh_comm_service/terms.h"

namespace rdmacomm::mesh {
namespace {

using testing::HasSubstr;

Terms some_terms() {
  return {.op = Operation::kSend, .size = 1000, .total = 2500, .duration_us = 0, .depth = 8, .verify = true};
}

NodeResult some_result() {
  NodeResult result{.rank = 1, .address = "h1:2020", .pid = 77, .setup_us = 5, .elapsed_ns = 2000, .cpu_us = 3};
  result.queue_pairs = 2;
  result.latency_ns.add(123);
  result.peers = {{.rank = 0,
                   .messages = 3,
                   .bytes = 2500,
                   .counted_messages = 3,
                   .counted_bytes = 2500,
                   .corrupt = 0,
                   .elapsed_ns = 1000,
                   .latency_us = {.count = 1, .p50 = 0.123},
                   .lost = true}};
  return result;
}

TEST(Terms, NameTheValueThatIsOutOfRange) {
  const auto why = [](auto change) {
    Terms terms = some_terms();
    change(terms);
    return terms.validate().error().context;
  };
  EXPECT_TRUE(some_terms().validate().ok());
  EXPECT_THAT(why([](Terms& terms) { terms.size = 0; }), HasSubstr("--size"));
  EXPECT_THAT(why([](Terms& terms) { terms.size = Terms::kMaxBytes + 1; }), HasSubstr("--size"));
  EXPECT_THAT(why([](Terms& terms) { terms.depth = 0; }), HasSubstr("--queue-depth=0: possible are 1 to 4096"));
  EXPECT_THAT(why([](Terms& terms) { terms.total = 0; }), HasSubstr("--total or --duration"));
  EXPECT_THAT(why([](Terms& terms) { terms.op = Operation::kFetchAdd; }), HasSubstr("--op"));
}

TEST(Terms, HaveAShorterLastMessage) {
  const Terms terms = some_terms();
  EXPECT_EQ(length_of(terms, 0), 1000U);
  EXPECT_EQ(length_of(terms, 2), 500U);
}

TEST(Terms, HaveADepthThatFitsTheSize) {
  EXPECT_EQ(usual_depth(1), 64U);
  EXPECT_EQ(usual_depth(64 << 10), 16U);
  EXPECT_EQ(usual_depth(1 << 30), 2U);
}

TEST(Terms, AreCountedIfTheTargetSeesTheMessages) {
  Terms terms = some_terms();
  terms.verify = false;
  EXPECT_TRUE(terms.is_counted());
  terms.op = Operation::kWrite;
  EXPECT_FALSE(terms.is_counted());
  terms.verify = true;
  EXPECT_TRUE(terms.is_counted());
  terms.op = Operation::kRead;
  EXPECT_FALSE(terms.is_counted());
}

TEST(Ops, HaveNames) {
  for (const char* name : {"send", "write", "write_imm", "read"}) EXPECT_STREQ(op_name(parse_op(name).value()), name);
  EXPECT_THAT(parse_op("fetch_add").error().context, HasSubstr("send, write, write_imm and read"));
}

TEST(Introduction, IsDecodedAsItWasEncoded) {
  const Introduction sent{
      .rank = 3, .nodes = 8, .incarnation = 99, .terms = some_terms(), .running = true, .remaining_us = 5};
  const auto arrived = Introduction::decode(sent.encode());
  ASSERT_TRUE(arrived.has_value()) << arrived.error().message();
  EXPECT_EQ(arrived->rank, 3U);
  EXPECT_EQ(arrived->incarnation, 99U);
  EXPECT_EQ(arrived->terms, sent.terms);
  EXPECT_TRUE(arrived->running);
  EXPECT_EQ(arrived->remaining_us, 5U);
}

TEST(Introduction, OfAnUnknownClientIsRefused) {
  const auto encoded = Introduction{.rank = 3, .nodes = 8, .terms = some_terms()}.encode();
  for (std::size_t length = 0; length < encoded.size(); ++length) {
    EXPECT_FALSE(Introduction::decode(std::span(encoded).first(length)).has_value()) << length;
  }
  auto newer = encoded;
  newer[4] = std::byte{9};
  EXPECT_EQ(Introduction::decode(newer).code(), Errc::kVersionMismatch);
  EXPECT_EQ(Introduction::decode(Introduction{.rank = 8, .nodes = 8, .terms = some_terms()}.encode()).code(),
            Errc::kBadMessage);
  EXPECT_EQ(Introduction::decode(Introduction{.rank = 0, .nodes = 8}.encode()).code(), Errc::kBadMessage);
}

TEST(Introduction, OfAnotherMeshIsRefusedWithBothValues) {
  const Introduction self{.rank = 0, .nodes = 8, .terms = some_terms()};
  Introduction other{.rank = 1, .nodes = 8, .terms = some_terms()};
  EXPECT_TRUE(self.check_fits(other).ok());
  other.terms.size = 4096;
  EXPECT_THAT(self.check_fits(other).error().context, HasSubstr("--size=1000"));
  EXPECT_THAT(self.check_fits(other).error().context, HasSubstr("but node 1 has --op=send --size=4K"));
  other = {.rank = 1, .nodes = 7, .terms = some_terms()};
  EXPECT_THAT(self.check_fits(other).error().context, HasSubstr("node 0 has 8 nodes, but node 1 has 7"));
  other = {.rank = 0, .nodes = 8, .terms = some_terms()};
  EXPECT_THAT(self.check_fits(other).error().context, HasSubstr("both peers are node 0"));
}

TEST(Mail, IsDecodedAsItWasEncoded) {
  for (const MailKind kind : {MailKind::kReady, MailKind::kFinished, MailKind::kChecked, MailKind::kResult,
                              MailKind::kOver, MailKind::kStop}) {
    const Mail sent{.kind = kind,
                    .tally = {.messages = 1, .bytes = 2, .corrupt = 3, .difference = "here"},
                    .rank = 5,
                    .text = "gone",
                    .result = some_result()};
    const auto arrived = Mail::decode(sent.encode());
    ASSERT_TRUE(arrived.has_value()) << arrived.error().message();
    EXPECT_EQ(arrived->kind, kind);
    EXPECT_EQ(arrived->tally.bytes, 2U);
    EXPECT_EQ(arrived->tally.difference, "here");
    EXPECT_EQ(arrived->rank, 5U);
    EXPECT_EQ(arrived->text, "gone");
    ASSERT_EQ(arrived->result.peers.size(), kind == MailKind::kResult ? 1U : 0U);
    if (kind != MailKind::kResult) continue;
    EXPECT_EQ(arrived->result.address, "h1:2020");
    EXPECT_EQ(arrived->result.latency_ns.count(), 1U);
    EXPECT_EQ(arrived->result.peers[0].counted_bytes, 2500U);
    EXPECT_EQ(arrived->result.peers[0].latency_us.p50, 0.123);
    EXPECT_TRUE(arrived->result.peers[0].lost);
  }
}

TEST(Mail, InvalidMailIsRefused) {
  const auto encoded = Mail{.kind = MailKind::kResult, .result = some_result()}.encode();
  for (std::size_t length = 0; length < encoded.size(); ++length) {
    EXPECT_EQ(Mail::decode(std::span(encoded).first(length)).code(), Errc::kBadMessage) << length;
  }
  auto longer = encoded;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Mail::decode(longer).error().context, HasSubstr("too many"));
  auto unknown = encoded;
  unknown[6] = std::byte{77};
  EXPECT_THAT(Mail::decode(unknown).error().context, HasSubstr("unknown kind 77"));
  EXPECT_THAT(Mail::decode(Mail{.rank = 5000}.encode()).error().context, HasSubstr("node 5000"));
}

TEST(Mail, CannotSteerATerminal) {
  const auto arrived = Mail::decode(Mail{.kind = MailKind::kStop, .text = "\x1b[2J"}.encode());
  EXPECT_EQ(arrived->text, "?[2J");
}

TEST(Notes, AreDecodedAsTheyWereEncoded) {
  std::array<std::byte, Link::kNoteBytes> bytes{};
  write_note(bytes, 0x0102030405060708, 42);
  EXPECT_EQ(bytes[0], std::byte{8});
  EXPECT_EQ(read_note(bytes).messages, 0x0102030405060708U);
  EXPECT_EQ(read_note(bytes).bytes, 42U);
}

TEST(Messages, DifferFromEachOther) {
  EXPECT_NE(message_seed(0, 1, 0), message_seed(1, 0, 0));
  EXPECT_NE(message_seed(0, 1, 0), message_seed(0, 1, 1));
}

}  // namespace
}  // namespace rdmacomm::mesh
