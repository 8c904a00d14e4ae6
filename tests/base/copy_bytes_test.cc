// copy_bytes copies exactly the given bytes, from and to any offset in a page.
#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace rdmacomm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMargin = kPage;  // before and after the copied bytes
constexpr std::size_t kMax = 3 * kPage + 5;
constexpr std::size_t kAll = kMargin + kPage + kMax + kMargin;

/// Pages in which one byte in 255 equals the previous byte.
class Pages {
 public:
  explicit Pages(std::byte first) : bytes_(kAll + kPage) {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i % 255);
  }
  std::byte* begin() { return bytes_.data() + -reinterpret_cast<std::uintptr_t>(bytes_.data()) % kPage; }

 private:
  std::vector<std::byte> bytes_;
};

TEST(CopyBytes, CopiesAllAndNothingElse) {
  Pages from(std::byte{1});
  Pages to(std::byte{77});
  Pages before(std::byte{77});
  for (const std::size_t count : {0UL, 1UL, 255UL, 2047UL, 2048UL, 2049UL, 2304UL, 2305UL, kPage, kMax}) {
    for (const std::size_t from_place : {0UL, 1UL, 16UL, 63UL, kPage - 1}) {
      for (const std::size_t further : {0UL, 1UL, 16UL, 31UL, 32UL, 64UL, kPage - 1}) {
        SCOPED_TRACE(testing::Message() << count << " bytes, from " << from_place << ", " << further << " further");
        const std::size_t to_place = (from_place + further) % kPage;
        std::copy_n(before.begin(), kAll, to.begin());
        const std::size_t begin = kMargin + to_place;
        copy_bytes(to.begin() + begin, from.begin() + from_place, count);
        ASSERT_TRUE(std::equal(to.begin(), to.begin() + begin, before.begin())) << "before it";
        ASSERT_TRUE(std::equal(to.begin() + begin, to.begin() + begin + count, from.begin() + from_place));
        ASSERT_TRUE(std::equal(to.begin() + begin + count, to.begin() + kAll, before.begin() + begin + count))
            << "behind";
      }
    }
  }
}

TEST(CopyBytes, ZeroBytesMayBeCopiedFromANullPointer) {  // checked by UndefinedBehaviorSanitizer
  copy_bytes(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace rdmacomm
