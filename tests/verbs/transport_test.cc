#include "verbs/transport.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace rdmacomm::verbs {
namespace {

TEST(Transport, OnlyIwarpsQueuePairsFailWithAConnection) {
  ibv_device device{};
  ibv_context context{};
  context.device = &device;
  device.transport_type = IBV_TRANSPORT_IWARP;
  EXPECT_TRUE(fails_with_connection(context));
  for (const ibv_transport_type other : {IBV_TRANSPORT_IB, IBV_TRANSPORT_UNSPECIFIED, IBV_TRANSPORT_UNKNOWN}) {
    device.transport_type = other;
    EXPECT_FALSE(fails_with_connection(context));
  }
}

TEST(Transport, HasANameForEach) {
  EXPECT_EQ(to_text(Transport::kRoce), "RoCE");
  EXPECT_EQ(to_text(Transport::kIwarp), "iWARP");
  EXPECT_EQ(to_text(static_cast<Transport>(77)), "transport 77");
}

}  // namespace
}  // namespace rdmacomm::verbs
