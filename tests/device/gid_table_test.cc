#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/device_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeDevice;
using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

constexpr const char kIpv4[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1";          // ::ffff:10.0.0.1
constexpr const char kOtherIpv4[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\xa8\1\2";   // ::ffff:192.168.1.2
constexpr const char kLinkIpv4[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xa9\xfe\0\1";    // ::ffff:169.254.0.1
constexpr const char kLoopbackIpv4[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1";  // ::ffff:127.0.0.1
constexpr const char kLoopbackIpv6[] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1";        // ::1
constexpr const char kLinkIpv6[] = "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1";        // fe80::1
constexpr const char kGlobalIpv6[] = "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1";  // 2001:db8::1
constexpr const char kEmpty[] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

Gid gid_of_bytes(const char* sixteen_bytes) {
  Gid made{};
  std::memcpy(made.raw.data(), sixteen_bytes, made.raw.size());
  return made;
}

class GidTableTest : public ::testing::Test {
 protected:
  GidTableTest() { device().clear_gids(); }
  FakeDevice& device() { return *fake_.devices[0]; }

  // The index of the chosen GID, or -1.
  int chosen(const DeviceOptions& options = {}, const std::optional<Gid>& local_address = {}) {
    auto opened = DeviceCore::open_from(FakeVerbs::api(), options);
    if (!opened) return -1;
    const auto entry = (*opened)->choose_gid(local_address);
    return entry ? entry->index : -1;
  }

  FakeVerbs fake_;
};

TEST_F(GidTableTest, LeavesEmptyAndUnreadableEntriesOut) {
  device().add_gid(kEmpty, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V1);
  device().add_gid(kLinkIpv6, IBV_GID_TYPE_ROCE_V2);
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
  ASSERT_TRUE(opened.has_value());
  auto entries = (*opened)->gids();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].to_text(), "index 1 ::ffff:10.0.0.1 (RoCE v1)");
  fake_.fail("query_gid_entry", ENODATA, 3);
  EXPECT_EQ((*opened)->gids().size(), 1U);
}

TEST_F(GidTableTest, PrefersRoutableToLinkLocalToLoopback) {
  device().add_gid(kLoopbackIpv4, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kLoopbackIpv6, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 0);
  device().add_gid(kLinkIpv4, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 2);
  device().add_gid(kLinkIpv6, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 2);
  device().add_gid(kGlobalIpv6, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 4);
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 5);
}

TEST_F(GidTableTest, PrefersRoceV2ToV1AmongEquals) {
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V1);
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen(), 1);
  EXPECT_EQ(chosen({.gid_type = GidType::kRoceV1}), 0);
}

TEST_F(GidTableTest, PrefersTheAddressByWhichThePeerIsReached) {
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kOtherIpv4, IBV_GID_TYPE_ROCE_V1);
  device().add_gid(kOtherIpv4, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kLinkIpv6, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chosen({}, gid_of_bytes(kOtherIpv4)), 2);
  EXPECT_EQ(chosen({}, gid_of_bytes(kLinkIpv6)), 3);
  EXPECT_EQ(chosen({}, gid_of_bytes(kGlobalIpv6)), 0);
  EXPECT_EQ(chosen({.gid_type = GidType::kRoceV1}, gid_of_bytes(kOtherIpv4)), 1);
}

TEST_F(GidTableTest, AnExplicitIndexWinsOverEverything) {
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kLinkIpv6, IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(chosen({.gid_index = 1, .gid_type = GidType::kRoceV2}, gid_of_bytes(kIpv4)), 1);
}

TEST_F(GidTableTest, AnEmptyExplicitIndexListsTheTable) {
  device().add_gid(kEmpty, IBV_GID_TYPE_ROCE_V2);
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {.gid_index = 0});
  ASSERT_TRUE(opened.has_value());
  const auto entry = (*opened)->choose_gid();
  EXPECT_EQ(entry.code(), Errc::kNoUsableGid);
  EXPECT_THAT(entry.error().context, HasSubstr("GID index 0 of fake0 port 1"));
  EXPECT_THAT(entry.error().context, HasSubstr("it has index 1 ::ffff:10.0.0.1 (RoCE v2)"));
}

TEST_F(GidTableTest, NoEntryOfTheWantedTypeListsTheTable) {
  device().add_gid(kIpv4, IBV_GID_TYPE_ROCE_V2);
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {.gid_type = GidType::kRoceV1});
  ASSERT_TRUE(opened.has_value());
  const auto entry = (*opened)->choose_gid();
  EXPECT_EQ(entry.code(), Errc::kNoUsableGid);
  EXPECT_THAT(entry.error().context, HasSubstr("has no RoCE v1 GID: it has index 0"));
}

TEST_F(GidTableTest, AnEmptyTableNamesTheRemedy) {
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
  ASSERT_TRUE(opened.has_value());
  const auto entry = (*opened)->choose_gid();
  EXPECT_EQ(entry.code(), Errc::kNoUsableGid);
  EXPECT_THAT(entry.error().context, HasSubstr("give the network interface an address"));
}

TEST_F(GidTableTest, PartitionsAreFoundByKeyAndTheFullMemberIsPreferred) {
  device().set_pkeys({0xffff, 0, 0x0001, 0x8001, 0x0002});
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->pkeys().size(), 4U);
  EXPECT_EQ((*opened)->find_pkey(0x0001)->index, 3);
  EXPECT_EQ((*opened)->find_pkey(0x8001)->value, 0x8001);
  EXPECT_EQ((*opened)->find_pkey(0x8002)->index, 4);
  EXPECT_EQ((*opened)->find_pkey(0x8002)->value, 0x0002);
  EXPECT_EQ((*opened)->find_pkey(0x7fff)->index, 0);
}

TEST_F(GidTableTest, AnUnknownPartitionListsTheTable) {
  device().set_pkeys({0xffff, 0x8001});
  auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
  ASSERT_TRUE(opened.has_value());
  const auto found = (*opened)->find_pkey(0x8003);
  EXPECT_EQ(found.code(), Errc::kInvalidArgument);
  EXPECT_THAT(found.error().context, HasSubstr("P_Key 0x8003: its table has 0xffff at index 0, 0x8001 at index 1"));
  device().set_pkeys({});
  auto without = DeviceCore::open_from(FakeVerbs::api(), {});
  EXPECT_THAT((*without)->find_pkey(0xffff).error().context, HasSubstr("its table is empty"));
}

}  // namespace
}  // namespace rdmacomm
