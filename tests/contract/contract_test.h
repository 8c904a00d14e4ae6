// contract_test.h - the fixture of the contract suite: two connected channels on the devices under test, and what is
// expected of them by property, not by name.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "contract/device_traits.h"
#include "contract/pair_linker.h"
#include "contract/test_device.h"
#include "support/connected_pair.h"

namespace rdmacomm::contract {

using testing::ChannelEnd;
using testing::ConnectedPair;
using testing::PairOptions;

/// Generous: reached only when something is wrong.
[[nodiscard]] inline Deadline patience() {
  return Deadline::after(std::chrono::seconds(20));
}

/// Two ends, linked or not yet. Members in creation order.
struct LinkedPair {
  ConnectedPair ends;
  PairLinker::Both links{};
  RDMABuffer left_inbox{};
  RDMABuffer right_inbox{};

  /// Two ends in INIT on the devices under test; the devices in `options` do not matter.
  [[nodiscard]] static Result<LinkedPair> make(PairOptions options = {});
  [[nodiscard]] Status link();
};

/// Where requests complete before the peer has seen them: what `end`, whose connection has ended, was told of request
/// `id`, or still is, is as `fault` says. Ends the channel.
void expect_last_words(const ChannelEnd& end, Fault fault, std::uint64_t id);

class ContractTest : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  /// Puts another pair in the place of the current one, which lives on: a test may still hold buffers of it.
  void start(const PairOptions& options = {});
  [[nodiscard]] ChannelEnd& left() { return pairs_.back().ends.left; }
  [[nodiscard]] ChannelEnd& right() { return pairs_.back().ends.right; }

  /// Whether the device under test (left()'s) has a property.
  [[nodiscard]] bool has(Trait trait) { return contract::has(kind_of(*left().device), trait); }
  /// A place for messages that are empty: not all devices take a receive without one.
  [[nodiscard]] BufferSlice inbox(const ChannelEnd& end) {
    return (&end == &left() ? pairs_.back().left_inbox : pairs_.back().right_inbox).at(0);
  }
  [[nodiscard]] ibv_device_attr attributes() { return attributes_of(*left().device); }

  /// After it, everything that completed at left() is in right()'s memory. Needs work only where a completion does
  /// not say so.
  void fence();
  /// The request that was just posted at left() completes as `fault` says; or, where requests complete before the
  /// peer has seen them, the connection ends.
  void expect_failure(Outcome posted, Fault fault, std::uint64_t id = 1);
  /// right()'s receive `id` completes as `fault` says.
  void expect_received(Fault fault, std::uint64_t id);
  /// `end`'s queue pair goes to ERR, if the device has not moved it there yet.
  static void expect_error_state(const ChannelEnd& end);
  static void expect_state(const ChannelEnd& end, ibv_qp_state state);

 private:
  std::deque<LinkedPair> pairs_;
};

}  // namespace rdmacomm::contract
