// A plan of faults, which a user writes.
#include "fuzz/properties.h"
#include "softdev/faults/fault_plan.h"
#include "softdev/faults/qp_faults.h"

namespace rdmacomm::fuzz {
namespace {
namespace fault_plan_target {

using namespace softdev;

/// The values of a rule are in their ranges, and only the members of its action are set.
void check_rule(const FaultRule& rule) {
  RDMACOMM_FUZZ_CHECK(rule.when.first <= FaultWhen::kMaxCount && rule.when.last <= FaultWhen::kMaxCount);
  RDMACOMM_FUZZ_CHECK(rule.when.last == 0 || rule.when.last >= rule.when.first);
  RDMACOMM_FUZZ_CHECK(rule.when.chance <= FaultWhen::kCertain);
  RDMACOMM_FUZZ_CHECK(rule.when.kind != FaultWhen::Kind::kEvery || rule.when.first != 0);
  RDMACOMM_FUZZ_CHECK(rule.shortest <= rule.longest && rule.longest <= FaultRule::kLongest);
  RDMACOMM_FUZZ_CHECK(rule.number <= FaultRule::kMaxWindow);
  RDMACOMM_FUZZ_CHECK((rule.error != 0) == (rule.action == FaultAction::kRefuse));
  RDMACOMM_FUZZ_CHECK((rule.status != IBV_WC_SUCCESS) == (rule.action == FaultAction::kFail));
  RDMACOMM_FUZZ_CHECK(rule.selectors.program.size() <= FaultSelectors::kMaxName);
  RDMACOMM_FUZZ_CHECK(rule.selectors.device.size() <= FaultSelectors::kMaxName);
}

/// Two runs of the plan make the same decisions, for a queue pair that the rules may select.
void check_decisions(const FaultPlan& plan) {
  FaultPlan seeded = plan;
  if (!seeded.seed) seeded.seed = 1;
  const auto run = [&seeded] { return std::make_shared<FaultRun>(seeded, FaultRun::Process{"program", 0}); };
  QpFaults first(run(), {"soft0", kOnRc, 1});
  QpFaults second(run(), {"soft0", kOnRc, 1});
  for (int i = 0; i < 8; ++i) {
    const RequestFaults a = first.next(IBV_WR_SEND, {});
    const RequestFaults b = second.next(IBV_WR_SEND, {});
    RDMACOMM_FUZZ_CHECK(a.failure == b.failure && a.delay == b.delay && a.slow == b.slow);
    RDMACOMM_FUZZ_CHECK(a.not_ready_tries == b.not_ready_tries && a.effects.size() == b.effects.size());
    RDMACOMM_FUZZ_CHECK(a.delay <= FaultRule::kLongest && a.slow <= FaultRule::kLongest);
    RDMACOMM_FUZZ_CHECK(first.next_hold(false) == second.next_hold(false));
  }
}

void run(Bytes input) {
  const auto plan = parse_fault_plan(text_of(input));
  if (!check_outcome(plan)) return;
  RDMACOMM_FUZZ_CHECK(plan->rules.size() <= FaultPlan::kMaxRules);
  for (const FaultRule& rule : plan->rules) check_rule(rule);
  const std::string text = to_text(*plan);
  RDMACOMM_FUZZ_CHECK(is_plain(text));
  const auto again = parse_fault_plan(text);
  // The canonical text may be longer than its source, and too long for a plan.
  RDMACOMM_FUZZ_CHECK(again.has_value() ? *again == *plan : text.size() > FaultPlan::kMaxText);
  check_decisions(*plan);
}

std::vector<Seed> seeds() {
  return {
      {"fail", bytes_of("seed 42; at 100 fail RETRY_EXC_ERR opcode=WRITE,READ qp=2")},
      {"rnr", bytes_of("every 50 rnr 3 opcode=SEND type=RC,XRC")},
      {"delay", bytes_of("1.25% delay 1ms..10ms; from 500 slow 2ms")},
      {"lose", bytes_of("5% lose peer=10.1.2.3; lose peer=fe80::1")},
      {"link", bytes_of("at 1000 link down 200ms device=soft1")},
      {"processes", bytes_of("at 10 die peer; at 11 freeze 1s; at 12 freeze peer 5us..7us rank=3")},
      {"refuse", bytes_of("at 3 refuse reg_mr EAGAIN program=ib_write_bw; refuse create_qp")},
      {"device", bytes_of("at 200 overrun; at 400 device fatal; from 1 to 2 event GID_CHANGE")},
      {"lines", bytes_of("# rules\n\nreorder 16 # of 1 to 1024\r\nalways reorder 2;;\n")},
      {"another_word", bytes_of("at 1 fial")},
      {"too_large", bytes_of("at 18446744073709551616 lose")},
  };
}

}  // namespace fault_plan_target
}  // namespace

const Target fault_plan{"fault_plan", fault_plan_target::run, fault_plan_target::seeds};

}  // namespace rdmacomm::fuzz
