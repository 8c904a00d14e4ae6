// contract_test.h - the fixture of the contract suite: two connected channels on the devices under test. The expected
// behaviour depends on the devices' properties, not on their names.
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

/// Generous: only reached after a failure.
[[nodiscard]] inline Deadline patience() {
  return Deadline::after(std::chrono::seconds(20));
}

/// Two ends, linked or not yet. Members in creation order.
struct LinkedPair {
  ConnectedPair ends;
  PairLinker::Both links{};
  RDMABuffer left_inbox{};
  RDMABuffer right_inbox{};

  /// Creates two ends in INIT on the devices under test; ignores the devices in `options`.
  [[nodiscard]] static Result<LinkedPair> make(PairOptions options = {});
  [[nodiscard]] Status link();
};

/// For devices on which requests complete before the peer has seen them: the connection of `end` has ended, and request
/// `id` has completed, or will complete, as `fault` says. Ends the channel.
void expect_last_words(const ChannelEnd& end, Fault fault, std::uint64_t id);

class ContractTest : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  /// Replaces the current pair. The old pair is kept, because a test may still hold its buffers.
  void start(const PairOptions& options = {});
  [[nodiscard]] ChannelEnd& left() { return pairs_.back().ends.left; }
  [[nodiscard]] ChannelEnd& right() { return pairs_.back().ends.right; }

  /// Whether the device under test (that of left()) has a property.
  [[nodiscard]] bool has(Trait trait) { return contract::has(kind_of(*left().device), trait); }
  /// A place for empty messages: not all devices accept a receive without a slice.
  [[nodiscard]] BufferSlice inbox(const ChannelEnd& end) {
    return (&end == &left() ? pairs_.back().left_inbox : pairs_.back().right_inbox).at(0);
  }
  [[nodiscard]] ibv_device_attr attributes() { return attributes_of(*left().device); }

  /// After this call, the data of all requests that completed at left() is in right()'s memory. Only does something on
  /// devices whose completions do not guarantee that.
  void fence();
  /// The request that was just posted at left() must complete as `fault` says. On devices on which requests complete
  /// before the peer has seen them, the connection must end instead.
  void expect_failure(Outcome posted, Fault fault, std::uint64_t id = 1);
  /// right()'s receive `id` must complete as `fault` says.
  void expect_received(Fault fault, std::uint64_t id);
  /// Moves the queue pair of `end` to ERR, if the device has not done that yet.
  static void expect_error_state(const ChannelEnd& end);
  static void expect_state(const ChannelEnd& end, ibv_qp_state state);

 private:
  std::deque<LinkedPair> pairs_;
};

}  // namespace rdmacomm::contract
