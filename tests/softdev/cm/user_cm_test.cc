// Commands to /dev/infiniband/rdma_cm: their checks, and the states in which they are allowed.
#include "softdev/cm/user_cm.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "softdev/cm/cm_scene.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {
namespace {

struct UserCmTest : ::testing::Test {
  UserCm cm{DeviceIdentity{.name = "soft0"}};
  Channel channel{cm};
};

TEST_F(UserCmTest, RefusesWritesThatAreNoCommands) {
  const std::array<std::byte, 64> zeroes{};
  for (std::size_t length = 0; length < sizeof(rdma_ucm_cmd_hdr); ++length) {
    EXPECT_EQ(cm.write(channel.fd, zeroes.data(), length), -1);
    EXPECT_EQ(errno, EINVAL) << length;
  }
  const rdma_ucm_cmd_hdr longer{RDMA_USER_CM_CMD_LISTEN, 8, 0};
  EXPECT_EQ(cm.write(channel.fd, &longer, sizeof(longer)), -1) << "the command is missing";
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(channel.write(9999, rdma_ucm_listen{}), ENOSYS);
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_GET_OPTION, rdma_ucm_listen{}), ENOSYS);
}

TEST_F(UserCmTest, RefusesAnswersWithoutRoom) {
  rdma_ucm_create_id command{};
  std::uint32_t number = 0;
  command.response = reinterpret_cast<std::uint64_t>(&number);
  command.ps = RDMA_PS_TCP;
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_CREATE_ID, command, 3), ENOSPC);
  EXPECT_EQ(number, 0U);
}

TEST_F(UserCmTest, RefusesUnknownPortSpaces) {
  rdma_ucm_create_id command{};
  command.ps = 0x7777;
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof(rdma_ucm_create_id_resp)), EINVAL);
}

TEST_F(UserCmTest, IdentifiersBelongToTheirChannel) {
  const Channel other(cm);
  const std::uint32_t id = channel.create(1);
  EXPECT_EQ(other.bind(id, ipv4(0)), EINVAL);
  EXPECT_EQ(channel.bind(id + 1000, ipv4(0)), EINVAL);
  EXPECT_EQ(channel.bind(id, ipv4(0)), 0);
}

TEST_F(UserCmTest, RefusesCommandsInOtherStates) {
  const std::uint32_t id = channel.create(1);
  EXPECT_EQ(channel.resolve_route(id), EINVAL);
  EXPECT_EQ(channel.connect(id, parameters()), EINVAL);
  EXPECT_EQ(channel.accept(id, parameters()), EINVAL);
  EXPECT_EQ(channel.confirm(id), EINVAL);
  EXPECT_EQ(channel.reject(id, ""), EINVAL);
  EXPECT_EQ(channel.disconnect(id), EINVAL);
  EXPECT_EQ(channel.attributes(id, IBV_QPS_INIT).qp_state, 0U);
  ASSERT_EQ(channel.listen(id), 0) << "at any address and port";
  EXPECT_EQ(channel.bind(id, ipv4(0)), EINVAL);
  EXPECT_EQ(channel.resolve_address(id, ipv4(7)), EINVAL);
  EXPECT_EQ(channel.listen(id), EINVAL);
}

TEST_F(UserCmTest, RefusesAddressesOfOtherHosts) {
  EXPECT_EQ(channel.bind(channel.create(1), ipv4(0, "203.0.113.1")), EADDRNOTAVAIL);
}

TEST_F(UserCmTest, RefusesAddressesThatAreTooShortOrOfAnotherFamily) {
  const std::uint32_t id = channel.create(1);
  rdma_ucm_bind command{};
  command.id = id;
  const sockaddr_in address = ipv4(0);
  std::memcpy(&command.addr, &address, sizeof(address));
  for (const std::uint16_t size : std::initializer_list<std::uint16_t>{0, 1, 2, 7, 15, 129, 65535}) {
    command.addr_size = size;
    EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_BIND, command), EINVAL) << size;
  }
  command.addr_size = sizeof(address);
  const sa_family_t family = AF_UNIX;
  std::memcpy(&command.addr, &family, sizeof(family));
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_BIND, command), EINVAL);
}

