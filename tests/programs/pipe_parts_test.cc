// Parts of rdma_send and rdma_recv: their messages, standard streams, checksum, progress.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/wake_event.h"
#include "connector/host_text.h"
#include "pipes/pipe_flags.h"
#include "pipes/standard_streams.h"
#include "pipes/terms.h"
#include "support/checksum.h"
#include "support/checksum_queue.h"
#include "support/progress.h"

namespace rdmacomm::pipes {
namespace {

using programs::Checksum;
using programs::ChecksumQueue;
using programs::Progress;
using programs::progress_text;
using programs::stats_text;
using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Messages --------------------------------------------------------------------------------------------------------

TEST(PipeTerms, AreDecodedAsTheyWereEncoded) {
  for (const Terms& terms : {Terms{}, Terms{.block_bytes = 4096, .blocks = 2, .checksum = false, .size = 0},
                             Terms{.block_bytes = 4 << 20, .blocks = 256, .size = ~std::uint64_t{0}}}) {
    const auto decoded = Terms::decode(terms.encode());
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
    EXPECT_EQ(*decoded, terms);
  }
}

TEST(PipeTerms, HaveBounds) {
  const auto why = [](const Terms& terms) { return Terms::decode(terms.encode()).error().message(); };
  EXPECT_THAT(why({.block_bytes = 4095}),
              HasSubstr("the sender asks for a block of 4095 bytes: possible are 4K to 64M"));
  EXPECT_THAT(why({.block_bytes = (64 << 20) + 1}), HasSubstr("possible are 4K to 64M"));
  EXPECT_THAT(why({.blocks = 1}), HasSubstr("1 blocks: possible are 2 to 256"));
  EXPECT_THAT(why({.blocks = 257}), HasSubstr("257 blocks"));
  EXPECT_THAT(why({.block_bytes = 64 << 20, .blocks = 17}),
              HasSubstr("17 blocks of 64M bytes: at most 1G bytes in total"));
}

TEST(PipeTerms, OfAnotherVersionAreRefusedWithBothVersions) {
  auto bytes = Terms{}.encode();
  bytes[4] = std::byte{7};
  const auto terms = Terms::decode(bytes);
  EXPECT_EQ(terms.code(), Errc::kVersionMismatch);
  EXPECT_THAT(terms.error().context, HasSubstr("rdma_send uses version 7 of the protocol, this program version 1"));
}

/// Every message with every byte changed, cut and lengthened: it is refused or within its limits, and never read beyond
/// its end.
template <typename Message>
void distort(const std::vector<std::byte>& good) {
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Message::decode(std::span(good).first(length)).has_value()) << length;
  }
  auto longer = good;
  longer.push_back({});
  EXPECT_FALSE(Message::decode(longer).has_value());
  for (std::size_t i = 0; i < 7; ++i) {  // magic, version, kind
    auto bad = good;
    bad[i] ^= std::byte{0x40};
    EXPECT_FALSE(Message::decode(bad).has_value()) << i;
  }
  for (std::size_t i = 7; i < good.size(); ++i) {
    for (const int flip : {1, 2, 0x80}) {
      auto bad = good;
      bad[i] ^= static_cast<std::byte>(flip);
      (void)Message::decode(bad);
    }
  }
}

TEST(PipeMessages, InvalidMessagesAreRefused) {
  distort<Terms>(Terms{.size = 5}.encode());
  distort<Total>(Total{.bytes = 5, .checksum = 6}.encode());
  distort<Verdict>(Verdict{.failure = "no"}.encode());
  distort<Verdict>(Verdict{}.encode());
}

TEST(PipeMessages, AreDecodedAsTheyWereEncoded) {
  for (const Total& total : {Total{}, Total{.bytes = 7, .checksum = 0}, Total{.bytes = 1, .checksum = ~0ULL}}) {
    EXPECT_EQ(Total::decode(total.encode()).value(), total);
  }
  EXPECT_FALSE(Verdict::decode(Verdict{}.encode()).value().failure.has_value());
  EXPECT_EQ(Verdict::decode(Verdict{.failure = "a\nb\x1b"}.encode()).value().failure, "a?b?");
  EXPECT_EQ(Verdict::decode(Verdict{.failure = std::string(5000, 'x')}.encode()).value().failure,
            std::string(Verdict::kMaxReason, 'x'));
}

// Checksum --------------------------------------------------------------------------------------------------------

