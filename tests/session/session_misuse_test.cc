// Mistakes of a program that end it, with one line that names the mistake.
#include <gtest/gtest.h>

#include <memory>

#include "rdmacomm/buffer_pool.h"
#include "rdmacomm/session.h"

namespace rdmacomm {
namespace {

TEST(SessionMisuseDeathTest, ASessionIsNotDestroyedByItsOwnHook) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto destroy_inside = [] {
    std::unique_ptr<ServerSession> server;
    const SessionFunctions hooks{.init_session = [&](const RDMADevice&) {
      server.reset();
      return Status();
    }};
    server = std::make_unique<ServerSession>(
        SessionOptions{.device = {.name = "soft0"}, .address = {.host = "127.0.0.1", .port = 0}}, hooks);
    (void)server->start();
  };
  EXPECT_DEATH(destroy_inside(), "a session was destroyed, or assigned to, by one of its own hooks");
}

TEST(SessionMisuseDeathTest, EmptyHandlesAreNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)EndPoint().peer(), "an empty EndPoint was used");
  EXPECT_DEATH((void)RDMADevice().name(), "an empty RDMADevice was used");
  EXPECT_DEATH((void)BufferPool().counts(), "an empty BufferPool was used");
}

TEST(SessionMisuseDeathTest, AnEmptyBufferIsNotPublished) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  HcaConfig config;
  EXPECT_DEATH(config.publish(RDMABuffer()), "an empty RDMABuffer was published");
}

}  // namespace
}  // namespace rdmacomm