TEST_F(UserCmTest, PrivateDataHasTheKernelsRoom) {
  const std::uint32_t listener = channel.listener();
  const std::uint32_t id = channel.initiator(channel.port_of(listener));
  EXPECT_EQ(channel.connect(id, parameters(std::string(57, 'x'))), EINVAL);
  EXPECT_EQ(channel.connect(id, parameters(std::string(56, 'x'))), 0);
  const auto request = channel.expect(CmEventType::kConnectRequest);
  EXPECT_EQ(request.param.conn.private_data_len, 56);
  EXPECT_EQ(channel.accept(request.id, parameters(std::string(197, 'y'))), EINVAL);
  EXPECT_EQ(channel.reject(request.id, std::string(149, 'z')), EINVAL);
  EXPECT_EQ(channel.accept(request.id, parameters(std::string(196, 'y'))), 0);
}

TEST_F(UserCmTest, EventsOfAnIdentifierGoWithIt) {
  const std::uint32_t id = channel.create(1);
  ASSERT_EQ(channel.resolve_address(id, ipv4(7)), 0);
  EXPECT_TRUE(channel.has_event());
  EXPECT_EQ(channel.destroy(id), 0U);
  EXPECT_FALSE(channel.has_event());
}

TEST_F(UserCmTest, AFileWithoutBlockingHasNoEvents) {
  const int fd = cm.open(O_NONBLOCK);
  ASSERT_GE(fd, 0);
  rdma_ucm_event_resp event{};
  struct {
    rdma_ucm_cmd_hdr head{RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event), sizeof(rdma_ucm_event_resp)};
    rdma_ucm_get_event command;
  } whole{.command = {reinterpret_cast<std::uint64_t>(&event)}};
  EXPECT_EQ(cm.write(fd, &whole, sizeof(whole)), -1);
  EXPECT_EQ(errno, EAGAIN);
  cm.closed(fd);
  ::close(fd);
}

