// Pairs of queue pairs whose attributes do not fit together. Such a pair must fail everywhere as it fails on a network,
// and must not deliver anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "contract/raw_end.h"
#include "verbs/describe.h"

namespace rdmacomm::contract {
namespace {

constexpr std::uint32_t kSendersPsn = 0x123450;
constexpr std::uint32_t kReceiversPsn = 0xfffffe;  // wraps
constexpr int kReads = 8;
constexpr std::uint32_t kBytes = 2048;  // more than one packet of the peer

/// A sender and a receiver. The attributes of both are changed before they are connected.
class Misconnected : public ::testing::TestWithParam<MisconnectionRow> {
 protected:
  void SetUp() override {
    ASSERT_EQ(TestDevice::own().why_not(), "");
    if (links_by_cm()) GTEST_SKIP() << "rdma_cm connects queue pairs rightly";
    sender_device_ = TestDevice::own().choice().open().value();
    receiver_device_ = TestDevice::peers().choice().open().value();
    kind_ = kind_of(*sender_device_);
    if (codes_of(kind_, GetParam().id).empty()) GTEST_SKIP() << "property: cannot happen on this device";
    sender_.emplace(*sender_device_, RawOptions{.config = quick()});
    receiver_.emplace(*receiver_device_, RawOptions{.config = quick()});
    sender_gid_ = sender_device_->choose_gid().value();
    receiver_gid_ = receiver_device_->choose_gid().value();
    from_ = RDMABuffer::allocate(sender_device_, {.block_bytes = kBytes}).value();
    to_ = RDMABuffer::allocate(receiver_device_, {.block_bytes = kBytes, .remote_access = kAllAccess}).value();
    receiver_path_ = path_to(*receiver_device_, receiver_gid_, *receiver_, kReceiversPsn, sender_gid_, *sender_);
    receiver_path_.remote.psn = kSendersPsn;
    sender_path_ = path_to(*sender_device_, sender_gid_, *sender_, kSendersPsn, receiver_gid_, *receiver_);
    sender_path_.remote.psn = kReceiversPsn;
  }

  /// Gives up after 4 x 8 ms, or a few times that.
  static AdapterConfig quick() {
    AdapterConfig config;
    config.ack_timeout = std::chrono::milliseconds(8);
    config.retry_count = 3;
    config.rnr_retry = 3;
    config.max_read_depth = 16;
    return config;
  }
  static QpPath path_to(const DeviceCore& device, const GidEntry& gid, const RawEnd& end, std::uint32_t psn,
                        const GidEntry& peer_gid, const RawEnd& peer) {
    QpPath path;
    path.local.qpn = end.qp()->qp_num;
    path.local.psn = psn;
    path.local.max_read_depth = path.remote.max_read_depth = 16;
    path.local.mtu_bytes = path.remote.mtu_bytes = 1024;
    path.local.lid = path.remote.lid = device.lid();
    path.local.link_layer = path.remote.link_layer = device.link_layer();
    path.local.gid = gid.gid;
    path.remote.qpn = peer.qp()->qp_num;
    path.remote.gid = peer_gid.gid;
    path.gid_index = gid.index;
    path.port = device.port();
    return path;
  }

  void connect_receiver() {
    receiver_->apply(QpTransition::to_rtr(quick(), receiver_path_));
    receiver_->apply(QpTransition::to_rts(quick(), receiver_path_));
  }
  void connect_sender() {
    sender_->apply(QpTransition::to_rtr(quick(), sender_path_));
    sender_->apply(QpTransition::to_rts(quick(), sender_path_));
  }
  Errc send(ibv_wr_opcode opcode = IBV_WR_SEND, int count = 1) {
    EXPECT_EQ(receiver_->post_recv(sge_of(to_.at(0)), 7), 0);
    for (int i = 0; i < count; ++i) EXPECT_EQ(sender_->post(opcode, sge_of(from_.at(0)), 1, to_.remote_region()), 0);
    Errc result = verbs::errc_of(sender_->next().status);
    for (int i = 1; i < count; ++i) {
      const Errc next = verbs::errc_of(sender_->next().status);
      if (result == Errc::kOk) result = next;
    }
    return result;
  }
  /// A GID of the device that differs as `differs` says.
  template <typename Differs>
  static std::optional<GidEntry> another_gid(const DeviceCore& device, const GidEntry& usual, Differs&& differs) {
    const std::vector<GidEntry> table = device.gids();
    const auto found = std::ranges::find_if(table, [&](const GidEntry& entry) { return differs(entry, usual); });
    return found == table.end() ? std::nullopt : std::optional(*found);
  }
  /// Connects the receiver by other GIDs of both devices. Returns false: they have none.
  template <typename Differs>
  bool move_receiver(Differs&& differs) {
    const auto own = another_gid(*receiver_device_, receiver_gid_, differs);
    const auto peers = another_gid(*sender_device_, sender_gid_, differs);
    if (!own || !peers) return false;
    receiver_path_.local.gid = own->gid;
    receiver_path_.gid_index = own->index;
    receiver_path_.remote.gid = peers->gid;
    return true;
  }

