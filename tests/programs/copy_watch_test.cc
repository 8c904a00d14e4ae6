// Copies without progress: the conditions under which they are ended, and that they do not block others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/wake_event.h"
#include "rdma_copy/client.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/seats.h"
#include "rdma_copy/server.h"
#include "rdma_copy/watch.h"
#include "rdmacomm/rdmacomm.h"
#include "support/acting_session.h"

namespace {

/// A disk that a test can stop.
class Disk {
 public:
  void stop() { set(true); }
  void go() { set(false); }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !stopped_; });
  }

 private:
  void set(bool stopped) {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = stopped;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

Disk disk;

}  // namespace

/// Replaces the C library's function in this program.
extern "C" int fsync(int fd) {
  disk.wait();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace rdmacomm::copying {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(CopyStallClock, CountsTimeWithoutProgress) {
  const StallClock::TimePoint begin{};
  StallClock clock(milliseconds(400), milliseconds(100), begin);
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(clock.step(begin + i * milliseconds(100), false));
  EXPECT_FALSE(clock.step(begin + milliseconds(400), true));
  for (int i = 5; i <= 7; ++i) EXPECT_FALSE(clock.step(begin + i * milliseconds(100), false));
  EXPECT_TRUE(clock.step(begin + milliseconds(800), false));
}

TEST(CopyStallClock, DoesNotCountWhileItsProcessIsStopped) {
  const StallClock::TimePoint begin{};
  StallClock clock(milliseconds(400), milliseconds(100), begin);
  EXPECT_FALSE(clock.step(begin + std::chrono::hours(1), false));
  EXPECT_TRUE(clock.step(begin + std::chrono::hours(2), false));
}

TEST(CopyStallClock, MayHaveNoLimit) {
  const StallClock::TimePoint begin{};
  StallClock clock(milliseconds(0), milliseconds(100), begin);
  for (int i = 1; i <= 100; ++i) EXPECT_FALSE(clock.step(begin + i * milliseconds(100), false));
}

TEST(CopySeats, AreAtMostHalfForOneAddress) {
  Seats seats(4);
  EXPECT_TRUE(seats.take("a").ok());
  EXPECT_TRUE(seats.take("a").ok());
  EXPECT_THAT(seats.take("a").message(), HasSubstr("already makes 2 copies for a"));
  EXPECT_THAT(seats.offer("a").message(), HasSubstr("already makes 2 copies for a"));
  EXPECT_TRUE(seats.offer("b").ok());
  EXPECT_TRUE(seats.take("b").ok());
  EXPECT_TRUE(seats.take("c").ok());
  EXPECT_THAT(seats.take("d").message(), HasSubstr("already makes 4 copies"));
  seats.give_back("a");
  EXPECT_TRUE(seats.take("a").ok());
}

Deadline in_time() {
  return Deadline::after(std::chrono::seconds(20));
}

/// A client that stops its activity at a point that the test selects.
struct Resting : ActingSession<ClientSession> {
  explicit Resting(const HostPort& server)
      : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = server}) {}
  ~Resting() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {stream_options().channel(kChannel)};
    hca.polling_mode = PollingMode::kCompletionChannel;
    hca.private_data = identification();
    return {};
  }
  Status open() {
    auto met = connect();
    if (!met) return met.error();
    endpoint = *met;
    auto opened = RDMAStream::open(endpoint, endpoint.channel(kChannel), stream_options(), in_time());
    if (!opened) return opened.error();
    stream = std::move(*opened);
    return {};
  }
  Status say(const Job& job, std::string_view path) {
    FrameWriter writer(stream);
    if (Status said = writer.put(FrameKind::kJob, job.encode()); !said.ok()) return said;
    if (Status said = writer.put(FrameKind::kPath, std::as_bytes(std::span(path))); !said.ok()) return said;
    return writer.flush();
  }
  /// Returns the server's final message.
  std::string hear_end() {
    FrameReader reader(stream);
    for (;;) {
      const auto frame = reader.next(in_time());
      if (!frame) return frame.error().message();
      if (!*frame) return "the end";
    }
  }

  EndPoint endpoint;
  RDMAStream stream;
};