/// A program may close its descriptor while a thread waits for events. Its number then belongs to another file.
TEST_F(UserCmTest, AWaitingThreadReadsNoOtherFileWithTheSameNumber) {
  const auto bytes_in = [](int fd) {
    int bytes = 0;
    EXPECT_EQ(ioctl(fd, FIONREAD, &bytes), 0);
    return bytes;
  };
  const Channel duplicate{cm, fcntl(channel.fd, F_DUPFD_CLOEXEC, 0)};
  const std::uint32_t id = channel.create(1);
  rdma_ucm_event_resp event{};
  std::thread waiting([&] { event = channel.get_event(); });
  // The thread wakes up without an event, as after an event that was removed, and waits again.
  const UniqueFd bell(open(("/proc/self/fd/" + std::to_string(channel.fd)).c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(bell);
  ASSERT_EQ(write(bell.get(), "x", 1), 1);
  while (bytes_in(bell.get()) != 0) std::this_thread::yield();
  // It wakes up again, and needs the locks to find that there is no event.
  cm.before_fork();
  ASSERT_EQ(write(bell.get(), "x", 1), 1);
  std::array<int, 2> other{};
  ASSERT_EQ(pipe2(other.data(), O_CLOEXEC), 0);
  UniqueFd other_end(other[1]);
  ASSERT_EQ(write(other_end.get(), "y", 1), 1);
  ASSERT_EQ(dup2(other[0], channel.fd), channel.fd);
  close(other[0]);
  other_end.reset();  // a thread that reads this pipe finds its end, and does not wait for ever
  cm.after_fork(false);

  EXPECT_EQ(duplicate.resolve_address(id, ipv4(5)), 0);
  waiting.join();
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(bytes_in(channel.fd), 1) << "that of the other file";
}

/// The files that this process has open: its pipes, sockets and other files that no path leads to.
std::vector<std::string> anonymous_files() {
  std::vector<std::string> found;
  for (int fd = 3; fd < 256; ++fd) {
    std::array<char, 64> target{};
    const auto length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target.data(), target.size());
    const std::string_view name(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    if (!name.empty() && !name.starts_with('/')) found.emplace_back(name);
  }
  return found;
}

TEST_F(UserCmTest, AChildKeepsNothingButTheDescriptors) {
  channel.close();
  const auto before = anonymous_files();
  auto at_parent = std::make_unique<Channel>(cm);
  const std::uint32_t id = at_parent->create(1);
  ASSERT_EQ(at_parent->bind(id, ipv4(0)), 0) << "a port without a listener";
  const std::uint16_t port = at_parent->port_of(id);
  (void)at_parent->listener();
  const auto connecting = at_parent->initiator(port);
  ASSERT_EQ(at_parent->connect(connecting, parameters()), 0);
  cm.before_fork();
  const rdmacomm::testing::ForkedChild child([&](int line) {
    cm.after_fork(true);
    const std::size_t files = anonymous_files().size();
    ASSERT_EQ(::send(line, &files, sizeof(files), 0), static_cast<ssize_t>(sizeof(files)));
    char byte = 0;
    (void)::recv(line, &byte, 1, 0);  // until the test has ended
  });
  cm.after_fork(false);
  std::size_t files = 0;
  ASSERT_EQ(::recv(child.line(), &files, sizeof(files), 0), static_cast<ssize_t>(sizeof(files)));
  EXPECT_EQ(files, before.size() + 2) << "those of before, the program's descriptor and the line to the test";
  at_parent->close();
  const Channel again(cm);
  EXPECT_EQ(again.bind(again.create(1), ipv4(port)), 0);
}

/// As fclose() does, which the device does not see.
TEST_F(UserCmTest, AFileThatIsClosedSilentlyIsDroppedWithTheNextOpen) {
  const std::uint32_t id = channel.listener();
  const std::uint16_t port = channel.port_of(id);
  const int duplicate = fcntl(channel.fd, F_DUPFD_CLOEXEC, 0);
  ASSERT_EQ(::close(std::exchange(channel.fd, -1)), 0);
  const Channel second(cm);
  EXPECT_EQ(second.bind(second.create(1), ipv4(port)), EADDRINUSE) << "the program has a duplicate";
  ASSERT_EQ(::close(duplicate), 0);
  const Channel third(cm);
  EXPECT_EQ(third.bind(third.create(1), ipv4(port)), 0);
}

UserCm* forking_cm = nullptr;

TEST(UserCmWithSignals, AHandlerMayFork) {
  rdmacomm::testing::ForkedChild child([](int) {
    alarm(60);  // ends the process if it waits for itself
    UserCm cm(DeviceIdentity{.name = "soft0"});
    const Channel channel(cm);
    forking_cm = &cm;
    struct sigaction action {};
    action.sa_handler = [](int) {
      forking_cm->before_fork();
      forking_cm->after_fork(false);
    };
    action.sa_flags = SA_RESTART;
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
    std::atomic<bool> is_done = false;
    std::thread signals([&is_done, target = pthread_self()] {
      while (!is_done) pthread_kill(target, SIGUSR1);
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(channel.destroy(channel.create(1)), 0U);
    is_done = true;
    signals.join();
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(UserCmTest, AnotherFileThatIsClosedNeedsNoLock) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  cm.before_fork();
  cm.closed(socket.get());
  cm.after_fork(false);
}

/// A process that becomes a daemon closes all descriptors. Their numbers then belong to other files.
TEST(UserCmAfterClosefrom, CanBeOpenedAgain) {
  rdmacomm::testing::ForkedChild child([](int) {
    UserCm cm(DeviceIdentity{.name = "soft0"});
    const auto lost = std::make_unique<Channel>(cm);
    const std::uint16_t port = lost->port_of(lost->listener());
    const auto connecting = lost->initiator(port);
    ASSERT_EQ(lost->connect(connecting, parameters()), 0);
    lost->expect(CmEventType::kConnectRequest);
    ASSERT_EQ(close_range(3, ~0U, 0), 0);
    lost->fd = -1;
    std::vector<int> others;
    for (int i = 0; i < 32; ++i) others.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const Channel channel(cm);
    const Channel client(cm);
    const auto listener = channel.listener();
    ASSERT_EQ(client.connect(client.initiator(channel.port_of(listener)), parameters()), 0);
    channel.expect(CmEventType::kConnectRequest);
    for (const int fd : others) EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC) << "it is the program's";
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(UserCmTest, OptionsAreChecked) {
  const std::uint32_t id = channel.create(1);
  EXPECT_EQ(channel.set(id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(channel.set(id, RDMA_OPTION_ID_TOS, 1), EINVAL) << "one byte";
  EXPECT_EQ(channel.set(id, 99, 1), ENOSYS);
  ASSERT_EQ(channel.bind(id, ipv4(0)), 0);
  EXPECT_EQ(channel.set(id, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL) << "it has its port";
}

TEST_F(UserCmTest, OfADescriptorThatIsNoFileOfItsRefuses) {
  const rdma_ucm_cmd_hdr head{RDMA_USER_CM_CMD_LISTEN, 0, 0};
  EXPECT_EQ(cm.write(0, &head, sizeof(head)), -1);
  EXPECT_EQ(errno, EBADF);
  channel.close();
  EXPECT_EQ(cm.write(channel.fd, &head, sizeof(head)), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(UserCmTest, ReturnsTheEventsThatTheProgramWrites) {
  struct {
    std::uint32_t id, reserved, event, status;
    std::uint64_t argument;
  } command{channel.create(7), 0, 19, 5, 0x1122334455667788};
  constexpr std::uint32_t kWriteEvent = 24;
  ASSERT_EQ(channel.write(kWriteEvent, command), 0);
  const auto written = channel.expect(CmEventType::kInternal, 5);
  EXPECT_EQ(written.uid, 7U);
  EXPECT_EQ(std::memcmp(&written.param, &command.argument, sizeof(command.argument)), 0);
  command.event = 10;
  EXPECT_EQ(channel.write(kWriteEvent, command), EINVAL) << "an event of the device";
  command = {command.id + 1000, 0, 18, 0, 0};
  EXPECT_EQ(channel.write(kWriteEvent, command), EINVAL) << "no such identifier";
}

// ---- Multicast groups

TEST_F(UserCmTest, JoinsAndLeavesGroups) {
  const std::uint32_t id = channel.create(1, RDMA_PS_UDP);
  const sockaddr_in group = ipv4(0, "239.1.2.3");
  ASSERT_EQ(channel.resolve_address(id, group), 0);
  channel.expect(CmEventType::kAddressResolved);
  const std::uint32_t membership = channel.join(id, group, 55);
  const auto joined = channel.expect(CmEventType::kMulticastJoin);
  EXPECT_EQ(joined.uid, 55U);
  EXPECT_EQ(joined.param.ud.qp_num, 0xffffffU);
  EXPECT_EQ(joined.param.ud.ah_attr.grh.dgid[12], 239);
  rdma_ucm_destroy_id leave{};
  leave.id = membership;
  EXPECT_EQ(channel.ask<rdma_ucm_destroy_id_resp>(RDMA_USER_CM_CMD_LEAVE_MCAST, leave).events_reported, 1U);
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof(rdma_ucm_destroy_id_resp)), EINVAL);
}

TEST(InfinibandGroups, AreThoseOfIpOverInfiniband) {
  const auto mapped = [](const char* text, bool for_udp) {
    CmAddress group;
    in_addr ipv4{};
    if (inet_pton(AF_INET, text, &ipv4) == 1) {
      group.family = AF_INET;
      std::memcpy(group.gid.raw + 12, &ipv4, sizeof(ipv4));
    } else {
      group.family = AF_INET6;
      EXPECT_EQ(inet_pton(AF_INET6, text, group.gid.raw), 1);
    }
    const ibv_gid there = infiniband_group(group, for_udp);
    EXPECT_GE(lid_of_group(there), 0xc000);
    EXPECT_NE(lid_of_group(there), 0xffff);
    std::array<char, INET6_ADDRSTRLEN> shown{};
    return std::string(inet_ntop(AF_INET6, there.raw, shown.data(), shown.size()));
  };
  EXPECT_EQ(mapped("239.1.2.3", false), "ff12:401b:ffff::f01:203");
  EXPECT_EQ(mapped("239.1.2.3", true), "ff12:4001:ffff::f01:203");
  EXPECT_EQ(mapped("ff02::1:ff00:7", false), "ff12:601b:ffff::1:ff00:7");
  EXPECT_EQ(mapped("ff02::1:ff00:7", true), "ff12:6001:ffff::1:ff00:7");
  EXPECT_EQ(mapped("ff15:a01b::7", true), "ff15:a01b::7");
}

TEST(InfinibandGroups, AreJoined) {
  UserCm cm{DeviceIdentity{.name = "soft0", .infiniband = true}};
  Channel channel{cm};
  const std::uint32_t id = channel.create(1, RDMA_PS_UDP);
  const sockaddr_in group = ipv4(0, "239.1.2.3");
  ASSERT_EQ(channel.resolve_address(id, group), 0);
  channel.expect(CmEventType::kAddressResolved);
  (void)channel.join(id, group);
  const auto joined = channel.expect(CmEventType::kMulticastJoin);
  EXPECT_EQ(joined.param.ud.ah_attr.is_global, 1U);
  EXPECT_GE(joined.param.ud.ah_attr.dlid, 0xc000U);
  EXPECT_EQ(joined.param.ud.ah_attr.grh.dgid[0], 0xff);
}

TEST_F(UserCmTest, OnlyGroupsAreJoined) {
  const std::uint32_t id = channel.create(1, RDMA_PS_UDP);
  const sockaddr_in address = ipv4(0);
  ASSERT_EQ(channel.bind(id, address), 0);
  const auto command = Channel::join_command(id, address, 0);
  EXPECT_EQ(channel.write(RDMA_USER_CM_CMD_JOIN_MCAST, command, sizeof(rdma_ucm_create_id_resp)), EINVAL);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