  static constexpr RemoteAccess kAllAccess = RemoteAccess::kRead | RemoteAccess::kWrite;

  DeviceKind kind_{};
  std::shared_ptr<DeviceCore> sender_device_;
  std::shared_ptr<DeviceCore> receiver_device_;
  std::optional<RawEnd> sender_;
  std::optional<RawEnd> receiver_;
  GidEntry sender_gid_;
  GidEntry receiver_gid_;
  RDMABuffer from_;
  RDMABuffer to_;
  QpPath sender_path_;
  QpPath receiver_path_;
};

TEST_P(Misconnected, FailsAndDeliversNothing) {
  const auto is_of_other_type = [](const GidEntry& a, const GidEntry& b) { return a.gid == b.gid && a.type != b.type; };
  const auto is_elsewhere = [](const GidEntry& a, const GidEntry& b) { return a.gid != b.gid && a.type == b.type; };
  const Misconnection what = GetParam().id;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  int count = 1;
  switch (what) {
    case Misconnection::kPsnAhead: receiver_path_.remote.psn = kSendersPsn - 5; break;
    case Misconnection::kPsnBehind: receiver_path_.remote.psn = kSendersPsn + 5; break;
    case Misconnection::kOtherAddresses:
      if (!move_receiver(is_elsewhere)) GTEST_SKIP() << "capability: the port has one address";
      break;
    case Misconnection::kOtherGidType:
      if (!move_receiver(is_of_other_type)) GTEST_SKIP() << "capability: the port has one type of GIDs";
      break;
    case Misconnection::kOtherQueuePair: receiver_path_.remote.qpn ^= 1; break;
    case Misconnection::kNoWriteAccess: {
      QpTransition still = QpTransition::to_init(quick(), receiver_device_->port(), false);
      still.attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
      receiver_->apply(still);
      opcode = IBV_WR_RDMA_WRITE;
      break;
    }
    case Misconnection::kNoReads:
      receiver_path_.local.max_read_depth = 0;
      opcode = IBV_WR_RDMA_READ;
      break;
    case Misconnection::kTooManyReads:
      receiver_path_.local.max_read_depth = 1;
      opcode = IBV_WR_RDMA_READ;
      count = kReads;
      break;
    case Misconnection::kLongerPackets:
      receiver_path_.local.mtu_bytes = receiver_path_.remote.mtu_bytes = 256;
      opcode = IBV_WR_RDMA_WRITE;
      break;
    case Misconnection::kTargetInInit:
    case Misconnection::kResetAtOneEnd: break;
  }
  if (what != Misconnection::kTargetInInit) connect_receiver();
  connect_sender();
  if (what == Misconnection::kResetAtOneEnd) {
    ASSERT_EQ(send(), Errc::kOk);
    ASSERT_EQ(verbs::errc_of(receiver_->next().status), Errc::kOk);
    QpTransition reset = QpTransition::to_error();
    reset.attributes.qp_state = IBV_QPS_RESET;
    receiver_->apply(reset);
    receiver_->apply(QpTransition::to_init(quick(), receiver_device_->port(), false));
    connect_receiver();
  }
  std::ranges::fill(from_.bytes(), std::byte{1});
  const Errc code = send(opcode, count);
  EXPECT_TRUE(codes_of(kind_, what).contains(code)) << std::error_code(code).message();
  if (code == Errc::kOk && what != Misconnection::kPsnBehind) return;
  // A refused request ends the connection of the receiver, too. Then its receive is flushed.
  const auto received = receiver_->poll();
  const bool may_deliver = what == Misconnection::kOtherQueuePair && kind_ != DeviceKind::kSoft0;
  EXPECT_TRUE(may_deliver || !received || received->status != IBV_WC_SUCCESS) << "the message was delivered";
  EXPECT_TRUE(may_deliver || to_.bytes()[0] != std::byte{1});
}

INSTANTIATE_TEST_SUITE_P(Pairs, Misconnected,
                         ::testing::ValuesIn(misconnection_rows().begin(), misconnection_rows().end()),
                         [](const auto& row) {
                           std::string name(row.param.name);
                           std::ranges::replace_if(
                               name, [](char c) { return c == ' ' || c == ','; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace rdmacomm::contract
