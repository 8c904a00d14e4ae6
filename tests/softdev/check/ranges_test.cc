#include "softdev/check/ranges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace rdmacomm::softdev::check {

struct Request {};

namespace {

std::vector<const Request*> found_in(const Ranges& ranges, std::uint64_t address, std::uint64_t length) {
  std::vector<const Request*> found;
  ranges.for_each(address, length, [&](std::uint64_t, const Ranges::Range& range) {
    found.push_back(range.request);
    return true;
  });
  return found;
}

TEST(Ranges, NeighboursDoNotOverlap) {
  Ranges ranges;
  Request one;
  ranges.insert(1000, {100, &one, true});
  EXPECT_TRUE(found_in(ranges, 900, 100).empty());
  EXPECT_TRUE(found_in(ranges, 1100, 100).empty());
  EXPECT_EQ(found_in(ranges, 1099, 1).size(), 1U);
  EXPECT_EQ(found_in(ranges, 999, 2).size(), 1U);
  EXPECT_EQ(found_in(ranges, 0, 100000).size(), 1U);
}

TEST(Ranges, ARequestMayRepeatASlice) {
  Ranges ranges;
  Request one;
  ranges.insert(1000, {100, &one, false});
  ranges.insert(1000, {100, &one, false});
  ranges.erase(1000, 100, &one);
  EXPECT_EQ(found_in(ranges, 1000, 1).size(), 1U);
  ranges.erase(1000, 100, &one);
  EXPECT_TRUE(found_in(ranges, 1000, 1).empty());
}

TEST(Ranges, TheSearchEndsWhenTheFunctionSaysSo) {
  Ranges ranges;
  Request one;
  Request two;
  ranges.insert(0, {10, &one, false});
  ranges.insert(5, {10, &two, false});
  int calls = 0;
  ranges.for_each(0, 100, [&](std::uint64_t, const Ranges::Range&) { return ++calls, false; });
  EXPECT_EQ(calls, 1);
}

/// Compared with a search through all ranges. The sizes are of all magnitudes.
TEST(Ranges, FindsTheSameAsASearchThroughAll) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  struct Known {
    std::uint64_t address;
    std::uint64_t length;
  };
  Ranges ranges;
  std::vector<Request> requests(200);
  std::map<const Request*, Known> all;
  const auto draw_length = [&] { return 1 + random() % (std::uint64_t{1} << (random() % 20)); };
  for (int step = 0; step < 5000; ++step) {
    Request& one = requests[random() % requests.size()];
    const auto known = all.find(&one);
    if (known != all.end()) {
      ranges.erase(known->second.address, known->second.length, &one);
      all.erase(known);
    } else {
      const Known range{random() % (1 << 20), draw_length()};
      ranges.insert(range.address, {range.length, &one, true});
      all[&one] = range;
    }
    const Known wanted{random() % (1 << 20), draw_length()};
    std::size_t expected = 0;
    for (const auto& [request, range] : all) {
      if (range.address < wanted.address + wanted.length && wanted.address < range.address + range.length) ++expected;
    }
    ASSERT_EQ(found_in(ranges, wanted.address, wanted.length).size(), expected);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::check
