#include "rdmacomm/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "device/device_core.h"
#include "support/allocation_counter.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;

/// Small, so that tests can use it up: 64 blocks of 1 KiB, no caches unless a test enables them.
BufferPoolOptions small(std::size_t cached_bytes = 0) {
  return {.name = "small",
          .total_bytes = 64 * kKiB,
          .smallest_block = kKiB,
          .largest_block = 16 * kKiB,
          .cached_bytes = cached_bytes};
}

class BufferPoolTest : public ::testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    device_.reset();
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(*opened);
  }
  BufferPool make(const BufferPoolOptions& options) {
    auto made = BufferPool::create(device_, options);
    EXPECT_TRUE(made.has_value()) << made.status().message();
    return made ? std::move(*made) : BufferPool();
  }
  static BufferLease take(const BufferPool& pool, std::size_t bytes) {
    auto lease = pool.take(bytes);
    EXPECT_TRUE(lease);
    return lease ? *std::move(lease) : BufferLease();
  }
  /// Takes blocks until none is left.
  static std::vector<BufferLease> take_all(const BufferPool& pool, std::size_t bytes) {
    std::vector<BufferLease> leases;
    for (;;) {
      auto lease = pool.take(bytes);
      if (!lease) {
        EXPECT_EQ(lease.code(), Errc::kPoolExhausted);
        return leases;
      }
      leases.push_back(*std::move(lease));
    }
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
};

TEST_F(BufferPoolTest, OptionsOutsideTheirRangesAreRefused) {
  const auto refused = [&](const BufferPoolOptions& options, const char* what) {
    const auto made = BufferPool::create(device_, options);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.code(), Errc::kInvalidArgument);
    EXPECT_THAT(made.error().message(), HasSubstr(what));
  };
  refused({.largest_block = 3 * kKiB}, "largest_block is 3072; it must be a power of two");
  refused({.largest_block = std::size_t{4} << 30}, "largest_block is 4294967296; it must be a power of two");
  refused({.smallest_block = 32}, "smallest_block is 32; it must be a power of two from 64");
  refused({.smallest_block = 5000}, "smallest_block is 5000; it must be");
  refused({.smallest_block = std::size_t{8} << 20}, "to largest_block (4194304)");
  refused({.total_bytes = 0}, "total_bytes is 0; it must be a multiple");
  refused({.total_bytes = (std::size_t{4} << 20) + 1}, "total_bytes is 4194305; it must be");
  refused({.total_bytes = std::size_t{1} << 40, .smallest_block = 64}, "2^31 blocks");
  EXPECT_EQ(fake_.calls("reg_mr"), 0);
}

TEST_F(BufferPoolTest, RegistersOnceAndNeverAgain) {
  const auto pool = make(small(4 * kKiB));
  EXPECT_EQ(fake_.calls("reg_mr"), 1);
  for (int round = 0; round < 100; ++round) {
    auto a = take(pool, 1);
    auto b = take(pool, 16 * kKiB);
    auto c = take_all(pool, 3 * kKiB);
  }
  EXPECT_EQ(fake_.calls("reg_mr"), 1);
  EXPECT_EQ(fake_.calls("dereg_mr"), 0);
}

TEST_F(BufferPoolTest, IsRegisteredInPartsIfTheDeviceRequiresIt) {
  fake_.devices.front()->attributes.max_mr_size = 40 * kKiB;
  open();
  const auto pool = make(small());
  EXPECT_EQ(fake_.calls("reg_mr"), 2);
  const auto all = take_all(pool, 16 * kKiB);
  EXPECT_EQ(all.size(), 4U);
  for (const BufferLease& lease : all) std::memset(lease.data(), 1, lease.size());
}

TEST_F(BufferPoolTest, AFailedRegistrationIsReturned) {
  fake_.devices.front()->attributes.max_mr_size = 8 * kKiB;
  open();
  const auto made = BufferPool::create(device_, small());
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.code(), Errc::kBeyondDeviceLimit);
}

