// Keys: a key cannot be derived from another key, and an ended key stays invalid for a long time.
#include "softdev/memory/mr_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace rdmacomm::softdev::test {
namespace {

constexpr Registration kSome{.pd = 1, .address = 4096, .length = 4096};

TEST(MrTable, KeysCannotBeComputedFromOthers) {
  MrTable table;
  ASSERT_TRUE(table.create());
  constexpr int kKeys = 1000;
  std::set<std::uint32_t> places;
  int low_halves = 0;       // in the lower half of the table
  int low_salts = 0;        // highest bits
  int low_generations = 0;  // lowest bits
  for (int i = 0; i < kKeys; ++i) {
    const std::uint32_t key = table.add(kSome);
    ASSERT_NE(key, 0U);
    places.insert(place_of(key));
    low_halves += place_of(key) < MrTable::kEntries / 2;
    low_salts += key >> 31 == 0;
    low_generations += (key & 0xff) < 0x80;
    EXPECT_NE(find_range(table.entries(), key, 1, 4096, 8, 0), nullptr);
    EXPECT_EQ(find_range(table.entries(), key ^ 1, 1, 4096, 8, 0), nullptr);
    EXPECT_EQ(find_range(table.entries(), key ^ 1U << 31, 1, 4096, 8, 0), nullptr);
  }
  EXPECT_EQ(places.size(), static_cast<std::size_t>(kKeys));
  // For random numbers each count is 500 +- 16.
  for (const int low : {low_halves, low_salts, low_generations}) {
    EXPECT_GT(low, kKeys / 2 - 130);
    EXPECT_LT(low, kKeys / 2 + 130);
  }
}

/// The last free place is reused again and again. Its key used to repeat after 256 uses.
TEST(MrTable, AFreedKeyIsNotReusedSoon) {
  MrTable table;
  ASSERT_TRUE(table.create());
  std::uint32_t key = 0;
  for (std::uint32_t i = 1; i < MrTable::kEntries; ++i) ASSERT_NE(key = table.add(kSome), 0U) << i;
  ASSERT_EQ(table.add(kSome), 0U) << "full";
  const std::uint32_t place = place_of(key);
  std::set<std::uint32_t> keys{key};
  for (int i = 0; i < 300; ++i) {
    table.invalidate(key);
    EXPECT_EQ(find_range(table.entries(), key, 1, 4096, 8, 0), nullptr);
    table.recycle(key);
    key = table.add(kSome);
    ASSERT_EQ(place_of(key), place);
    ASSERT_TRUE(keys.insert(key).second) << i;
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
