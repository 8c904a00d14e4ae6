#include "contract/contract_test.h"

namespace rdmacomm::contract {

Result<LinkedPair> LinkedPair::make(PairOptions options) {
  for (const TestDevice& device : {TestDevice::own(), TestDevice::peers()}) {
    if (const std::string reason = device.why_not(); !reason.empty()) return make_error(Errc::kNoDevice, reason);
  }
  options.left_device = TestDevice::own().choice();
  options.right_device = TestDevice::peers().choice();
  auto made = ConnectedPair::make(options);
  if (!made) return made.error();
  return LinkedPair{std::move(*made)};
}

Status LinkedPair::link() {
  auto linked = PairLinker::create()->link_both(link_end(ends.left.channel->adapter(), TestDevice::own().address),
                                                link_end(ends.right.channel->adapter(), TestDevice::peers().address));
  if (!linked) return linked.status();
  links = std::move(*linked);
  left_inbox = ends.left.buffer(64);
  right_inbox = ends.right.buffer(64);
  return {};
}

void ContractTest::start(const PairOptions& options) {
  auto made = LinkedPair::make(options);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const Status linked = pairs_.emplace_back(std::move(*made)).link();
  ASSERT_TRUE(linked.ok()) << linked.message();
}

void ContractTest::fence() {
  if (has(Trait::kAcknowledges)) return;
  const auto here = left().buffer(1);
  const auto there = right().buffer(1);
  ASSERT_TRUE(left().channel->post_read(here.at(0), there.remote_region(), {.id = ~std::uint64_t{0}}));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok()) << completion.explain().message();
}

void ContractTest::expect_failure(Outcome posted, Fault fault, std::uint64_t id) {
  ASSERT_TRUE(posted) << posted.message();
  const bool local = fault == Fault::kLocalKey;
  if (!local && !has(Trait::kAcknowledges)) {
    EXPECT_TRUE(pairs_.back().links.active->ends(patience())) << "the connection outlived what the peer had to refuse";
    return expect_last_words(left(), fault, id);
  }
  const Completion completion = left().next();
  EXPECT_EQ(completion.id, id);
  const Codes expected = codes_of(kind_of(*left().device), fault);
  EXPECT_TRUE(expected.contains(completion.error))
      << completion.explain().message() << "\nexpected " << expected.to_text();
}

void ContractTest::expect_received(Fault fault, std::uint64_t id) {
  const Completion received = right().next();
  EXPECT_EQ(received.id, id);
  const Codes expected = codes_of(kind_of(*right().device), fault);
  EXPECT_TRUE(expected.contains(received.error)) << received.status().message() << "\nexpected " << expected.to_text();
}

void expect_last_words(const ChannelEnd& end, Fault fault, std::uint64_t id) {
  std::vector<Completion> completions;
  const Status drained = end.channel->drain(patience(), [&](const Completion& each) { completions.push_back(each); });
  EXPECT_TRUE(drained.ok()) << drained.message();
  const auto told = std::ranges::find(completions, id, &Completion::id);
  const Errc code = told == completions.end() ? kNoCompletion : told->error;
  const Codes expected = codes_of(kind_of(*end.device), fault);
  EXPECT_TRUE(expected.contains(code)) << Codes(code).to_text() << "\nexpected " << expected.to_text();
}

void ContractTest::expect_error_state(const ChannelEnd& end) {
  if (!contract::has(kind_of(*end.device), Trait::kQueriesState)) return;
  const Deadline deadline = patience();
  const auto state = [&end] { return end.channel->adapter().query_state().value(); };
  while (state() != IBV_QPS_ERR && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(state(), IBV_QPS_ERR) << end.channel->name();
}

void ContractTest::expect_state(const ChannelEnd& end, ibv_qp_state state) {
  if (!contract::has(kind_of(*end.device), Trait::kQueriesState)) return;
  EXPECT_EQ(end.channel->adapter().query_state().value(), state) << end.channel->name();
}

}  // namespace rdmacomm::contract