TEST(PipeChecksum, DoesNotDependOnThePieces) {
  std::vector<std::byte> data(100'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * i >> 3);
  Checksum whole(true);
  whole.update(data);
  for (const std::size_t piece : {1U, 63U, 4096U, 99'999U}) {
    Checksum pieces(true);
    for (std::size_t at = 0; at < data.size(); at += piece) {
      pieces.update(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    }
    EXPECT_EQ(pieces.value(), whole.value()) << piece;
  }
}

TEST(PipeChecksum, IsXxh3) {  // the value of xxhsum -H3
  EXPECT_EQ(Checksum(true).value(), 0x2d06800538d394c2U);
  EXPECT_EQ(Checksum(false).value(), std::nullopt);
}

TEST(PipeChecksum, DetectsASwapOfTwoBlocks) {
  Checksum one(true);
  Checksum other(true);
  one.update(bytes_of("block one"));
  one.update(bytes_of("block two"));
  other.update(bytes_of("block two"));
  other.update(bytes_of("block one"));
  EXPECT_NE(one.value(), other.value());
}

TEST(PipeChecksumQueue, AddsInOrder) {
  std::vector<std::byte> data(1 << 20);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * i >> 7);
  Checksum whole(true);
  whole.update(data);
  for (const auto way : {ChecksumQueue::Way::kAtOnce, ChecksumQueue::Way::kBeside}) {
    Checksum checksum(true);
    ChecksumQueue queue(way);
    for (std::size_t at = 0; at < data.size(); at += 4096) {
      queue.add(checksum, std::span(data).subspan(at, 4096), nullptr);
    }
    queue.drain();
    EXPECT_EQ(checksum.value(), whole.value()) << static_cast<int>(way);
  }
}

TEST(PipeChecksumQueue, DropsABlockInTheThreadThatComputes) {
  for (const auto way : {ChecksumQueue::Way::kAtOnce, ChecksumQueue::Way::kBeside}) {
    std::promise<std::thread::id> dropped;
    const auto drop = [&](const void*) { dropped.set_value(std::this_thread::get_id()); };
    Checksum checksum(true);
    ChecksumQueue queue(way);
    queue.add(checksum, bytes_of("some"), std::shared_ptr<const void>(&dropped, drop));
    EXPECT_EQ(dropped.get_future().get() == std::this_thread::get_id(), way == ChecksumQueue::Way::kAtOnce);
  }
}

// Standard streams ------------------------------------------------------------------------------------------------

struct TwoEnds {
  TwoEnds() { EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0); }
  ~TwoEnds() {
    for (const int fd : fds) ::close(fd);
  }
  void close(int which) { ::close(std::exchange(fds[which], -1)); }
  std::array<int, 2> fds{};
};

struct StandardStreams : testing::Test {
  StandardStreams() : wake(std::move(WakeEvent::create().value())) { (void)::signal(SIGPIPE, SIG_IGN); }
  WakeEvent wake;
  TwoEnds pipe;
};

TEST_F(StandardStreams, InputGathersABlock) {
  const auto input = Input::open(pipe.fds[0], wake.fd());
  ASSERT_TRUE(input.has_value());
  EXPECT_EQ(input->size(), std::nullopt);
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(::write(pipe.fds[1], "0123456789", 10), 10);
    pipe.close(1);
  });
  std::vector<std::byte> room(4096);
  std::size_t all = 0;
  for (bool end = false; !end;) {
    const auto got = input->read(room);
    ASSERT_TRUE(got.has_value());
    all += got->bytes;
    end = got->end;
    EXPECT_TRUE(end || got->bytes > 0);
  }
  writer.join();
  EXPECT_EQ(all, 10'000U);
}

TEST_F(StandardStreams, InputReturnsAvailableBytesAndWaitsForMore) {
  const auto input = Input::open(pipe.fds[0], wake.fd());
  ASSERT_EQ(::write(pipe.fds[1], "abc", 3), 3);
  std::array<std::byte, 100> room;
  const auto got = input->read(room);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->bytes, 3U);
  EXPECT_FALSE(got->end);
  auto waiting = std::async(std::launch::async, [&] { return input->read(room).code(); });
  wake.signal();
  EXPECT_EQ(waiting.get(), Errc::kStopped);
}

