// The messages that a program prints for a failure.
#include "support/program.h"

#include <gtest/gtest.h>

namespace rdmacomm::programs {
namespace {

TEST(ReasonText, NamesThisProgramsFlagsInsteadOfTheLibrarysOptions) {
  EXPECT_EQ(reason_text(make_error(Errc::kAborted, "the wrong device: choose the right device (DeviceOptions::name)")),
            "the wrong device: choose the right device (--device)");
  EXPECT_EQ(
      reason_text(make_error(
          Errc::kAborted, "one GID type (DeviceOptions::gid_type, DeviceOptions::gid_index), or ConnectorKind::kCm")),
      "one GID type (--gid-type, --gid-index), or --connector=cm");
}

TEST(ReasonText, EndsWithTheTextOfTheCodeUnlessThePeerHasGivenUp) {
  EXPECT_EQ(reason_text(make_error(Errc::kTimeout, "no answer")), "no answer (timed out)");
  EXPECT_EQ(reason_text(make_error(Errc::kAborted, "the peer says: enough")), "the peer says: enough");
}

}  // namespace
}  // namespace rdmacomm::programs
