#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <limits>
#include <vector>

#include "device/device_core.h"
#include "rdmacomm/buffer.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class RDMABufferTest : public ::testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    device_.reset();
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
  }
  RDMABuffer allocate(const BufferOptions& options) {
    auto made = RDMABuffer::allocate(device_, options);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(made).value();
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
};

// Sets the soft limit on locked memory while it lives.
class LockedMemoryLimit {
 public:
  explicit LockedMemoryLimit(rlim_t bytes) {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    const rlimit changed{std::min(bytes, before_.rlim_max), before_.rlim_max};
    set_ = setrlimit(RLIMIT_MEMLOCK, &changed) == 0 && changed.rlim_cur == bytes;
  }
  LockedMemoryLimit(const LockedMemoryLimit&) = delete;
  LockedMemoryLimit& operator=(const LockedMemoryLimit&) = delete;
  ~LockedMemoryLimit() { setrlimit(RLIMIT_MEMLOCK, &before_); }
  [[nodiscard]] bool set() const { return set_; }

 private:
  rlimit before_{};
  bool set_ = false;
};

TEST_F(RDMABufferTest, BlocksAreAdjacent) {
  const auto buffer = allocate({.name = "ring", .block_bytes = 100, .block_count = 3});
  EXPECT_EQ(buffer.name(), "ring");
  EXPECT_EQ(buffer.size(), 300U);
  EXPECT_EQ(buffer.block_bytes(), 100U);
  EXPECT_EQ(buffer.block_count(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buffer.at(i).data(), buffer.data() + 100 * i);
    EXPECT_EQ(buffer.at(i).size(), 100U);
    EXPECT_EQ(buffer.at(i).lkey, buffer.lkey());
  }
  EXPECT_EQ(buffer.last().data(), buffer.at(2).data());
}

TEST_F(RDMABufferTest, NextWrapsAround) {
  auto buffer = allocate({.block_bytes = 8, .block_count = 3});
  for (const int expected : {0, 1, 2, 0, 1}) EXPECT_EQ(buffer.next().data(), buffer.data() + 8 * expected);
}

TEST_F(RDMABufferTest, ABlockBeyondTheLastEndsTheProgram) {
  const auto buffer = allocate({.block_bytes = 8, .block_count = 2});
  EXPECT_DEATH((void)buffer.at(2), "has 2 blocks; block 2 does not exist");
}

TEST_F(RDMABufferTest, SlicesStayInside) {
  const auto buffer = allocate({.block_bytes = 100, .block_count = 2});
  const auto across = buffer.slice(90, 20);
  ASSERT_TRUE(across.has_value());
  EXPECT_EQ(across->data(), buffer.data() + 90);
  EXPECT_EQ(across->bytes().size(), 20U);
  EXPECT_TRUE(buffer.slice(200, 0).has_value());
  EXPECT_EQ(buffer.slice(0, 201).code(), Errc::kInvalidArgument);
  EXPECT_EQ(buffer.slice(201, 0).code(), Errc::kInvalidArgument);
  EXPECT_EQ(buffer.slice(1, std::numeric_limits<std::size_t>::max()).code(), Errc::kInvalidArgument);
}

TEST_F(RDMABufferTest, PartsOfASlice) {
  const auto buffer = allocate({.block_bytes = 100});
  const BufferSlice block = buffer.at(0);
  EXPECT_EQ(block.first(10).size(), 10U);
  EXPECT_EQ(block.slice_unchecked(30, 10).data(), buffer.data() + 30);
  EXPECT_EQ(block.slice_unchecked(30, 10).lkey, buffer.lkey());
}