TEST_F(StandardStreams, InputReportsTheRestOfAFile) {
  FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const int fd = ::fileno(file);
  ASSERT_EQ(::ftruncate(fd, 1000), 0);
  EXPECT_EQ(Input::open(fd, wake.fd())->size(), 1000U);
  ::lseek(fd, 400, SEEK_SET);
  EXPECT_EQ(Input::open(fd, wake.fd())->size(), 600U);
  ::lseek(fd, 4000, SEEK_SET);
  EXPECT_EQ(Input::open(fd, wake.fd())->size(), std::nullopt);
  std::fclose(file);
}

TEST_F(StandardStreams, InvalidDescriptorsAreRefused) {
  EXPECT_EQ(Input::open(-1, wake.fd()).code(), std::errc::bad_file_descriptor);
  EXPECT_EQ(Output::open(-1, wake.fd(), false).code(), std::errc::bad_file_descriptor);
  EXPECT_THAT(check_open(-1, "standard input").message(), HasSubstr("standard input is not open"));
  EXPECT_TRUE(check_open(pipe.fds[0], "").ok());
  EXPECT_EQ(Output::open(pipe.fds[1], wake.fd(), true).code(), Errc::kInvalidArgument);
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(Input::open(folder, wake.fd()).code(), std::errc::is_a_directory);
  ::close(folder);
  EXPECT_EQ(Input::open(pipe.fds[1], wake.fd()).code(), std::errc::bad_file_descriptor) << "open for writing only";
  EXPECT_EQ(Output::open(pipe.fds[0], wake.fd(), false).code(), std::errc::bad_file_descriptor);
}