struct CopyWatch : testing::Test {
  CopyWatch() : stop(std::move(*WakeEvent::create())) {
    std::string pattern = (fs::temp_directory_path() / "copyXXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) top = pattern;
    fs::create_directory(top / "root");
    std::ofstream(top / "file") << "hello";
  }
  ~CopyWatch() override {
    disk.go();
    stop.signal();
    if (outcome.valid()) {
      const Status served = outcome.get();
      EXPECT_TRUE(served.ok()) << served.message();
    }
    fs::remove_all(top);
  }
  void serve(milliseconds timeout, const std::string& address = "127.0.0.1") {
    std::promise<std::uint16_t> listening;
    outcome = std::async(std::launch::async, [&, port_of = &listening, address, timeout] {
      return run_server({.connection = flags_for(address, 0),
                         .modes = {.polling = PollingMode::kCompletionChannel},
                         .root = top / "root",
                         .timeout = timeout,
                         .listening = [port_of](std::uint16_t at) { port_of->set_value(at); }},
                        stop.fd());
    });
    port = listening.get_future().get();
  }
  static programs::ConnectionFlags flags_for(const std::string& host, std::uint16_t port) {
    programs::ConnectionFlags flags;
    flags.session.device.name = "soft0";
    flags.session.address = {host, port};
    return flags;
  }
  Status push(const std::string& host, milliseconds timeout, const CopyOptions& options = {},
              const Events& events = {}) {
    Counts counts;
    return run_client({.connection = flags_for(host, port),
                       .modes = {.polling = PollingMode::kCompletionChannel},
                       .copy = options,
                       .sources = {top / "file"},
                       .destination = "pushed",
                       .timeout = timeout},
                      events, counts);
  }

  fs::path top;
  WakeEvent stop;
  std::uint16_t port = 0;
  std::future<Status> outcome;
};

constexpr milliseconds kShort{1000};
constexpr const char* kStalled = "no data moved for 1 s, and neither peer was working";

TEST_F(CopyWatch, EndsIdleClients) {
  serve(kShort);
  std::ofstream(top / "root/big") << std::string(16 << 20, 'x');
  Resting silent({"127.0.0.1", port});  // sends nothing at all
  ASSERT_TRUE(silent.connect().has_value());
  Resting opened({"127.0.0.1", port});  // opens a stream, sends no request
  ASSERT_TRUE(opened.open().ok());
  Resting pushing({"127.0.0.1", port});  // sends no data
  ASSERT_TRUE(pushing.open().ok());
  ASSERT_TRUE(pushing.say({.sources = 1}, "x").ok());
  Resting pulling({"127.0.0.1", port});  // receives no data
  ASSERT_TRUE(pulling.open().ok());
  ASSERT_TRUE(pulling.say({.direction = Direction::kPull, .sources = 1}, "big").ok());
  EXPECT_THAT(pushing.hear_end(), HasSubstr(kStalled));
  const Deadline deadline = in_time();
  while (pulling.endpoint.alive() && !deadline.passed()) std::this_thread::yield();
  EXPECT_FALSE(pulling.endpoint.alive());
  EXPECT_NE(opened.hear_end(), "the end");
  EXPECT_EQ(push("127.0.0.1", kShort).message(), Status().message());
}

TEST_F(CopyWatch, EndsACopyFromAnIdleServer) {
  struct RestingServer : ActingSession<ServerSession> {
    RestingServer() : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", 0}}) {}
    ~RestingServer() override { stop(); }
    Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
      hca.channels = {stream_options().channel(kChannel)};
      hca.private_data = identification();
      return {};
    }
  };
  RestingServer server;
  ASSERT_TRUE(server.start().ok());
  port = server.port();
  for (const Direction direction : {Direction::kPush, Direction::kPull}) {
    auto copying = std::async(std::launch::async, [&] {
      Counts counts;
      return run_client({.connection = flags_for("127.0.0.1", port),
                         .modes = {.polling = PollingMode::kCompletionChannel},
                         .direction = direction,
                         .sources = {top / "file"},
                         .destination = top / "x",
                         .timeout = kShort},
                        {}, counts);
    });
    const auto endpoint = server.accept(in_time());
    ASSERT_TRUE(endpoint.has_value());
    auto stream = RDMAStream::open(*endpoint, (*endpoint).channel(kChannel), stream_options(), in_time());
    ASSERT_TRUE(stream.has_value());
    EXPECT_THAT(copying.get().message(), HasSubstr(kStalled));
  }
}

/// The server's disk is stopped for longer than both limits, and later the client's own disk.
TEST_F(CopyWatch, DoesNotEndWorkingPeers) {
  serve(kShort);
  const auto wait_for_words = [](Resting& hears) {  // a working server reports four times within the limit
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(hears.endpoint.receive_message(in_time()).has_value());
  };
  disk.stop();
  Resting other({"127.0.0.1", port});
  ASSERT_TRUE(other.open().ok());
  ASSERT_TRUE(other.say({.options = {.checksum = false, .sync = true}, .sources = 1}, "other").ok());
  FrameWriter writer(other.stream);
  ASSERT_TRUE(writer.put(FrameKind::kFile, Entry{.id = 1, .name = "other"}.encode()).ok());
  ASSERT_TRUE(writer.put(FrameKind::kFileEnd, FileEnd{.id = 1}.encode()).ok());
  ASSERT_TRUE(writer.flush().ok());
  auto synced = std::async(std::launch::async, [&] { return push("127.0.0.1", kShort, {.sync = true}); });
  std::promise<void> begun;
  std::promise<void> go_on;
  auto slow = std::async(std::launch::async, [&] {
    const Events events{.entry = [&](const std::string&, std::uint64_t) {
      begun.set_value();
      go_on.get_future().wait();
    }};
    return push("127.0.0.1", kShort, {}, events);
  });
  begun.get_future().wait();
  wait_for_words(other);
  wait_for_words(other);
  go_on.set_value();
  EXPECT_EQ(slow.get().message(), Status().message());
  disk.go();
  EXPECT_EQ(synced.get().message(), Status().message());
}

TEST_F(CopyWatch, LeavesRoomForOtherAddresses) {
  serve(kTimeout, "::");
  std::vector<std::unique_ptr<Resting>> resting;
  int refused = 0;
  for (int i = 0; i < 64; ++i) {
    resting.push_back(std::make_unique<Resting>(HostPort{"127.0.0.1", port}));
    if (resting.back()->connect().code() == Errc::kPeerRefused) ++refused;
  }
  EXPECT_GE(refused, 30);
  EXPECT_THAT(push("127.0.0.1", kTimeout).message(), HasSubstr("which is its limit for one address"));
  EXPECT_EQ(push("::1", kTimeout).message(), Status().message());
}

}  // namespace
}  // namespace rdmacomm::copying
