// Access of clients of one server to each other's memory: impossible if each client has its own domain.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "device/protection_domain_core.h"
#include "rdmacomm/buffer_pool.h"
#include "session/session_test_tools.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;

constexpr const char* kInbox = "inbox";
const BufferOptions kInboxOptions{
    .name = kInbox, .block_bytes = 64, .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite};

/// A server that creates an inbox for each client, either in the client's own domain or in a shared one.
class ServerWithInboxes {
 public:
  explicit ServerWithInboxes(bool own_domains) : own_domains_(own_domains) {
    server_.hooks->configure = [this](HcaConfig& hca, const PeerInfo&) { return configure(hca); };
    EXPECT_TRUE(server_->start().ok());
  }
  ~ServerWithInboxes() { server_->stop(); }

  [[nodiscard]] const TestServer& server() const { return *server_; }
  [[nodiscard]] RDMABuffer& inbox(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return inboxes_.at(index);
  }

 private:
  Status configure(HcaConfig& hca) {
    if (own_domains_) {
      auto domain = ProtectionDomain::create(server_->device());
      if (!domain) return domain.status();
      hca.domain = *domain;
    }
    auto inbox = hca.domain ? RDMABuffer::allocate(hca.domain, kInboxOptions)
                            : RDMABuffer::allocate(server_->device(), kInboxOptions);
    if (!inbox) return inbox.status();
    hca.publish(*inbox);
    const std::lock_guard lock(mutex_);
    inboxes_.push_back(std::move(*inbox));
    return {};
  }

  const bool own_domains_;
  TestServer server_ = make_server();
  std::mutex mutex_;
  std::deque<RDMABuffer> inboxes_;
};

/// Two clients. The second one knows (or has guessed) the region of the first.
struct TwoClients {
  explicit TwoClients(bool own_domains) : server(own_domains), session(make_client(server.server())) {
    first = session->connect().value();
    second = session->connect().value();
    words = make_buffer(session->device());
    std::memcpy(words.data(), "owned", 5);
  }
  Completion write(const EndPoint& by, const RemoteRegion& to) const {
    EXPECT_TRUE(by.channel().post_write(words.at(0).first(5), to, {.id = 1}));
    return wait_one(by);
  }

  ServerWithInboxes server;
  TestClient session;
  EndPoint first;
  EndPoint second;
  RDMABuffer words;
};

TEST(ProtectionDomain, AClientReachesItsOwnMemoryAlone) {
  TwoClients clients(true);
  const RemoteRegion victim = *clients.first.remote_region(kInbox);
  const Completion refused = clients.write(clients.second, victim);
  EXPECT_EQ(refused.error, Errc::kRemoteAccess) << refused.status().message();
  EXPECT_EQ(std::memcmp(clients.server.inbox(0).data(), "\0\0\0\0", 5), 0);
  const Completion own = clients.write(clients.first, victim);
  EXPECT_TRUE(own.ok()) << own.status().message();
  EXPECT_EQ(std::memcmp(clients.server.inbox(0).data(), "owned", 5), 0);
}

TEST(ProtectionDomain, AClientCannotReadAnothersMemoryEither) {
  TwoClients clients(true);
  ASSERT_TRUE(clients.second.channel().post_read(clients.words.at(1), *clients.first.remote_region(kInbox), {.id = 1}));
  EXPECT_EQ(wait_one(clients.second).error, Errc::kRemoteAccess);
}

/// The danger that the documents warn of. It also proves that the tests above can detect it.
TEST(ProtectionDomain, InASharedDomainAnyPeerWithTheKeyReachesIt) {
  TwoClients clients(false);
  const Completion written = clients.write(clients.second, *clients.first.remote_region(kInbox));
  EXPECT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(std::memcmp(clients.server.inbox(0).data(), "owned", 5), 0);
}

TEST(ProtectionDomain, BuffersOfTheEndpointAreInItsDomain) {
  const auto server = make_server();
  ProtectionDomain domain;
  server.hooks->configure = [&](HcaConfig& hca, const PeerInfo&) {
    domain = ProtectionDomain::create(server->device()).value();
    hca.domain = domain;
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto at_client = client->connect();
  const auto at_server = server->accept(soon());
  ASSERT_TRUE(at_client && at_server);
  EXPECT_EQ((*at_server).config().domain, domain);
  const auto receiving = make_buffer(client->device());
  ASSERT_TRUE((*at_client).channel().post_recv(receiving.at(0), {.id = 1}));
  const auto pool = BufferPool::create(domain, {.total_bytes = 1 << 16, .largest_block = 1 << 16});
  ASSERT_TRUE(pool) << pool.status().message();
  const auto lease = (*pool).take(64);
  ASSERT_TRUE(lease);
  ASSERT_TRUE((*at_server).channel().post_send(lease->slice(), {.id = 2}));
  EXPECT_TRUE(wait_one(*at_server).ok());
  EXPECT_TRUE(wait_one(*at_client).ok());
  const auto elsewhere = make_buffer(server->device());
  ASSERT_TRUE((*at_server).channel().post_send(elsewhere.at(0), {.id = 3}));
  EXPECT_EQ(wait_one(*at_server).error, Errc::kLocalProtection);
  EXPECT_TRUE((*at_server).close().ok());
}

TEST(ProtectionDomain, MemoryOfSeveralEndpointsIsAdoptedInEachDomain) {
  const RDMADevice device = RDMADevice::open({.name = "soft0"}).value();
  const auto all = RDMABuffer::allocate(device, {.block_bytes = 4096}).value();
  for (int i = 0; i < 2; ++i) {
    const auto domain = ProtectionDomain::create(device).value();
    const auto again = RDMABuffer::adopt(domain, all.bytes(), {.block_bytes = 4096});
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(again->domain(), domain);
    EXPECT_EQ((*again).data(), all.data());
    EXPECT_NE((*again).lkey(), all.lkey());
  }
}

TEST(ProtectionDomain, ABufferThatIsPublishedElsewhereIsRefusedByName) {
  const auto server = make_server();
  RDMABuffer inbox;
  server.hooks->configure = [&](HcaConfig& hca, const PeerInfo&) {
    hca.domain = ProtectionDomain::create(server->device()).value();
    inbox = RDMABuffer::allocate(server->device(), kInboxOptions).value();
    hca.publish(inbox);
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto refused = client->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.status().message(), HasSubstr("'inbox' is registered in another protection domain"));
}

TEST(ProtectionDomain, PoolsOfReceivesDoNotWorkWithDomains) {
  const auto server = make_server();
  server.hooks->configure = [&](HcaConfig& hca, const PeerInfo&) {
    hca.domain = ProtectionDomain::create(server->device()).value();
    hca.receive_pool_key = "all";
    hca.channels[0].pooled_receives = true;
    return Status();
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  EXPECT_THAT(client->connect().status().message(), HasSubstr("remove that setting, or leave HcaConfig::domain empty"));
}

}  // namespace
}  // namespace rdmacomm