TEST_F(BufferPoolTest, LeasesTheRequestedBytesInLargeEnoughBlocks) {
  const auto pool = make(small());
  const auto lease = take(pool, 1500);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease.size(), 1500U);
  EXPECT_EQ(lease.bytes().size(), 1500U);
  EXPECT_EQ(pool.counts().leased_bytes, 2 * kKiB);
  EXPECT_EQ(lease.remote_region().length, 1500U);
  EXPECT_EQ(lease.remote_region().address, reinterpret_cast<std::uintptr_t>(lease.data()));
  EXPECT_EQ(fake_.registered_access.back(), IBV_ACCESS_LOCAL_WRITE);
}

TEST_F(BufferPoolTest, GrantsPeersTheConfiguredAccess) {
  BufferPoolOptions options = small();
  options.remote_access = RemoteAccess::kRead;
  const auto pool = make(options);
  EXPECT_EQ(fake_.registered_access.back(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

TEST_F(BufferPoolTest, SizesBeyondItsBlocksAreRefused) {
  const auto pool = make(small());
  EXPECT_EQ(pool.take(0).code(), Errc::kInvalidArgument);
  EXPECT_EQ(pool.take(16 * kKiB + 1).code(), Errc::kInvalidArgument);
  EXPECT_EQ(pool.counts().refused, 0U);
}

TEST_F(BufferPoolTest, AnExhaustedPoolRefusesUntilABlockIsReturned) {
  const auto pool = make(small());
  auto all = take_all(pool, kKiB);
  EXPECT_EQ(all.size(), 64U);
  EXPECT_EQ(pool.counts().refused, 1U);
  EXPECT_EQ(pool.counts().leased_bytes, 64 * kKiB);
  all.pop_back();
  EXPECT_TRUE(take(pool, kKiB));
}

TEST_F(BufferPoolTest, SmallBlocksBecomeLargeOnesAgain) {
  const auto pool = make(small());
  auto all = take_all(pool, kKiB);
  EXPECT_EQ(pool.take(16 * kKiB).code(), Errc::kPoolExhausted);
  all.clear();
  EXPECT_EQ(take_all(pool, 16 * kKiB).size(), 4U);
}

TEST_F(BufferPoolTest, MovingALeaseLeavesTheOldOneEmpty) {
  const auto pool = make(small());
  auto first = take(pool, 10);
  std::byte* const at = first.data();
  BufferLease second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(first.size(), 0U);
  EXPECT_EQ(second.data(), at);
  second = take(pool, 20);
  EXPECT_EQ(pool.counts().given_back, 1U);
  second.reset();
  second.reset();
  EXPECT_EQ(pool.counts().given_back, 2U);
  EXPECT_EQ(pool.counts().leased_bytes, 0U);
}

TEST_F(BufferPoolTest, AssigningToALeaseReturnsItsOldBlock) {
  const auto pool = make(small());
  auto all = take_all(pool, 2 * kKiB);
  all.back() = BufferLease();
  all.front() = take(pool, 2 * kKiB);
  EXPECT_EQ(pool.counts().leased_bytes, 62 * kKiB);
}

TEST_F(BufferPoolTest, CachesServeWithoutTheSharedLock) {
  const auto pool = make(small(16 * kKiB));
  { const auto first = take(pool, kKiB); }
  const std::uint64_t before = pool.counts().from_cache;
  for (int i = 0; i < 1000; ++i) const auto lease = take(pool, kKiB);
  EXPECT_EQ(pool.counts().from_cache, before + 1000);
}

TEST_F(BufferPoolTest, BlocksInCachesOfOtherThreadsAreUsedBeforeARefusal) {
  const auto pool = make(small(64 * kKiB));
  std::thread([&] { take_all(pool, kKiB).clear(); }).join();
  EXPECT_EQ(take_all(pool, 16 * kKiB).size(), 4U);
  EXPECT_GT(pool.counts().reclaimed, 0U);
}

TEST_F(BufferPoolTest, AnyThreadMayReturnABlock) {
  const auto pool = make(small(2 * kKiB));
  auto all = take_all(pool, kKiB);
  std::thread([&] { all.clear(); }).join();
  EXPECT_EQ(pool.counts().leased_bytes, 0U);
  EXPECT_EQ(take_all(pool, kKiB).size(), 64U);
}

TEST_F(BufferPoolTest, MemoryAndDeviceStayUntilTheLastLeaseIsReturned) {
  auto pool = make(small(4 * kKiB));
  auto here = take(pool, 16 * kKiB);
  auto there = take(pool, kKiB);
  device_.reset();
  pool = {};
  EXPECT_EQ(fake_.calls("dereg_mr"), 0);
  std::memset(here.data(), 7, here.size());
  std::thread([&] { there.reset(); }).join();
  EXPECT_EQ(fake_.calls("dereg_mr"), 0);
  EXPECT_EQ(fake_.calls("close_device"), 0);
  here.reset();
  EXPECT_EQ(fake_.calls("dereg_mr"), 1);
  EXPECT_EQ(fake_.calls("close_device"), 1);
}

TEST_F(BufferPoolTest, WithoutLeasesItIsFreedAtOnce) {
  auto pool = make(small(4 * kKiB));
  take_all(pool, kKiB).clear();
  pool = {};
  EXPECT_EQ(fake_.calls("dereg_mr"), 1);
}

TEST_F(BufferPoolTest, LeasingAndReturningAllocateNothing) {
  const auto pool = make(small(4 * kKiB));
  const std::uint64_t before = testing::allocations_of_this_thread();
  for (int i = 0; i < 1000; ++i) {
    std::array<BufferLease, 16> leases;
    for (BufferLease& lease : leases) {
      auto taken = pool.take(kKiB);
      ASSERT_TRUE(taken);
      lease = *std::move(taken);
    }
  }
  EXPECT_EQ(testing::allocations_of_this_thread(), before);
}

/// Each thread fills its blocks completely, and checks them before it gives them back. Another thread gives back half
/// of them, some after the pool is destroyed.
TEST_F(BufferPoolTest, ThreadsNeverHaveTheSameBlock) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  auto pool = make(small(8 * kKiB));
  struct Marked {
    BufferLease lease;
    std::byte mark{};
  };
  std::mutex mutex;
  std::vector<Marked> handed_on;
  std::atomic<int> wrong{0};
  const auto check = [&](const Marked& block) {
    for (const std::byte each : block.lease.bytes()) {
      if (each != block.mark) ++wrong;
    }
  };
  const auto work = [&](unsigned number) {
    std::mt19937 random(seed + number);
    for (int i = 0; i < 2000; ++i) {
      auto lease = pool.take(1 + random() % (4 * kKiB));
      if (!lease) continue;
      Marked mine{.lease = *std::move(lease), .mark = static_cast<std::byte>(random())};
      std::memset(mine.lease.data(), static_cast<int>(mine.mark), mine.lease.size());
      const std::lock_guard lock(mutex);
      handed_on.push_back(std::move(mine));
      if (handed_on.size() < 8) continue;
      const std::size_t which = random() % handed_on.size();
      check(handed_on[which]);
      std::swap(handed_on[which], handed_on.back());
      handed_on.pop_back();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& each : threads) each.join();
  pool = {};
  for (const Marked& each : handed_on) check(each);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(fake_.calls("dereg_mr"), 0);
  handed_on.clear();
  EXPECT_EQ(fake_.calls("dereg_mr"), 1);
}

/// The pool is destroyed while other threads give back leases: exactly one of them is the last.
TEST_F(BufferPoolTest, IsFreedOnceIfItsLeasesEndAtTheSameTime) {
  for (int round = 0; round < 200; ++round) {
    auto pool = make(small(4 * kKiB));
    auto leases = take_all(pool, 4 * kKiB);
    std::vector<BufferLease> others;
    while (leases.size() > 8) {
      others.push_back(std::move(leases.back()));
      leases.pop_back();
    }
    std::thread first([&] { leases.clear(); });
    std::thread second([&] { others.clear(); });
    pool = {};
    first.join();
    second.join();
    ASSERT_EQ(fake_.calls("dereg_mr"), round + 1);
  }
}

}  // namespace
}  // namespace rdmacomm
