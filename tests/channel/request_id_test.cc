#include "channel/request_id.h"

#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

struct Receive {
  std::uint64_t anything = 0;
};

TEST(RequestId, ContainsTheQueueAndThePosition) {
  for (const std::uint32_t position : {0U, 1U, 2U, 3U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    SCOPED_TRACE(position);
    EXPECT_FALSE(is_pooled_request(send_request_id(position)));
    EXPECT_FALSE(is_recv_request(send_request_id(position)));
    EXPECT_EQ(request_position(send_request_id(position)), position);
    EXPECT_FALSE(is_pooled_request(recv_request_id(position)));
    EXPECT_TRUE(is_recv_request(recv_request_id(position)));
    EXPECT_EQ(request_position(recv_request_id(position)), position);
  }
}

TEST(RequestId, KeepsTheAddressOfAPooledReceiveWithItsTag) {
  Receive receive;
  const auto address = reinterpret_cast<std::uintptr_t>(&receive);
  for (const std::uint64_t tag : {0x00ULL, 0x01ULL, 0x40ULL, 0x80ULL, 0xc5ULL, 0xffULL}) {
    auto* const tagged = reinterpret_cast<Receive*>(address | tag << 56);
    const std::uint64_t id = pooled_request_id(tagged);
    EXPECT_TRUE(is_pooled_request(id));
    EXPECT_EQ(pooled_request<Receive>(id), tagged);
  }
}

}  // namespace
}  // namespace rdmacomm
