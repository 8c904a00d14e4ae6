// Every polling mode x every thread mode x every verb x few and many queue pairs: all data arrive, and everything ends.
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "session/session_test_tools.h"
#include "support/polling_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

enum class Threads { kNone, kPerChannel, kPerEndPoint, kShared, kSharded };

void configure(HcaConfig& hca, PollingMode polling, Threads threads) {
  const AdapterConfig shallow{.send_depth = 8, .recv_depth = 8};
  hca.channels = {{.name = kDataChannel, .adapter = shallow}};
  // Two threads for each endpoint. The first channel leads, the data channel is the other one.
  if (threads == Threads::kPerChannel) hca.channels.insert(hca.channels.begin(), {kControlChannel, shallow});
  hca.polling_mode = polling;
  hca.waiting = {.yield_every = 1, .spin = std::chrono::microseconds(20)};  // more threads than cores
  hca.shared_queue_key = "all";
  hca.shared_queues = threads == Threads::kSharded ? 3 : 1;
  switch (threads) {
    case Threads::kNone: hca.thread_mode = ThreadMode::kApplication; break;
    case Threads::kPerChannel: hca.thread_mode = ThreadMode::kThreadPerChannel; break;
    case Threads::kPerEndPoint: hca.thread_mode = ThreadMode::kThreadPerEndPoint; break;
    case Threads::kShared:
    case Threads::kSharded: hca.thread_mode = ThreadMode::kThreadPerCompletionQueue; break;
  }
}

