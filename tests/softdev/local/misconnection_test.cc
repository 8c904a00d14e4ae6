// The reasons why a queue pair does not accept the requests of another one.
#include "softdev/local/misconnection.h"

#include <gtest/gtest.h>

#include "softdev/local/link_terms.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr ibv_gid kFirst = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
constexpr ibv_gid kSecond = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
constexpr LinkTerms kSent{
    .source = kFirst, .target = kSecond, .gid_type = IBV_GID_TYPE_ROCE_V2, .psn = 7, .peer_qpn = 5};

/// The reason if the target expects `expected` and gets requests with kSent.
std::string reason(const LinkTerms& expected, const LinkTerms& sent = kSent) {
  QpShared target{};
  target.link = 1;
  publish_terms(target, expected);
  return why_refused(target, sent);
}

TEST(Misconnection, AQueuePairThatIsNotReady) {
  const QpShared target{};
  EXPECT_EQ(why_refused(target, kSent), "it is not in the state RTR or RTS, or its port is down");
}

TEST(Misconnection, EachTermHasItsReason) {
  LinkTerms other = kSent;
  other.peer_qpn = 6;
  EXPECT_EQ(reason(other), "it is connected to queue pair 6");
  other = kSent;
  other.source = kSecond;
  EXPECT_EQ(reason(other), "it expects packets from fe80::2 to fe80::2, and these go from fe80::1 to fe80::2");
  other = kSent;
  other.gid_type = IBV_GID_TYPE_ROCE_V1;
  EXPECT_EQ(reason(other), "it uses RoCE v1, and this one RoCE v2");
  other = kSent;
  other.psn = 8;
  EXPECT_EQ(reason(other), "it expects PSN 8 first (rq_psn), and this one begins with PSN 7 (sq_psn)");
  EXPECT_EQ(reason(kSent), "one of the two has been in RESET since they were connected; connect both again");
}

TEST(Misconnection, LidsAreNamedOnInfiniBand) {
  LinkTerms sent;
  sent.source_lid = 1;
  sent.target_lid = 2;
  LinkTerms expected = sent;
  expected.target_lid = 3;
  EXPECT_EQ(reason(expected, sent), "it expects packets from LID 1 to LID 3, and these go from LID 1 to LID 2");
}

TEST(LinkWord, DiffersWithEachTerm) {
  const auto word = [](auto change) {
    LinkTerms terms = kSent;
    change(terms);
    return link_word(1, 2, Service::kReliable, terms);
  };
  const std::uint64_t usual = word([](LinkTerms&) {});
  EXPECT_NE(usual, word([](LinkTerms& t) { t.psn ^= 1; }));
  EXPECT_NE(usual, word([](LinkTerms& t) { t.source = kSecond; }));
  EXPECT_NE(usual, word([](LinkTerms& t) { t.target = kFirst; }));
  EXPECT_NE(usual, word([](LinkTerms& t) { t.gid_type = IBV_GID_TYPE_ROCE_V1; }));
  EXPECT_NE(usual, word([](LinkTerms& t) { t.source_lid = 1; }));
  EXPECT_NE(usual, word([](LinkTerms& t) { t.target_lid = 1; }));
  EXPECT_NE(usual, link_word(1, 2, Service::kReliable, kSent, 1));
  EXPECT_NE(usual, link_word(1, 2, Service::kUnreliable, kSent));
  EXPECT_NE(usual, link_word(2, 1, Service::kReliable, kSent));
  EXPECT_NE(link_word(1, 2, Service::kReliable, {}), link_word_by_tcp(1, 2, Service::kReliable, 0));
}

}  // namespace
}  // namespace rdmacomm::softdev::test
