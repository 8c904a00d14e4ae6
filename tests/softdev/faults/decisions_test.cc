// Which requests, completions and calls the rules of a plan choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "softdev/faults/fault_run.h"
#include "softdev/faults/qp_faults.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev {
namespace {

using rdmacomm::testing::EnvironmentVariable;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array<std::uint8_t, 16> kNoPeer{};

std::shared_ptr<FaultRun> run_of(const std::string& plan, const FaultRun::Process& process = {"program", {}}) {
  auto parsed = parse_fault_plan(plan);
  EXPECT_TRUE(parsed.has_value()) << plan;
  return std::make_shared<FaultRun>(std::move(*parsed), process);
}

/// A queue pair of a plan with these properties.
QpFaults faults_of(const std::shared_ptr<FaultRun>& run, FaultTransport transport = kOnRc, std::uint32_t ordinal = 1) {
  return QpFaults(run, {"soft0", transport, ordinal});
}

/// The requests, from 1 to `count`, that have a fault.
std::vector<int> chosen(QpFaults& faults, int count, ibv_wr_opcode opcode = IBV_WR_SEND) {
  std::vector<int> found;
  for (int i = 1; i <= count; ++i) {
    if (faults.next(opcode, kNoPeer).any()) found.push_back(i);
  }
  return found;
}

std::vector<int> chosen(const std::string& plan, int count, FaultTransport transport = kOnRc) {
  QpFaults faults = faults_of(run_of(plan), transport);
  return chosen(faults, count);
}

TEST(FaultDecisions, Occasions) {
  EXPECT_THAT(chosen("at 3 fail GENERAL_ERR", 9), ElementsAre(3));
  EXPECT_THAT(chosen("from 7 delay 1ms", 9), ElementsAre(7, 8, 9));
  EXPECT_THAT(chosen("from 2 to 4 delay 1ms", 9), ElementsAre(2, 3, 4));
  EXPECT_THAT(chosen("every 4 delay 1ms", 9), ElementsAre(4, 8));
  EXPECT_THAT(chosen("always delay 1ms", 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(chosen("100% delay 1ms", 3), ElementsAre(1, 2, 3));
}

TEST(FaultDecisions, AChanceIsAboutMet) {
  const std::size_t times = chosen("seed 1; 10% delay 1ms", 100'000).size();
  EXPECT_GT(times, 9'500U);
  EXPECT_LT(times, 10'500U);
}

TEST(FaultDecisions, TheSeedDecides) {
  const auto with = [](const char* seed) { return chosen("seed " + std::string(seed) + "; 20% delay 1ms", 1000); };
  EXPECT_EQ(with("7"), with("7"));
  EXPECT_NE(with("7"), with("8"));
}

TEST(FaultDecisions, ARunWithoutASeedDrawsOneThatRepeatsIt) {
  const auto first = run_of("20% delay 1us..1s");
  const auto second = run_of(to_text(first->plan()));
  QpFaults a = faults_of(first);
  QpFaults b = faults_of(second);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(a.next(IBV_WR_SEND, kNoPeer).delay, b.next(IBV_WR_SEND, kNoPeer).delay);
}

TEST(FaultDecisions, OtherRulesAndQueuePairsChangeNothing) {
  const auto alone = run_of("seed 3; 20% delay 1us..1s");
  const auto together = run_of("seed 3; 20% delay 1us..1s; 30% fail GENERAL_ERR; 50% reorder 4");
  QpFaults a = faults_of(alone, kOnRc, 2);
  QpFaults b = faults_of(together, kOnRc, 2);
  QpFaults another = faults_of(together, kOnRc, 1);
  bool is_different = false;
  for (int i = 0; i < 1000; ++i) {
    const auto delay = a.next(IBV_WR_SEND, kNoPeer).delay;
    is_different = another.next(IBV_WR_SEND, kNoPeer).delay != delay || is_different;
    (void)b.next_hold(true);
    EXPECT_EQ(delay, b.next(IBV_WR_SEND, kNoPeer).delay);
  }
  EXPECT_TRUE(is_different) << "each queue pair has a stream of its own";
}

TEST(FaultDecisions, RanksOfAJobDiffer) {
  const std::string plan = "seed 3; 20% delay 1ms";
  QpFaults first = faults_of(run_of(plan, {"p", 0}));
  QpFaults again = faults_of(run_of(plan, {"p", 0}));
  QpFaults second = faults_of(run_of(plan, {"p", 1}));
  const auto requests = chosen(first, 1000);
  EXPECT_EQ(requests, chosen(again, 1000));
  EXPECT_NE(requests, chosen(second, 1000));
}

TEST(FaultDecisions, SelectorsCountOnlyTheirRequests) {
  const auto run = run_of("at 2 delay 1ms opcode=READ,WRITE; at 1 slow 1ms peer=10.0.0.1");
  QpFaults faults = faults_of(run);
  std::array<std::uint8_t, 16> peer{};
  peer[10] = peer[11] = 0xff;
  peer[12] = 10;
  peer[15] = 1;
  EXPECT_FALSE(faults.next(IBV_WR_RDMA_READ, kNoPeer).any());
  EXPECT_FALSE(faults.next(IBV_WR_SEND, kNoPeer).any());
  EXPECT_EQ(faults.next(IBV_WR_RDMA_WRITE, kNoPeer).delay.count(), 1000);
  EXPECT_EQ(faults.next(IBV_WR_SEND, peer).slow.count(), 1000);
}

TEST(FaultDecisions, SelectorsOfQueuePairsAndProcesses) {
  const auto any = [](const std::string& selector, const FaultRun::Process& process, const QpFaults::Facts& facts) {
    return QpFaults::create(run_of("delay 1ms " + selector, process), facts) != nullptr;
  };
  EXPECT_TRUE(any("qp=2", {"p", {}}, {"soft0", kOnRc, 2}));
  EXPECT_FALSE(any("qp=2", {"p", {}}, {"soft0", kOnRc, 1}));
  EXPECT_TRUE(any("type=UD,UC", {"p", {}}, {"soft0", kOnUd, 1}));
  EXPECT_FALSE(any("type=UD,UC", {"p", {}}, {"soft0", kOnRc, 1}));
  EXPECT_TRUE(any("device=soft0 program=p rank=3", {"p", 3}, {"soft0", kOnRc, 1}));
  EXPECT_FALSE(any("device=soft1", {"p", 3}, {"soft0", kOnRc, 1}));
  EXPECT_FALSE(any("program=q", {"p", 3}, {"soft0", kOnRc, 1}));
  EXPECT_FALSE(any("rank=4", {"p", 3}, {"soft0", kOnRc, 1}));
  EXPECT_FALSE(any("rank=0", {"p", {}}, {"soft0", kOnRc, 1}));
}

TEST(FaultDecisions, FaultsThatAKindOfQueuePairCannotHaveAreNotCounted) {
  EXPECT_THAT(chosen("lose", 2, kOnRc), IsEmpty());
  EXPECT_THAT(chosen("lose", 2, kOnUc), ElementsAre(1, 2));
  EXPECT_THAT(chosen("fail RETRY_EXC_ERR", 2, kOnUd), IsEmpty());
  EXPECT_THAT(chosen("fail LOC_PROT_ERR", 2, kOnUd), ElementsAre(1, 2));
  EXPECT_THAT(chosen("rnr 1", 2, kOnUc), IsEmpty());
  QpFaults rnr = faults_of(run_of("rnr 1"));
  EXPECT_THAT(chosen(rnr, 2, IBV_WR_RDMA_WRITE), IsEmpty()) << "a WRITE needs no receive";
  EXPECT_THAT(chosen(rnr, 2, IBV_WR_RDMA_WRITE_WITH_IMM), ElementsAre(1, 2));
  QpFaults local = faults_of(run_of("fail REM_ACCESS_ERR; die peer"));
  EXPECT_THAT(chosen(local, 2, IBV_WR_BIND_MW), IsEmpty());
}

TEST(FaultDecisions, SeveralFaultsOfOneRequestAddUp) {
  QpFaults faults =
      faults_of(run_of("delay 1ms; delay 3ms; slow 2ms; fail LOC_PROT_ERR; fail GENERAL_ERR; rnr 2; rnr 1"));
  const RequestFaults found = faults.next(IBV_WR_SEND, kNoPeer);
  EXPECT_EQ(found.delay.count(), 3000);
  EXPECT_EQ(found.slow.count(), 2000);
  EXPECT_EQ(found.failure, IBV_WC_LOC_PROT_ERR) << "that of the first rule";
  EXPECT_EQ(found.not_ready_tries, 2U);
}

TEST(FaultDecisions, TimesAreInTheirRange) {
  QpFaults faults = faults_of(run_of("seed 5; delay 10us..13us"));
  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(faults.next(IBV_WR_SEND, kNoPeer).delay.count());
  EXPECT_THAT(seen, ElementsAre(10, 11, 12, 13));
}

TEST(FaultDecisions, HoldsAreInTheirRange) {
  QpFaults faults = faults_of(run_of("seed 5; reorder 3"));
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(faults.next_hold(i % 2 == 0));
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
}

TEST(FaultDecisions, CallsAreCountedByTheProcess) {
  const auto run = run_of("at 2 refuse reg_mr EPERM; at 2 refuse reg_mr EBUSY; from 3 refuse create_qp device=soft1");
  EXPECT_EQ(run->refusal(FaultCall::kRegMr, "soft0"), 0);
  EXPECT_EQ(run->refusal(FaultCall::kCreateQp, "soft0"), 0);
  EXPECT_EQ(run->refusal(FaultCall::kRegMr, "soft1"), EPERM) << "the first rule that applies";
  EXPECT_EQ(run->refusal(FaultCall::kRegMr, "soft1"), 0);
  for (const int expected : {0, 0, ENOMEM, ENOMEM}) EXPECT_EQ(run->refusal(FaultCall::kCreateQp, "soft1"), expected);
}

TEST(FaultDecisions, CountsIncludeRulesThatNeverApplied) {
  const auto run = run_of("seed 1; at 2 delay 1ms; at 9 fail GENERAL_ERR");
  QpFaults faults = faults_of(run);
  (void)chosen(faults, 5);
  const auto counts = run->counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].rule, "at 2 delay 1ms");
  EXPECT_EQ(counts[0].times, 1U);
  EXPECT_EQ(counts[1].rule, "at 9 fail GENERAL_ERR");
  EXPECT_EQ(counts[1].times, 0U);
}

TEST(FaultDecisions, TheRankIsThatOfTheJob) {
  const EnvironmentVariable none1("OMPI_COMM_WORLD_RANK", nullptr);
  const EnvironmentVariable none2("PMIX_RANK", nullptr);
  const EnvironmentVariable none3("PMI_RANK", nullptr);
  const EnvironmentVariable none4("SLURM_PROCID", nullptr);
  EXPECT_EQ(FaultRun::this_process().rank, std::nullopt);
  EXPECT_EQ(FaultRun::this_process().program, program_invocation_short_name);
  const EnvironmentVariable slurm("SLURM_PROCID", "5");
  EXPECT_EQ(FaultRun::this_process().rank, 5U);
  const EnvironmentVariable invalid("PMI_RANK", "5x");
  EXPECT_EQ(FaultRun::this_process().rank, 5U) << "no number: not used";
  const EnvironmentVariable mpi("OMPI_COMM_WORLD_RANK", "6");
  EXPECT_EQ(FaultRun::this_process().rank, 6U);
}

}  // namespace
}  // namespace rdmacomm::softdev