/// More data than a pipe holds, to a reader that reads it in small parts; also if the pipe cannot be opened again.
void expect_all_written(int to, int from, const Output& output) {
  std::vector<std::byte> data(3'000'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
  auto reading = std::async(std::launch::async, [&] {
    std::vector<std::byte> all(data.size());
    for (std::size_t at = 0; at < all.size();) {
      const ssize_t count = ::read(from, all.data() + at, std::min<std::size_t>(all.size() - at, 50'001));
      if (count <= 0) break;
      at += static_cast<std::size_t>(count);
    }
    return all;
  });
  const Status written = output.write(data);
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(reading.get(), data);
  EXPECT_EQ(::fcntl(to, F_GETFL) & O_NONBLOCK, 0) << "the descriptor is not ours alone";
}

TEST_F(StandardStreams, OutputWritesAll) {
  const auto output = Output::open(pipe.fds[1], wake.fd(), false);
  expect_all_written(pipe.fds[1], pipe.fds[0], *output);
}

TEST_F(StandardStreams, OutputWritesAllToASocket) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  const auto output = Output::open(fds[1], wake.fd(), false);
  expect_all_written(fds[1], fds[0], *output);
  EXPECT_FALSE(output->reader_is_gone());
  ::close(fds[0]);
  EXPECT_TRUE(output->reader_is_gone());
  ::close(fds[1]);
}

TEST_F(StandardStreams, AnOutputThatIsNotReadIsWoken) {
  const auto output = Output::open(pipe.fds[1], wake.fd(), false);
  auto writing =
      std::async(std::launch::async, [&] { return output->write(std::vector<std::byte>(3'000'000)).code(); });
  wake.signal();
  EXPECT_EQ(writing.get(), Errc::kStopped);
}

TEST_F(StandardStreams, OutputReportsThatItsReaderHasGone) {
  auto output = Output::open(pipe.fds[1], wake.fd(), false);
  EXPECT_FALSE(output->reader_is_gone());
  pipe.close(0);
  EXPECT_TRUE(output->reader_is_gone());
  const Status written = output->write(bytes_of("x"));
  EXPECT_EQ(written.code(), std::errc::broken_pipe);
  EXPECT_THAT(written.message(), HasSubstr("the process that reads standard output has closed it"));
}

// Progress --------------------------------------------------------------------------------------------------------

TEST(PipeProgress, ShowsTheProgress) {
  EXPECT_EQ(progress_text(0, {}, 0), "0 B  0 B/s");
  EXPECT_EQ(progress_text(999, 0, 999), "999 B  999 B/s");
  EXPECT_EQ(progress_text(1'500'000'000, {}, 750e6), "1.500 GB  750.0 MB/s");
  EXPECT_EQ(progress_text(1'500'000'000, 3'000'000'000, 750e6), "1.500 GB  750.0 MB/s  50 %  0:02 left");
  EXPECT_EQ(progress_text(0, 3'000'000'000'000, 1e9), "0 B  1.000 GB/s  0 %  50:00 left");
  EXPECT_EQ(progress_text(0, 3'000'000'000'000, 1e8), "0 B  100.0 MB/s  0 %  8:20:00 left");
  EXPECT_EQ(progress_text(5, 10, 0), "5 B  0 B/s  50 %") << "nobody knows how long";
  EXPECT_EQ(progress_text(11, 10, 1), "11 B  1 B/s") << "the file has grown";
}

TEST(PipeProgress, ShowsTheTotal) {
  EXPECT_EQ(stats_text(2'000'000, 0.5, 0.25, 0.125, 0xabcU),
            "2000000 bytes in 0.500 s, 4.000 MB/s, processor 0.250 s user 0.125 s system, XXH3 0000000000000abc");
  EXPECT_THAT(stats_text(0, 0, 0, 0, {}), testing::EndsWith(", no checksum"));
}

/// A stream that other threads may read while it is written.
struct Watched : std::streambuf {
  int overflow(int c) override {
    const std::lock_guard lock(mutex);
    text += static_cast<char>(c);
    changed.notify_all();
    return c;
  }
  void wait_for(const std::string& part) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return text.find(part) != std::string::npos; }))
        << text;
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
};

TEST(PipeProgress, IsShownAndBlanked) {
  Watched watched;
  std::ostream out(&watched);
  {
    Progress progress({.out = out, .shown = true, .total = 200, .period = std::chrono::milliseconds(1)});
    progress.add(60);
    progress.add(40);
    watched.wait_for("100 B  0 B/s  50 %");
    progress.say("a line");
  }
  EXPECT_THAT(watched.text, HasSubstr("\r\033[Krdmacomm: a line\n"));
  EXPECT_THAT(watched.text, testing::EndsWith("\r\033[K"));
}

TEST(PipeProgress, IsNotShownToFiles) {
  std::ostringstream out;
  {
    Progress progress({.out = out, .period = std::chrono::milliseconds(1)});
    progress.add(7);
    EXPECT_EQ(progress.bytes(), 7U);
    progress.say("a line");
  }
  EXPECT_EQ(out.str(), "rdmacomm: a line\n");
}

// Texts -----------------------------------------------------------------------------------------------------------

TEST(PipeFlags, ReceiversHavePorts) {
  const auto receivers = read_receivers({"a", "b:7", "::1", "[::1]:8"}, 2020);
  ASSERT_TRUE(receivers.has_value());
  std::vector<std::string> texts;
  for (const HostPort& receiver : *receivers) texts.push_back(receiver.to_text());
  EXPECT_THAT(texts, ElementsAre("a:2020", "b:7", "[::1]:2020", "[::1]:8"));
  EXPECT_THAT(read_receivers({"a", "b:x"}, 1).error().message(), HasSubstr("\"b:x\" is not HOST[:PORT]: its port"));
  EXPECT_THAT(split_list("a,b:1,,"), ElementsAre("a", "b:1", "", ""));
}

TEST(HostText, IsAHostAndAPort) {
  const auto parsed = parse_host("[fe80::1%eth0]:7");
  EXPECT_EQ(parsed->host, "[fe80::1%eth0]");
  EXPECT_EQ(parsed->port, 7);
  EXPECT_EQ(parse_host("fe80::1")->port, std::nullopt);
  for (const char* bad : {"", ":1", "a:", "a:0", "a:65536", "a:-1", "a b", "[::1:5", "[]"}) {
    EXPECT_EQ(parse_host(bad).code(), Errc::kInvalidArgument) << bad;
  }
}

TEST(HostText, IsAvailableToApplications) {
  EXPECT_EQ(HostPort::parse("node7:5")->to_text(), "node7:5");
  EXPECT_EQ(HostPort::parse("::1", 7)->to_text(), "[::1]:7");
  EXPECT_EQ(HostPort::parse("node7")->port, kDefaultPort);
  EXPECT_EQ(HostPort::parse("[fe80::1%eth0]:7")->to_text(), "[fe80::1%eth0]:7");
  for (const char* const no_address : {"node:5:6", "[node]:5", "fe80:z]"}) {
    EXPECT_THAT(HostPort::parse(no_address).error().context, HasSubstr("not an IPv6 address")) << no_address;
  }
  EXPECT_THAT(HostPort::parse("--help").error().context, HasSubstr("a host must not begin with '-'"));
  EXPECT_THAT(HostPort::parse("node7:x\n").error().context,
              HasSubstr("'node7:x?' is not HOST or HOST:PORT: its port is not a number from 1 to 65535"));
}

}  // namespace
}  // namespace rdmacomm::pipes
