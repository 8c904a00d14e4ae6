// Events of rdma_cm other than "established", and the errors that the user gets for them.
#include "connector/cm/cm_refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "connector/cm/cm_private_data.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

std::error_code code_of(rdma_cm_event_type type, int status) {
  const Error error = not_connected({.type = type, .status = status}, "10.0.0.2:2020");
  EXPECT_THAT(error.context, HasSubstr("10.0.0.2:2020"));
  return error.code;
}

TEST(CmRefusal, NoListener) {
  EXPECT_EQ(code_of(RDMA_CM_EVENT_REJECTED, 8), std::errc::connection_refused);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED), std::errc::connection_refused);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNREFUSED), std::errc::connection_refused);
}

TEST(CmRefusal, TheListenerRefuses) {
  EXPECT_EQ(code_of(RDMA_CM_EVENT_REJECTED, 28), Errc::kPeerRefused);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_REJECTED, -ECONNRESET), Errc::kPeerRefused);
}

TEST(CmRefusal, AnotherVersionIsNamed) {
  auto words = CmPrivateData{}.encode();
  words[4] = std::byte{9};
  const Error error =
      not_connected({.type = RDMA_CM_EVENT_REJECTED, .status = 28, .private_data = words}, "10.0.0.2:2020");
  EXPECT_EQ(error.code, Errc::kVersionMismatch);
  EXPECT_THAT(error.context, HasSubstr("version 9"));
}

TEST(CmRefusal, SilenceIsATimeout) {
  EXPECT_EQ(code_of(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT), Errc::kTimeout);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT), Errc::kTimeout);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_UNREACHABLE, 0), Errc::kTimeout);
}

TEST(CmRefusal, AnErrorKeepsItsNumber) {
  EXPECT_EQ(code_of(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET), std::errc::connection_reset);
  EXPECT_EQ(code_of(RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM), std::errc::not_enough_memory);
}

}  // namespace
}  // namespace rdmacomm
