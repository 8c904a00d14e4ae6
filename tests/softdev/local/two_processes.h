// two_processes.h - tests whose peer is a child process.
#pragma once

#include <unistd.h>

#include <functional>

#include "softdev/verbs/raw_verbs.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {

/// Sent by each of the two processes to the other.
struct QueueInfo {
  std::uint32_t qpn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
};

/// One end of the pipe between the two processes.
struct Line {
  int fd;
  void send(const QueueInfo& info) const {
    ASSERT_EQ(write(fd, &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
  }
  QueueInfo receive() const {
    QueueInfo info;
    EXPECT_EQ(read(fd, &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
    return info;
  }
};

/// A child process whose body communicates by a Line.
class Child : public rdmacomm::testing::ForkedChild {
 public:
  explicit Child(const std::function<void(Line)>& body) : ForkedChild([&body](int fd) { body(Line{fd}); }) {}
  [[nodiscard]] Line line() const { return Line{ForkedChild::line()}; }
};

/// Connects the local queue pair and exchanges descriptions of the memory with the peer.
inline QueueInfo introduce(const Line& line, Qp& qp, const Memory& memory) {
  line.send({qp.number(), memory.mr->rkey, memory.address()});
  const QueueInfo peer = line.receive();
  qp.connect_to(peer.qpn);
  line.send({});
  (void)line.receive();  // both are connected
  return peer;
}

}  // namespace rdmacomm::softdev::test
