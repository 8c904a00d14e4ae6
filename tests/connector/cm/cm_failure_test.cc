// Conclusions about the connection from a failed request that the stream itself has posted.
#include "connector/cm/cm_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs/call.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

class CmFailureTest : public ::testing::Test {
 protected:
  CmFailureTest() { context_.device = &device_; }
  CmFailure of(ibv_wc_status status) { return failure_of(status, context_); }
  CmFailure of(int number) { return failure_of(make_error(verbs::os_error(number), "cannot post"), context_); }
  void be_iwarp() { device_.transport_type = IBV_TRANSPORT_IWARP; }

  ibv_device device_{};
  ibv_context context_{};
};

TEST_F(CmFailureTest, AFlushedRequestIsNoCause) {
  EXPECT_FALSE(of(IBV_WC_WR_FLUSH_ERR));
}

TEST_F(CmFailureTest, TheErrorOfTheDeviceIsTheCause) {
  EXPECT_THAT(of(IBV_WC_RETRY_EXC_ERR).value(), HasSubstr("the peer did not answer"));
  EXPECT_THAT(of(IBV_WC_RETRY_EXC_ERR).value(), HasSubstr("(transport retry counter exceeded)"));
  EXPECT_THAT(of(IBV_WC_LOC_QP_OP_ERR).value(), HasSubstr("the local device refused the request"));
  EXPECT_THAT(of(ENOMEM).value(), HasSubstr("cannot post"));
  EXPECT_THAT(of(ENOTCONN).value(), HasSubstr("cannot post"));
}

/// siw reports LOC_QP_OP_ERR for requests that TCP no longer accepts, and refuses requests that are posted after that.
TEST_F(CmFailureTest, OnIwarpAFailedQueuePairIsTheConnectionsEnd) {
  be_iwarp();
  EXPECT_FALSE(of(IBV_WC_LOC_QP_OP_ERR));
  EXPECT_FALSE(of(IBV_WC_WR_FLUSH_ERR));
  EXPECT_FALSE(of(ENOTCONN));
}

TEST_F(CmFailureTest, OnIwarpOtherErrorsAreReportedToo) {
  be_iwarp();
  EXPECT_THAT(of(IBV_WC_LOC_PROT_ERR).value(), HasSubstr("not registered"));
  EXPECT_THAT(of(IBV_WC_LOC_LEN_ERR).value(), HasSubstr("longer than the receive"));
  EXPECT_THAT(of(ENOMEM).value(), HasSubstr("cannot post"));
}

}  // namespace
}  // namespace rdmacomm
