// own_network.h - a network of a test's own: interfaces and addresses that do not depend on the machine.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/unique_fd.h"

namespace rdmacomm::testing {

/// While it lives, the calling thread, and those that it starts, are in a network namespace that has nothing but a
/// loopback interface, which is down. It goes with the last thread and socket in it.
class OwnNetwork {
 public:
  OwnNetwork() : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (!before_) {
      why_not_ = "/proc/thread-self/ns/net cannot be opened";
    } else if (unshare(CLONE_NEWNET) != 0) {
      why_not_ = std::string("a network of one's own wants root: unshare: ") + std::strerror(errno);
      before_.reset();
    } else if (status_of("ip link show") != 0) {
      why_not_ = "there is no program ip (package iproute2)";
    }
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;
  ~OwnNetwork() {
    if (!before_) return;
    EXPECT_EQ(setns(before_.get(), CLONE_NEWNET), 0);
  }

  /// For GTEST_SKIP(); empty: it is there.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  /// Runs ip(8) there; it must succeed. For example ("link set lo up").
  void ip(const std::string& arguments) const { run("ip " + arguments); }
  /// The same for any command of the shell.
  void run(const std::string& command) const { EXPECT_EQ(status_of(command), 0) << command; }
  /// A cable whose one end is `name`, with a link-local address, and whose other end is `name`_end, without any. Both
  /// are up, and addresses can be used at once.
  void add_interface(const std::string& name) const {
    const std::string end = name + "_end";
    ip("link add " + name + " type veth peer name " + end);
    run("echo 0 > /proc/sys/net/ipv6/conf/" + name + "/accept_dad");
    ip("link set " + end + " addrgenmode none up");
    ip("link set " + name + " up");
    // The kernel's workers take note of a carrier when they come to it.
    run("timeout 20 sh -c 'until ip link show dev " + name + " | grep -q \"state UP\"; do :; done'");
  }

 private:
  static int status_of(const std::string& command) { return std::system(("{ " + command + "; } > /dev/null").c_str()); }

  UniqueFd before_;  // not valid: it has not been left
  std::string why_not_;
};

}  // namespace rdmacomm::testing
