// The header of each segment on an rdma_cm connection.
#include "connector/cm/cm_segment.h"

#include <gtest/gtest.h>

#include <vector>

namespace rdmacomm {
namespace {

std::vector<std::byte> segment_of(const CmSegment& header, std::size_t bytes) {
  const auto head = header.encode();
  std::vector<std::byte> segment(head.begin(), head.end());
  segment.resize(head.size() + bytes);
  return segment;
}

TEST(CmSegment, IsDecodedAsItWasEncoded) {
  const CmSegment header{.length = 0x0103, .credits = 0x2040, .flags = CmSegment::kLast};
  const auto segment = segment_of(header, 0x0103);
  EXPECT_EQ(segment[0], std::byte{3});
  EXPECT_EQ(segment[3], std::byte{0x20});
  const auto back = CmSegment::decode(segment);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->length, header.length);
  EXPECT_EQ(back->credits, header.credits);
  EXPECT_EQ(back->flags, header.flags);
}

TEST(CmSegment, ASegmentOfAnotherLengthThanItStatesIsRefused) {
  for (const std::size_t bytes : {0, 4, 6, 1016}) {
    EXPECT_FALSE(CmSegment::decode(segment_of({.length = 5}, bytes)).has_value()) << bytes;
  }
  EXPECT_TRUE(CmSegment::decode(segment_of({.length = 5}, 5)).has_value());
}

TEST(CmSegment, ASegmentShorterThanAHeaderIsRefused) {
  const auto segment = segment_of({}, 0);
  for (std::size_t bytes = 0; bytes < segment.size(); ++bytes) {
    EXPECT_FALSE(CmSegment::decode(std::span(segment).first(bytes)).has_value()) << bytes;
  }
  EXPECT_TRUE(CmSegment::decode(segment).has_value());
}

}  // namespace
}  // namespace rdmacomm
