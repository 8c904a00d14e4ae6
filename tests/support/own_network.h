// own_network.h - a private network for a test: interfaces and addresses that do not depend on the machine.
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

/// While it lives, the calling thread and the threads that it starts are in a network namespace of their own. At first
/// it only has a loopback interface, which is down. The namespace ends with its last thread and socket.
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

  /// The reason for GTEST_SKIP() if the namespace could not be created; else empty.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  /// Runs ip(8) in the namespace; it must succeed. For example ("link set lo up").
  void ip(const std::string& arguments) const { run("ip " + arguments); }
  /// Runs any shell command in the namespace; it must succeed.
  void run(const std::string& command) const { EXPECT_EQ(status_of(command), 0) << command; }
  /// The kernel adds and removes IPv6 addresses at unpredictable times. After this call it does not.
  void disable_ipv6() const {
    for (const char* const which : {"all", "default"}) {
      run(std::string("echo 1 > /proc/sys/net/ipv6/conf/") + which + "/disable_ipv6");
    }
  }
  /// Adds two interfaces, rail0 and rail1, with the addresses 10.9.0.1 and 10.9.1.1. The loopback interface is up.
  void add_rails() const {
    ip("link set lo up");
    for (const std::string number : {"0", "1"}) {
      add_interface("rail" + number);
      ip("address add 10.9." + number + ".1/24 dev rail" + number);
    }
  }
  /// Creates a pair of connected interfaces: `name`, with a link-local address, and `name`_end, without addresses. Both
  /// are up, and addresses can be used at once.
  void add_interface(const std::string& name) const {
    const std::string end = name + "_end";
    ip("link add " + name + " type veth peer name " + end);
    run("echo 0 > /proc/sys/net/ipv6/conf/" + name + "/accept_dad");
    ip("link set " + end + " addrgenmode none up");
    ip("link set " + name + " up");
    // The kernel notices a carrier asynchronously, in a worker thread.
    run("timeout 20 sh -c 'until ip link show dev " + name + " | grep -q \"state UP\"; do :; done'");
  }

 private:
  static int status_of(const std::string& command) { return std::system(("{ " + command + "; } > /dev/null").c_str()); }

  UniqueFd before_;  // invalid: the thread is still in its original namespace
  std::string why_not_;
};

}  // namespace rdmacomm::testing
