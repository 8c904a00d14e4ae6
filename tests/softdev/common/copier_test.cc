// Copier copies exactly the given bytes, for all lengths and in both directions, and writes the last bytes last.
#include "softdev/common/copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

namespace rdmacomm::softdev {
namespace {

constexpr std::size_t kMargin = 64;
constexpr std::size_t kMax = Copier::kTurnsFrom + Copier::kPieceBytes + 1;

class CopierTest : public ::testing::Test {
 protected:
  CopierTest() : from_(kMax + 2 * kMargin), to_(from_.size()), empty_(from_.size()) {
    // No two pieces are equal, and no byte has the value that the target is filled with before.
    for (std::size_t i = 0; i < from_.size(); ++i) from_[i] = static_cast<std::byte>((i * 131 + (i >> 16)) % 251 + 1);
  }

  /// Copies each length that might be a special case, twice, so that both directions are used, and checks the whole
  /// target. `shift`: distance of the source and the target from aligned addresses.
  template <typename Copy>
  void check(std::size_t shift, Copy&& copy) {
    for (const std::size_t count : std::initializer_list<std::size_t>{
             0, 1, 7, 8, 9, 15, 16, Copier::kTurnsFrom - 1, Copier::kTurnsFrom, Copier::kTurnsFrom + 9, kMax}) {
      for (int round = 0; round < 2; ++round) {
        to_ = empty_;
        std::byte* const from = from_.data() + kMargin - shift;
        std::byte* const to = to_.data() + kMargin + shift;
        copy(to, from, count);
        EXPECT_EQ(std::memcmp(to, from, count), 0) << count << " bytes, round " << round << ", shift " << shift;
        std::memset(to, 0, count);
        EXPECT_TRUE(std::memcmp(to_.data(), empty_.data(), to_.size()) == 0) << "more than " << count << " bytes";
      }
    }
  }

  Copier copier_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  const std::vector<std::byte> empty_;
};

TEST_F(CopierTest, CopiesAllAndNothingElse) {
  for (const std::size_t shift : {0, 3}) {
    check(shift, [this](auto... arguments) { copier_.copy(arguments...); });
  }
}

TEST_F(CopierTest, CopiesAllAndNothingElseWithTheLastByteLast) {
  for (const std::size_t shift : {0, 7}) {
    check(shift, [this](auto... arguments) { copier_.copy_last_byte_last(arguments...); });
  }
}

TEST(CopierOrder, AReaderThatSeesTheLastBytesSeesAll) {
  constexpr std::size_t kCount = Copier::kTurnsFrom + 2 * Copier::kPieceBytes;
  constexpr std::uint64_t kRounds = 20;
  std::vector<std::uint64_t> from(kCount / 8);
  std::vector<std::uint64_t> to(kCount / 8);
  std::atomic<std::uint64_t> seen{0};
  std::size_t others = 0;
  std::jthread watcher([&] {
    const std::atomic_ref<std::uint64_t> last(to.back());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (last.load(std::memory_order_acquire) != round) std::this_thread::yield();
      others += to.size() - static_cast<std::size_t>(std::ranges::count(to, round));
      seen.store(round, std::memory_order_release);
    }
  });
  Copier copier;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::ranges::fill(from, round);
    copier.copy_last_byte_last(reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<std::byte*>(from.data()),
                               kCount);
    while (seen.load(std::memory_order_acquire) != round) std::this_thread::yield();
  }
  watcher.join();
  EXPECT_EQ(others, 0U) << "words that were not there yet when the last one was";
}

}  // namespace
}  // namespace rdmacomm::softdev