TEST_F(RDMABufferTest, GrantsNothingByDefault) {
  const auto buffer = allocate({});
  EXPECT_EQ(fake_.registered_access.back(), IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(buffer.remote_access(), RemoteAccess::kNone);
}

TEST_F(RDMABufferTest, GrantsTheRequestedAccessOnly) {
  const auto granted = [this](RemoteAccess access) {
    (void)allocate({.remote_access = access});
    return fake_.registered_access.back();
  };
  EXPECT_EQ(granted(RemoteAccess::kRead), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(granted(RemoteAccess::kWrite), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(granted(RemoteAccess::kAtomic), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  EXPECT_EQ(granted(RemoteAccess::kRead | RemoteAccess::kWrite | RemoteAccess::kAtomic),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

TEST_F(RDMABufferTest, DescribesItselfToPeers) {
  const auto buffer = allocate({.block_bytes = 100, .block_count = 2});
  const RemoteRegion region = buffer.remote_region();
  EXPECT_EQ(region.address, reinterpret_cast<std::uintptr_t>(buffer.data()));
  EXPECT_EQ(region.length, 200U);
  EXPECT_EQ(region.rkey, 0x200U);
}

TEST_F(RDMABufferTest, OptionsOutsideTheirRangeAreRefused) {
  const auto refused = [this](const BufferOptions& options) { return RDMABuffer::allocate(device_, options).code(); };
  EXPECT_EQ(refused({.block_bytes = 0}), Errc::kInvalidArgument);
  EXPECT_EQ(refused({.block_bytes = std::size_t{1} << 32}), Errc::kInvalidArgument);
  EXPECT_EQ(refused({.block_count = 0}), Errc::kInvalidArgument);
  EXPECT_EQ(refused({.block_bytes = 4096, .block_count = std::numeric_limits<std::size_t>::max() / 2}),
            Errc::kInvalidArgument);
}

TEST_F(RDMABufferTest, LargerThanARegistrationMayBe) {
  const auto made = RDMABuffer::allocate(device_, {.name = "big", .block_bytes = 1U << 30, .block_count = 2});
  EXPECT_EQ(made.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(made.error().context, HasSubstr("buffer \"big\" of 2147483648 bytes"));
  EXPECT_THAT(made.error().context, HasSubstr("1073741824 bytes"));
  EXPECT_EQ(fake_.calls("allocate_memory"), 0);
}

TEST_F(RDMABufferTest, AsLargeAsARegistrationMayBe) {
  fake_.devices[0]->attributes.max_mr_size = 8192;
  open();
  EXPECT_TRUE(RDMABuffer::allocate(device_, {.block_bytes = 4096, .block_count = 2}).has_value());
  const auto beyond = RDMABuffer::allocate(device_, {.block_bytes = 8193});
  EXPECT_EQ(beyond.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(beyond.error().context, HasSubstr("of 8193 bytes is larger than"));
  EXPECT_THAT(beyond.error().context, HasSubstr("8192 bytes"));
}

TEST_F(RDMABufferTest, OnDemandPagingNeedsSupportOfTheDevice) {
  const BufferOptions options{.name = "paged", .on_demand_paging = true};
  const auto refused = RDMABuffer::allocate(device_, options);
  EXPECT_EQ(refused.code(), Errc::kNotSupported);
  EXPECT_THAT(refused.error().context, HasSubstr("supports no on-demand paging; buffer \"paged\" must be pinned"));
  fake_.devices[0]->odp.general_caps = IBV_ODP_SUPPORT;
  open();
  ASSERT_TRUE(RDMABuffer::allocate(device_, options).has_value());
  EXPECT_NE(fake_.registered_access.back() & IBV_ACCESS_ON_DEMAND, 0);
}

TEST_F(RDMABufferTest, RemoteAtomicsNeedSupportOfTheDevice) {
  fake_.devices[0]->attributes.atomic_cap = IBV_ATOMIC_NONE;
  open();
  EXPECT_EQ(RDMABuffer::allocate(device_, {.remote_access = RemoteAccess::kAtomic}).code(), Errc::kNotSupported);
  EXPECT_TRUE(RDMABuffer::allocate(device_, {.remote_access = RemoteAccess::kWrite}).has_value());
}

TEST_F(RDMABufferTest, BeyondTheLockedMemoryLimitNamesLimitAndRemedy) {
  const LockedMemoryLimit limit(8 << 20);
  if (!limit.set()) GTEST_SKIP() << "RLIMIT_MEMLOCK cannot be set to 8 MiB here";
  const int before = fake_.live();
  fake_.fail("reg_mr", ENOMEM);
  const auto made = RDMABuffer::allocate(device_, {.name = "big", .block_bytes = 64 << 20});
  EXPECT_EQ(made.code(), Errc::kLockedMemoryLimit);
  EXPECT_THAT(made.error().context, HasSubstr("cannot register 64 MiB for buffer \"big\""));
  EXPECT_THAT(made.error().context, HasSubstr("(RLIMIT_MEMLOCK) of this process is 8 MiB"));
  EXPECT_THAT(made.error().context, HasSubstr("ulimit -l"));
  EXPECT_THAT(made.error().context, HasSubstr("/etc/security/limits.conf"));
  EXPECT_EQ(fake_.live(), before);
}

TEST_F(RDMABufferTest, WithoutALimitAFailureIsReportedAsOutOfMemory) {
  const LockedMemoryLimit limit(RLIM_INFINITY);
  if (!limit.set()) GTEST_SKIP() << "RLIMIT_MEMLOCK cannot be lifted here";
  fake_.fail("reg_mr", ENOMEM);
  EXPECT_EQ(RDMABuffer::allocate(device_, {}).code(), std::errc::not_enough_memory);
}

TEST_F(RDMABufferTest, WithoutHugePagesTheErrorNamesTheRemedy) {
  fake_.fail("allocate_memory", ENOMEM);
  const auto made = RDMABuffer::allocate(device_, {.name = "big", .huge_pages = true});
  EXPECT_EQ(made.code(), std::errc::not_enough_memory);
  EXPECT_THAT(made.error().context, HasSubstr("/proc/sys/vm/nr_hugepages"));
  fake_.fail("allocate_memory", ENOMEM);
  const auto plain = RDMABuffer::allocate(device_, {.name = "plain"});
  EXPECT_EQ(plain.code(), std::errc::not_enough_memory);
  EXPECT_EQ(plain.error().context, "cannot allocate 4096 bytes for buffer \"plain\"");
}

TEST_F(RDMABufferTest, ReleasesRegistrationBeforeMemory) {
  const int before = fake_.live();
  auto buffer = allocate({});
  fake_.fail("free_memory", EBUSY);  // only counts calls; free_memory has no result
  buffer = {};
  EXPECT_EQ(fake_.calls("dereg_mr"), 1);
  EXPECT_EQ(fake_.calls("free_memory"), 1);
  EXPECT_EQ(fake_.live(), before);
}

TEST_F(RDMABufferTest, AdoptsMemoryWithoutOwningIt) {
  std::vector<std::byte> memory(300);
  {
    const auto buffer = RDMABuffer::adopt(device_, memory, {.block_bytes = 100, .block_count = 3});
    ASSERT_TRUE(buffer.has_value()) << buffer.error().message();
    EXPECT_EQ((*buffer).data(), memory.data());
    EXPECT_EQ((*buffer).at(1).data(), memory.data() + 100);
  }
  EXPECT_EQ(fake_.calls("dereg_mr"), 1);
  EXPECT_EQ(fake_.calls("free_memory"), 0);
}

TEST_F(RDMABufferTest, AdoptsOnlyTheMemoryOfItsBlocks) {
  std::vector<std::byte> memory(300);
  const auto refused = [&](const BufferOptions& options) { return RDMABuffer::adopt(device_, memory, options).code(); };
  EXPECT_EQ(refused({.block_bytes = 100, .block_count = 2}), Errc::kInvalidArgument);
  EXPECT_EQ(refused({.block_bytes = 301, .block_count = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(refused({.block_bytes = 300, .block_count = 1, .huge_pages = true}), Errc::kInvalidArgument);
  EXPECT_EQ(RDMABuffer::adopt(device_, {}, {.block_bytes = 1}).code(), Errc::kInvalidArgument);
}

TEST_F(RDMABufferTest, MemoryThatIsNotMappedIsABadAddress) {
  std::vector<std::byte> memory(8);
  fake_.fail("reg_mr", EFAULT);
  const auto made = RDMABuffer::adopt(device_, memory, {.block_bytes = 8});
  EXPECT_EQ(made.code(), std::errc::bad_address);
  EXPECT_THAT(made.error().context, HasSubstr("not mapped, or not writable"));
}

// The same on the software device, with real memory and real registrations.
class SoftBufferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = DeviceCore::open({.name = "soft0"});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
  }
  std::shared_ptr<DeviceCore> device_;
};

TEST_F(SoftBufferTest, AllocatesZeroedPageAlignedMemory) {
  const auto buffer = RDMABuffer::allocate(device_, {.block_bytes = 10'000, .block_count = 3});
  ASSERT_TRUE(buffer.has_value()) << buffer.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*buffer).data()) % 4096, 0U);
  EXPECT_TRUE(std::ranges::all_of((*buffer).bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  std::ranges::fill((*buffer).bytes(), std::byte{0x5a});
}

TEST_F(SoftBufferTest, MemoryIsZeroedAgainWhenItIsReused) {
  for (int round = 0; round < 3; ++round) {
    const auto buffer = RDMABuffer::allocate(device_, {.block_bytes = 65'536});
    ASSERT_TRUE(buffer.has_value());
    EXPECT_TRUE(std::ranges::all_of((*buffer).bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
    std::ranges::fill((*buffer).bytes(), std::byte{0xff});
  }
}

TEST_F(SoftBufferTest, RefusesToAdoptUnmappedOrReadOnlyMemory) {
  constexpr std::size_t kBytes = 8192;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(mapped), kBytes);
  EXPECT_EQ(RDMABuffer::adopt(device_, memory, {.block_bytes = kBytes}).code(), std::errc::bad_address);
  munmap(mapped, kBytes);
  // Not the unmapped address: another thread may have memory there by now. The kernel does not assign the lowest
  // addresses by itself.
  const std::span<std::byte> nowhere(reinterpret_cast<std::byte*>(4096), kBytes);
  EXPECT_EQ(RDMABuffer::adopt(device_, nowhere, {.block_bytes = kBytes}).code(), std::errc::bad_address);
}

TEST_F(SoftBufferTest, HugePagesAreTakenFromThePoolOrRefused) {
  // No machine has a terabyte of huge pages.
  const auto buffer = RDMABuffer::allocate(device_, {.block_bytes = 1U << 30, .block_count = 1000, .huge_pages = true});
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.code(), std::errc::not_enough_memory);
  EXPECT_THAT(buffer.error().message(), HasSubstr("/proc/sys/vm/nr_hugepages"));
  const auto modest = RDMABuffer::allocate(device_, {.block_bytes = std::size_t{2} << 20, .huge_pages = true});
  if (!modest) {
    EXPECT_THAT(modest.error().context, HasSubstr("/proc/sys/vm/nr_hugepages"));
  }
}

TEST_F(SoftBufferTest, MemoryCanBeRegisteredManyTimes) {
  for (int round = 0; round < 20'000; ++round) {
    ASSERT_TRUE(RDMABuffer::allocate(device_, {}).has_value()) << "round " << round;
  }
}

}  // namespace
}  // namespace rdmacomm
