// two_processes.h - tests in which a child process is the peer.
#pragma once

#include <unistd.h>

#include <functional>

#include "softdev/verbs/raw_verbs.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {

/// What the two sides tell each other.
struct Card {
  std::uint32_t qpn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
};

/// One end of the pipe between the two processes.
struct Line {
  int fd;
  void send(const Card& card) const { ASSERT_EQ(write(fd, &card, sizeof(card)), static_cast<ssize_t>(sizeof(card))); }
  Card receive() const {
    Card card;
    EXPECT_EQ(read(fd, &card, sizeof(card)), static_cast<ssize_t>(sizeof(card)));
    return card;
  }
};

/// A child process whose body talks by a Line.
class Child : public rdmacomm::testing::ForkedChild {
 public:
  explicit Child(const std::function<void(Line)>& body) : ForkedChild([&body](int fd) { body(Line{fd}); }) {}
  [[nodiscard]] Line line() const { return Line{ForkedChild::line()}; }
};

/// Connects one end and tells the other about its memory.
inline Card introduce(const Line& line, Qp& qp, const Memory& memory) {
  line.send({qp.number(), memory.mr->rkey, memory.address()});
  const Card peer = line.receive();
  qp.connect_to(peer.qpn);
  line.send({});
  (void)line.receive();  // both are connected
  return peer;
}

}  // namespace rdmacomm::softdev::test
