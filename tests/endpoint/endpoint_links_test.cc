// The connector calls that an endpoint makes while it connects queue pairs.
#include <gtest/gtest.h>
#include <unistd.h>

#include "connector/tcp_stream.h"
#include "endpoint/endpoint_pair.h"
#include "support/raw_socket.h"

namespace rdmacomm {
namespace {

/// Counts the calls, and lets queue pairs be connected by their addresses.
class CountingConnector final : public Connector {
 public:
  explicit CountingConnector(std::unique_ptr<ByteStream> stream) : Connector(std::move(stream)) {}
  std::unique_ptr<verbs::QueuePairLink> link(const QpAddress& /*local*/, const QpAddress& /*remote*/,
                                             Deadline deadline) override {
    ++links;
    deadlines.push_back(deadline.time_point());
    return nullptr;
  }
  void all_linked() noexcept override { links_in_all.push_back(links); }

  int links = 0;
  std::vector<int> links_in_all;
  std::vector<Deadline::Clock::time_point> deadlines;
};

TEST(EndPointLinks, HaveOneDeadlineAndTheConnectorIsInformedAfterTheLast) {
  const auto listener = TcpListenSocket::listen({"127.0.0.1", 0}).value();
  const testing::RawSocket socket(listener->port());
  auto counting = std::make_shared<CountingConnector>(TcpStream::adopt(UniqueFd(::dup(socket.fd())), {}).value());
  const std::shared_ptr<Connector> other = testing::accept_one(*listener);
  testing::EndPointPair::introduce(*counting, *other);
  const auto device = testing::open_soft_device();
  const auto here = EndPointCore::create({.device = device, .connector = counting, .config = {}}).value();
  const auto there = EndPointCore::create({.device = device, .connector = other, .config = {}}).value();
  ASSERT_TRUE(here->set_peer(there->description()).ok());
  const Deadline deadline = testing::soon();
  ASSERT_TRUE(here->connect(deadline).ok());
  EXPECT_EQ(counting->deadlines, std::vector(2, deadline.time_point()));
  EXPECT_EQ(counting->links_in_all, std::vector<int>{2}) << "once, behind its two channels";
}

}  // namespace
}  // namespace rdmacomm
