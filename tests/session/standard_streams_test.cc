// A program that was started without standard streams: the library leaves their descriptor numbers free. So the
// program's output is lost, but is not written into a socket or into memory that soft0 shares with its peers.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/logging.h"
#include "session/session_test_tools.h"
#include "support/this_program.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

/// A thread may use a number for a moment, between opening a descriptor and moving it to a higher number.
bool becomes_free(int fd) {
  const Deadline deadline = soon();
  while (::fcntl(fd, F_GETFD) != -1) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Runs in a process of its own, which the test below starts.
TEST(StandardStreamsBody, DISABLED_ConnectsWithoutThem) {
  const auto server = make_server();
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.polling_mode = PollingMode::kEpoll;  // needs the most descriptors
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  client.hooks->configure = server.hooks->configure;
  const auto at_client = client->connect();
  ASSERT_TRUE(at_client) << at_client.status().message();
  const auto at_server = server->accept(soon());
  ASSERT_TRUE(at_server) << at_server.status().message();
  for (const int fd : {0, 1, 2}) EXPECT_TRUE(becomes_free(fd)) << fd << " is in use";
  RDMACOMM_LOG(ERROR) << std::string(8192, 'x');  // would go into the control segment, if that had number 2
  const auto buffer = make_buffer((*at_client).device());
  const auto receiving = make_buffer((*at_server).device());
  ASSERT_TRUE((*at_server).channel().post_recv(receiving.at(0), {.id = 1}));
  ASSERT_TRUE((*at_client).channel().post_send(buffer.at(0), {.id = 2}));
  const Completion sent = wait_one(*at_client);
  EXPECT_TRUE(sent.ok()) << sent.status().message();
  EXPECT_TRUE(wait_one(*at_server).ok());
  EXPECT_TRUE((*at_client).close().ok());
  EXPECT_TRUE((*at_server).close().ok());
}

TEST(StandardStreams, AreNotTakenByTheLibraryWhenTheyAreClosed) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    testing::become_disabled_test("*.DISABLED_ConnectsWithoutThem");
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "run it by hand to see why: session_tests --gtest_also_run_disabled_tests "
                                       "--gtest_filter=*DISABLED_ConnectsWithoutThem";
}

}  // namespace
}  // namespace rdmacomm