/// Counts completions, from any thread.
class Tally {
 public:
  void add(const Completion& completion) {
    const std::lock_guard lock(mutex_);
    if (!completion.ok() && completion.error != Errc::kFlushed) ++failures_;
    if (completion.ok()) ++counts_[completion.operation];
    if (completion.has_immediate) immediates_.push_back(completion.immediate);
    changed_.notify_all();
  }
  [[nodiscard]] bool wait_for(Operation operation, int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Deadline::after(std::chrono::seconds(60)).time_point(),
                               [&] { return counts_[operation] >= count; });
  }
  [[nodiscard]] int failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  /// Returns the immediates that arrived since the last call.
  [[nodiscard]] std::vector<std::uint32_t> take_immediates() {
    const std::lock_guard lock(mutex_);
    return std::exchange(immediates_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Operation, int> counts_;
  std::vector<std::uint32_t> immediates_;
  int failures_ = 0;
};

/// Hooks that count.
class Counting final : public SessionHooks {
 public:
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override { return configure_hca(hca, peer); }
  void on_established(const EndPoint&) override { established.add("established"); }
  void on_completion(const EndPoint&, const Completion& completion) override { tally.add(completion); }

  std::function<Status(HcaConfig&, const PeerInfo&)> configure_hca;
  Record established;
  Tally tally;
};

constexpr std::size_t kBytes = 256;
constexpr std::uint32_t kImmediate = 77;
enum Block : std::size_t { kOut, kIn, kCounter, kBlocks };

/// One process's memory for one connection.
RDMABuffer make_memory(const RDMADevice& device) {
  auto buffer = RDMABuffer::allocate(
      device, {.name = "memory",
               .block_bytes = kBytes,
               .block_count = kBlocks,
               .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite | RemoteAccess::kAtomic});
  EXPECT_TRUE(buffer.has_value()) << buffer.status().message();
  return std::move(*buffer);
}

/// A connection, with both endpoints.
struct Line {
  RDMABuffer near = {};  ///< the client's
  RDMABuffer far = {};   ///< the server's
  EndPoint client = {};
  EndPoint server = {};

  [[nodiscard]] RemoteRegion theirs(Block block, std::uint32_t bytes = kBytes) const {
    const RemoteRegion all = far.remote_region();
    return {all.address + block * far.block_bytes(), bytes, all.rkey};
  }
  [[nodiscard]] std::uint64_t& number(const RDMABuffer& buffer) const {
    return *reinterpret_cast<std::uint64_t*>(buffer.at(kCounter).data());
  }
};

void fill(RDMABuffer& buffer, Block block, std::uint64_t seed) {
  const auto bytes = buffer.at(block).bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((seed * 131 + i * 7) >> (i % 3));
}
bool same(const RDMABuffer& from, const RDMABuffer& to) {
  return std::memcmp(from.at(kOut).data(), to.at(kIn).data(), kBytes) == 0;
}

/// The operation that is done on each connection, and the completions that show its success.
struct Verb {
  const char* name;
  Operation done;                    ///< completion at the client
  std::optional<Operation> arrives;  ///< completion at the server, which posts a receive for it
  Outcome (*post)(const Line&);
  bool (*arrived)(const Line&);
  bool has_immediate = false;
};

bool reached_server(const Line& line) {
  return same(line.near, line.far);
}

constexpr std::array<Verb, 7> kVerbs = {{
    {"SEND", Operation::kSend, Operation::kRecv,
     [](const Line& line) { return line.client.channel().post_send(line.near.at(kOut), {.id = 1}); }, reached_server},
    {"SEND_WITH_IMM", Operation::kSend, Operation::kRecv,
     [](const Line& line) {
       return line.client.channel().post_send(line.near.at(kOut), {.id = 1, .immediate = kImmediate});
     },
     reached_server, true},
    {"WRITE",
     Operation::kWrite,
     {},
     [](const Line& line) { return line.client.channel().post_write(line.near.at(kOut), line.theirs(kIn), {.id = 1}); },
     reached_server},
    {"WRITE_WITH_IMM", Operation::kWriteImm, Operation::kRecvWriteImm,
     [](const Line& line) {
       return line.client.channel().post_write(line.near.at(kOut), line.theirs(kIn),
                                               {.id = 1, .immediate = kImmediate});
     },
     reached_server, true},
    {"READ",
     Operation::kRead,
     {},
     [](const Line& line) { return line.client.channel().post_read(line.near.at(kIn), line.theirs(kOut), {.id = 1}); },
     [](const Line& line) { return same(line.far, line.near); }},
    {"FETCH_ADD",
     Operation::kFetchAdd,
     {},
     [](const Line& line) {
       return line.client.channel().post_fetch_add(line.near.at(kCounter).first(8), line.theirs(kCounter, 8),
                                                   {.addend = 5}, {.id = 1});
     },
     [](const Line& line) { return line.number(line.near) == 1000 && line.number(line.far) == 1005; }},
    {"COMPARE_SWAP",
     Operation::kCompareSwap,
     {},
     [](const Line& line) {
       return line.client.channel().post_compare_swap(line.near.at(kCounter).first(8), line.theirs(kCounter, 8),
                                                      {.expected = 1000, .desired = 3}, {.id = 1});
     },
     [](const Line& line) { return line.number(line.near) == 1000 && line.number(line.far) == 3; }},
}};

class ModeMatrix : public ::testing::TestWithParam<std::tuple<PollingMode, Threads, int>> {
 protected:
  ModeMatrix() : polling_(std::get<0>(GetParam())), threads_(std::get<1>(GetParam())) {
    lines_.resize(static_cast<std::size_t>(std::get<2>(GetParam())));
  }
  ~ModeMatrix() override {
    lines_.clear();
    client_.reset();
    server_.reset();
  }

  void SetUp() override {
    server_ = Hooked<ServerSession, Counting>(local_options());
    server_.hooks->configure_hca = [this](HcaConfig& hca, const PeerInfo&) {
      configure(hca, polling_, threads_);
      return Status();
    };
    ASSERT_TRUE(server_->start().ok());
    client_ = Hooked<ClientSession, Counting>(local_options(server_->port()));
    std::uint32_t index = 0;
    client_.hooks->configure_hca = [&](HcaConfig& hca, const PeerInfo&) {
      configure(hca, polling_, threads_);
      const auto bytes = std::as_bytes(std::span(&index, 1));
      hca.private_data.assign(bytes.begin(), bytes.end());
      return Status();
    };
    for (Line& line : lines_) {
      auto endpoint = client_->connect();
      ASSERT_TRUE(endpoint.has_value()) << endpoint.status().message();
      line.client = std::move(*endpoint);
      ++index;
    }
    ASSERT_TRUE(server_.hooks->established.wait_for("established", static_cast<int>(lines_.size())));
    for (const auto& endpoint : server_->endpoints()) {
      std::memcpy(&index, endpoint.peer_private_data().data(), sizeof(index));
      lines_[index].server = endpoint;
    }
    for (Line& line : lines_) {
      line.near = make_memory(line.client.device());
      line.far = make_memory(line.server.device());
    }
  }

  void prepare(const Verb& verb) {
    std::uint64_t seed = static_cast<std::uint64_t>(&verb - kVerbs.data()) << 16;
    for (Line& line : lines_) {
      fill(line.near, kOut, ++seed);
      fill(line.far, kOut, ++seed);
      line.number(line.near) = 0;
      line.number(line.far) = 1000;
      if (!verb.arrives) continue;
      ASSERT_TRUE(line.server.channel().post_recv(line.far.at(kIn), {.id = 2}));
    }
  }

  /// For modes in which the test itself must poll: takes one completion of each endpoint.
  void take_one(const EndPoint& endpoint, Tally& tally) const {
    if (threads_ == Threads::kNone) tally.add(wait_one(endpoint));
  }

  const PollingMode polling_;
  const Threads threads_;
  Hooked<ServerSession, Counting> server_;
  Hooked<ClientSession, Counting> client_;
  std::vector<Line> lines_;
};

std::string threads_name(Threads threads) {
  constexpr std::array<const char*, 5> kNames = {"NoThread", "PerChannel", "PerEndPoint", "SharedQueue", "Sharded"};
  return kNames[static_cast<std::size_t>(threads)];
}

INSTANTIATE_TEST_SUITE_P(Modes, ModeMatrix,
                         ::testing::Combine(every_polling_mode(),
                                            ::testing::Values(Threads::kNone, Threads::kPerChannel,
                                                              Threads::kPerEndPoint, Threads::kShared,
                                                              Threads::kSharded),
                                            ::testing::Values(1, 4, 64)),
                         [](const auto& modes) {
                           return instance_name(std::get<0>(modes.param)) + threads_name(std::get<1>(modes.param)) +
                                  std::to_string(std::get<2>(modes.param));
                         });

TEST_P(ModeMatrix, EveryVerbMovesItsData) {
  std::map<Operation, int> at_client;
  std::map<Operation, int> at_server;
  const int count = static_cast<int>(lines_.size());
  for (const Verb& verb : kVerbs) {
    SCOPED_TRACE(verb.name);
    ASSERT_NO_FATAL_FAILURE(prepare(verb));
    for (const Line& line : lines_) ASSERT_TRUE(verb.post(line));
    for (const Line& line : lines_) take_one(line.client, client_.hooks->tally);
    ASSERT_TRUE(client_.hooks->tally.wait_for(verb.done, at_client[verb.done] += count));
    if (verb.arrives) {
      for (const Line& line : lines_) take_one(line.server, server_.hooks->tally);
      ASSERT_TRUE(server_.hooks->tally.wait_for(*verb.arrives, at_server[*verb.arrives] += count));
      const std::vector<std::uint32_t> due(verb.has_immediate ? lines_.size() : 0, kImmediate);
      EXPECT_EQ(server_.hooks->tally.take_immediates(), due);
    }
    for (const Line& line : lines_) EXPECT_TRUE(verb.arrived(line)) << "line " << &line - lines_.data();
  }
  EXPECT_EQ(client_.hooks->tally.failures() + server_.hooks->tally.failures(), 0);
}

// No request is outstanding that could wake a waiter.
TEST_P(ModeMatrix, EndsWhileAllIsIdle) {
  client_->stop();
  server_->stop();
  for (const Line& line : lines_) {
    EXPECT_FALSE(line.client.alive());
    EXPECT_FALSE(line.server.alive());
  }
}

}  // namespace
}  // namespace rdmacomm
