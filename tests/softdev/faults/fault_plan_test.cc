// The language of faults: the meaning of each rule, its canonical text, and the error for each mistake.
#include "softdev/faults/fault_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>

namespace rdmacomm::softdev {
namespace {

using ::testing::HasSubstr;

std::string canonical(const std::string& text) {
  const auto plan = parse_fault_plan(text);
  return plan ? to_text(*plan) : "error: " + plan.error().context;
}

FaultRule only_rule(const std::string& text) {
  const auto plan = parse_fault_plan(text);
  EXPECT_TRUE(plan.has_value()) << text;
  if (!plan || plan->rules.size() != 1) {
    ADD_FAILURE() << text << " is not one rule";
    return {};
  }
  return plan->rules.front();
}

TEST(FaultPlan, CanonicalTextIsReadAsItself) {
  for (const char* const text : {
           "",
           "seed 0",
           "seed 18446744073709551615; at 1 fail LOC_LEN_ERR",
           "at 100 fail RETRY_EXC_ERR opcode=WRITE",
           "fail GENERAL_ERR",
           "every 50 rnr 3 qp=2 opcode=SEND",
           "1% delay 1ms..10ms",
           "0.0001% slow 1us",
           "12.5% lose type=UC,UD",
           "100% delay 3600s",
           "at 1000 link down 200ms",
           "from 500 slow 2ms",
           "from 3 to 9 slow 2s..3s",
           "at 10 die peer",
           "at 10 die",
           "at 10 freeze peer 1s",
           "at 10 freeze 1500us",
           "at 3 refuse reg_mr ENOMEM",
           "refuse create_qp EAGAIN program=ib_write_bw",
           "at 200 overrun",
           "at 400 device fatal",
           "at 5 event CLIENT_REREGISTER device=mlx5_0",
           "reorder 16",
           "10% reorder 2 qp=1 type=RC device=soft1 program=a rank=0",
           "at 1 fail REM_OP_ERR opcode=SEND,READ,FETCH_ADD,FLUSH peer=10.1.2.3 rank=4294967295",
           "at 1 lose peer=fe80::1",
       }) {
    EXPECT_EQ(canonical(text), text);
  }
}

TEST(FaultPlan, OtherFormsHaveACanonicalText) {
  EXPECT_EQ(canonical("at 1 lose;;\n # all of it\n\tseed\t7 # the seed; not a rule\r\n at 2 lose ;"),
            "seed 7; at 1 lose; at 2 lose");
  EXPECT_EQ(canonical("always reorder 2"), "reorder 2");
  EXPECT_EQ(canonical("refuse create_cq"), "refuse create_cq ENOMEM");
  EXPECT_EQ(canonical("refuse create_cq device=a"), "refuse create_cq ENOMEM device=a");
  EXPECT_EQ(canonical("05.50% delay 1000us..2000000us"), "5.5% delay 1ms..2s");
  EXPECT_EQ(canonical("at 1 lose peer=::ffff:10.0.0.1"), "at 1 lose peer=10.0.0.1");
  EXPECT_EQ(canonical("at 1 lose type=UD,UC opcode=SEND,SEND qp=2"), "at 1 lose qp=2 opcode=SEND type=UC,UD");
}

TEST(FaultPlan, MembersOfARule) {
  const FaultRule rule = only_rule("from 3 to 9 freeze peer 1ms..20ms qp=7 opcode=WRITE,READ rank=2");
  EXPECT_EQ(rule.when.kind, FaultWhen::Kind::kFrom);
  EXPECT_EQ(std::pair(rule.when.first, rule.when.last), std::pair(std::uint64_t{3}, std::uint64_t{9}));
  EXPECT_EQ(rule.action, FaultAction::kFreeze);
  EXPECT_TRUE(rule.at_peer);
  EXPECT_EQ(rule.shortest, std::chrono::milliseconds(1));
  EXPECT_EQ(rule.longest, std::chrono::milliseconds(20));
  EXPECT_EQ(rule.selectors.queue_pair, 7U);
  EXPECT_EQ(rule.selectors.opcodes, fault_opcode_bit(IBV_WR_RDMA_WRITE) | fault_opcode_bit(IBV_WR_RDMA_READ));
  EXPECT_EQ(rule.selectors.rank, 2U);
  EXPECT_EQ(only_rule("0.25% lose").when.chance, 2500U);
  EXPECT_EQ(only_rule("refuse reg_mr EPERM").error, EPERM);
  EXPECT_EQ(only_rule("fail MW_BIND_ERR").status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(only_rule("event SM_CHANGE").event, IBV_EVENT_SM_CHANGE);
}

TEST(FaultPlan, AnErrorNamesThePlaceTheWordAndThePossibleWords) {
  const std::pair<std::string, std::string> cases[] = {
      {"at 1 lose; at 2 fial GENERAL_ERR",
       "rule 2, character 17: \"fial\" cannot be used here; possible: fail, rnr, delay, slow, lose, reorder, link, "
       "event, "
       "device, overrun, die, freeze, refuse"},
      {"after 1 lose",
       "rule 1, character 1: \"after\" cannot be used here; possible: at N, from N, from N to N, every N, "
       "P%, always, or an action: fail"},
      {"at", "rule 1, character 3: the rule ends too early; possible here: a number from 1 to 1000000000000"},
      {"at 0 lose", "character 4: \"0\" cannot be used here; possible: a number from 1 to 1000000000000"},
      {"at 1000000000001 lose", "a number from 1 to"},
      {"at -1 lose", "\"-1\" cannot be used here"},
      {"at 1", "character 5: the rule ends too early; possible here: fail, rnr"},
      {"from 9 to 3 lose",
       "character 11: \"3\" cannot be used here; possible: a number that is not less than the first"},
      {"0% lose", "\"0%\" cannot be used here; possible: 0.0001% to 100%, with at most 4 decimals"},
      {"100.1% lose", "0.0001% to 100%"},
      {"1.00001% lose", "0.0001% to 100%"},
      {"1.% lose", "0.0001% to 100%"},
      {"% lose", "0.0001% to 100%"},
      {"at 1 fail", "the rule ends too early; possible here: LOC_LEN_ERR, LOC_QP_OP_ERR"},
      {"at 1 fail SUCCESS", "\"SUCCESS\" cannot be used here; possible: LOC_LEN_ERR"},
      {"at 1 rnr 1001", "a number from 1 to 1000"},
      {"reorder 1025", "a number from 1 to 1024"},
      {"at 1 delay 5", "\"5\" cannot be used here; possible: a time from 1us to 3600s, or a range such as 1ms..10ms"},
      {"at 1 delay 0ms", "a time from 1us"},
      {"at 1 delay 3601s", "a time from 1us"},
      {"at 1 delay 2ms..2ms", "a time from 1us"},
      {"at 1 delay 2ms..1ms", "a time from 1us"},
      {"at 1 delay 1ms..", "a time from 1us"},
      {"at 1 delay", "the rule ends too early; possible here: a time from 1us"},
      {"at 1 link up 1s", "character 11: \"up\" cannot be used here; possible: down"},
      {"at 1 link", "the rule ends too early; possible here: down"},
      {"at 1 event QP_FATAL", "possible: PORT_ERR, PORT_ACTIVE"},
      {"at 1 device lost", "possible: fatal"},
      {"at 1 die you", "\"you\" cannot be used here; possible: the end of the rule, opcode=, peer=, qp=, type="},
      {"refuse dereg_mr", "possible: open_device, alloc_pd"},
      {"refuse reg_mr EWHAT", "possible: ENOMEM, EINVAL"},
      {"refuse reg_mr qp=1",
       "\"qp=1\" cannot be used here; possible: the end of the rule, device=, program=, rank= (each"},
      {"reorder 2 opcode=SEND", "possible: the end of the rule, qp=, type=, device="},
      {"lose qp=1 qp=1", "character 11: \"qp=1\" cannot be used here"},
      {"lose qp=0", "character 9: \"0\" cannot be used here; possible: a number from 1"},
      {"lose qp=", "\"\" cannot be used here; possible: a number from 1"},
      {"lose rank=x", "a number from 0"},
      {"lose opcode=SEND,,READ", "character 18: \"\" cannot be used here; possible: SEND, SEND_WITH_IMM"},
      {"lose opcode=PUT", "possible: SEND"},
      {"lose type=DC", "possible: RC, UC, UD, XRC"},
      {"lose peer=somewhere", "an IPv4 address, an IPv6 address or a GID"},
      {"lose peer=" + std::string(100, '1'), "an IPv4 address"},
      {"lose program=a/b", "a name of at most 64 letters"},
      {"lose device=" + std::string(65, 'a'), "a name of at most 64 letters"},
      {"seed", "the rule ends too early; possible here: a number"},
      {"seed x", "a number up to 18446744073709551615"},
      {"seed 18446744073709551616", "a number up to 18446744073709551615"},
      {"seed 1 2", "\"2\" cannot be used here; possible: the end of the rule"},
      {"seed 1; seed 1", "rule 2: the plan already has a seed"},
      {"at 1 \x1b[31m", "rule 1, character 6: \"?[31m\" cannot be used here"},
  };
  for (const auto& [text, words] : cases) {
    const auto plan = parse_fault_plan(text);
    ASSERT_FALSE(plan.has_value()) << text;
    EXPECT_EQ(plan.error().code, std::errc::invalid_argument);
    EXPECT_THAT(plan.error().context, HasSubstr(words)) << text;
    EXPECT_EQ(plan.error().context.find('\n'), std::string::npos);
  }
}

TEST(FaultPlan, HasLimits) {
  std::string rules;
  for (std::size_t i = 0; i < FaultPlan::kMaxRules; ++i) rules += "at 1 lose;";
  EXPECT_TRUE(parse_fault_plan(rules).has_value());
  EXPECT_EQ(canonical(rules + "at 1 lose"), "error: the plan has more than 64 rules");
  EXPECT_TRUE(parse_fault_plan(std::string(FaultPlan::kMaxText, ' ')).has_value());
  EXPECT_EQ(canonical(std::string(FaultPlan::kMaxText + 1, ' ')), "error: the plan has more than 16384 characters");
}

}  // namespace
}  // namespace rdmacomm::softdev
