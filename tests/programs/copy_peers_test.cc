// A server of rdma_copy and a client that does not follow the protocol: invalid frames, files that are longer than
// announced, paths out of the root. The server reports each error, and serves the next client.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "base/wake_event.h"
#include "rdma_copy/aligned_bytes.h"
#include "rdma_copy/client.h"
#include "rdma_copy/file_reader.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/server.h"
#include "rdmacomm/rdmacomm.h"
#include "support/acting_session.h"

namespace rdmacomm::copying {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

programs::ConnectionFlags flags_for(std::uint16_t port) {
  programs::ConnectionFlags flags;
  flags.session.device.name = "soft0";
  flags.session.address = {"127.0.0.1", port};
  return flags;
}

struct CopyPeers : testing::Test {
  CopyPeers() : stop(std::move(*WakeEvent::create())) {
    std::string pattern = (fs::temp_directory_path() / "copyXXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) top = pattern;
    fs::create_directory(top / "root");
    std::promise<std::uint16_t> listening;
    outcome = std::async(std::launch::async, [&, port_of = &listening] {
      return run_server({.connection = flags_for(0),
                         .modes = {.polling = PollingMode::kCompletionChannel},
                         .root = top / "root",
                         .listening = [port_of](std::uint16_t at) { port_of->set_value(at); }},
                        stop.fd());
    });
    port = listening.get_future().get();
  }
  ~CopyPeers() override {
    // After each test the server must still serve the next client.
    std::ofstream(top / "file") << "hello";
    Counts counts;
    const Status copied = run_client({.connection = flags_for(port),
                                      .modes = {.polling = PollingMode::kCompletionChannel},
                                      .sources = {top / "file"},
                                      .destination = "after"},
                                     {}, counts);
    EXPECT_TRUE(copied.ok()) << copied.message();
    EXPECT_EQ(fs::file_size(top / "root/after"), 5U);
    stop.signal();
    const Status served = outcome.get();
    EXPECT_TRUE(served.ok()) << served.message();
    fs::remove_all(top);
  }

  fs::path top;
  WakeEvent stop;
  std::uint16_t port = 0;
  std::future<Status> outcome;
};

/// A client that sends what the test specifies.
struct Forged : ActingSession<ClientSession> {
  Forged(std::uint16_t port, std::vector<std::byte> said)
      : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", port}}),
        hello(std::move(said)) {}
  ~Forged() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {stream_options().channel(kChannel)};
    hca.polling_mode = PollingMode::kCompletionChannel;
    hca.private_data = hello;
    return {};
  }
  Result<RDMAStream> open() {
    const auto endpoint = connect();
    if (!endpoint) return endpoint.error();
    return RDMAStream::open(*endpoint, (*endpoint).channel(kChannel), stream_options(), soon());
  }
  /// Returns the server's final message.
  std::string says(const std::function<void(RDMAStream&, FrameWriter&)>& script) {
    auto stream = open();
    if (!stream) return stream.error().message();
    FrameWriter writer(*stream);
    script(*stream, writer);
    (void)writer.flush();
    FrameReader reader(*stream);
    for (;;) {
      const auto frame = reader.next(soon());
      if (!frame) return frame.error().message();
      if (!*frame) return "the end";
    }
  }

  const std::vector<std::byte> hello;
};

using Script = std::function<void(FrameWriter&)>;

std::string say(std::uint16_t port, const Script& script, const CopyOptions& options = {}) {
  Forged forged(port, identification());
  return forged.says([&](RDMAStream&, FrameWriter& writer) {
    const Job job{.options = options, .sources = 1};
    EXPECT_TRUE(writer.put(FrameKind::kJob, job.encode()).ok());
    EXPECT_TRUE(writer.put(FrameKind::kPath, {}).ok());
    script(writer);
  });
}

void put(FrameWriter& writer, FrameKind kind, const std::vector<std::byte>& payload = {}) {
  (void)writer.put(kind, payload);  // the server may have ended the connection
}

void put_data(FrameWriter& writer, std::uint64_t offset, std::size_t count) {
  const auto lent = writer.lend_data(count);
  if (lent) (void)writer.commit_data(offset, count);
}

/// Data for offset 0 whose header announces `padding`, followed by four bytes.
std::vector<std::byte> padded(std::uint32_t padding) {
  std::vector<std::byte> payload(16);
  for (std::size_t i = 0; i < 4; ++i) payload[8 + i] = static_cast<std::byte>(padding >> (8 * i));
  return payload;
}

std::vector<std::byte> file_of(std::uint64_t size, const std::string& name = "x") {
  return Entry{.id = 1, .mode = 0644, .size = size, .name = name}.encode();
}

TEST_F(CopyPeers, OtherProgramsAreRefused) {
  auto version = identification();
  version[4] = std::byte{9};
  const auto nothing = [](RDMAStream&, FrameWriter&) {};
  EXPECT_THAT(Forged(port, {}).says(nothing), HasSubstr("the handshake is not from rdma_copy"));
  EXPECT_THAT(Forged(port, version).says(nothing), HasSubstr("uses version 9 of the protocol, this program version 4"));
}

/// A server with another version of the protocol.
struct LaterServer : ActingSession<ServerSession> {
  LaterServer() : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", 0}}) {}
  ~LaterServer() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {stream_options().channel(kChannel)};
    hca.private_data = identification();
    hca.private_data[4] = std::byte{9};
    return {};
  }
};

TEST_F(CopyPeers, AServerOfAnotherVersionIsRefused) {
  LaterServer server;
  ASSERT_TRUE(server.start().ok());
  Counts counts;
  const Status copied = run_client({.connection = flags_for(server.port()), .sources = {top / "file"}}, {}, counts);
  EXPECT_THAT(copied.message(), HasSubstr("uses version 9 of the protocol, this program version 4"));
}

TEST_F(CopyPeers, TheFirstFrameMustBeAJob) {
  const auto refused = [&](FrameKind kind, const std::vector<std::byte>& payload) {
    return Forged(port, identification()).says([&](RDMAStream&, FrameWriter& writer) { put(writer, kind, payload); });
  };
  EXPECT_THAT(refused(FrameKind::kFile, file_of(1)), HasSubstr("has not sent a job"));
  EXPECT_THAT(refused(FrameKind::kJob, {}), HasSubstr("job cannot be decoded"));
}

TEST_F(CopyPeers, PathsFollowTheJob) {
  const auto said = [&](const Job& job, const Script& script) {
    return Forged(port, identification()).says([&](RDMAStream&, FrameWriter& writer) {
      put(writer, FrameKind::kJob, job.encode());
      script(writer);
    });
  };
  const auto put_path = [](FrameWriter& writer, const std::string& path) {
    put(writer, FrameKind::kPath, {std::as_bytes(std::span(path)).begin(), std::as_bytes(std::span(path)).end()});
  };
  const Job push{.sources = 1};
  EXPECT_THAT(said(push, [](FrameWriter& w) { put(w, FrameKind::kFile, file_of(1)); }), HasSubstr("fewer paths"));
  EXPECT_THAT(said(push, [&](FrameWriter& w) { put_path(w, std::string(4097, 'x')); }),
              HasSubstr("path cannot be decoded"));
  EXPECT_THAT(said(push, [&](FrameWriter& w) { put_path(w, std::string(1, '\0')); }),
              HasSubstr("path cannot be decoded"));
  const Job pull{.direction = Direction::kPull, .sources = 1'000'000};
  EXPECT_THAT(said(pull,
                   [&](FrameWriter& w) {
                     for (std::size_t i = 0; i < Job::kMaxPaths / 4096 + 1; ++i) put_path(w, std::string(4096, 'x'));
                   }),
              HasSubstr("too many paths"));
}

TEST_F(CopyPeers, AFrameStaysInItsBlock) {
  const std::string said = Forged(port, identification()).says([](RDMAStream& stream, FrameWriter&) {
    const std::array<unsigned char, 8> head{1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f};
    EXPECT_TRUE(stream.write(std::as_bytes(std::span(head)), soon()).ok());
  });
  EXPECT_THAT(said, HasSubstr("an invalid frame has arrived"));
}

TEST_F(CopyPeers, MoreDataThanAnnouncedIsRefused) {
  for (const auto& [script, why] : std::vector<std::pair<Script, const char*>>{
           {[](FrameWriter& w) { put_data(w, 0, 11); }, "has sent 11 bytes for offset 0 of a file of 10 bytes"},
           {[](FrameWriter& w) { put_data(w, 5, 2); }, "has sent 2 bytes for offset 5 of a file of 10 bytes"},
           {[](FrameWriter& w) { put_data(w, ~std::uint64_t{0}, 2); }, "of a file of 10"},
           {[](FrameWriter& w) { put(w, FrameKind::kHole, Extent{.length = ~std::uint64_t{0}}.encode()); },
            "of a file of 10"},
           {[](FrameWriter& w) { put(w, FrameKind::kSame, Same{.length = 1}.encode()); },
            "that the existing file does not have"},
           {[](FrameWriter& w) { put(w, FrameKind::kFileEnd, FileEnd{.id = 1}.encode()); }, "of which 0 have arrived"},
           {[](FrameWriter& w) { put(w, FrameKind::kFile, file_of(1)); }, "before the end of the file before it"},
           {[](FrameWriter& w) { put(w, FrameKind::kLeave); }, "ended a directory that it had not begun"},
           {[](FrameWriter& w) { put(w, FrameKind::kEnd); }, "in the middle of a file or directory"},
           {[](FrameWriter& w) { put(w, FrameKind::kHave); }, "which it may not send"},
           {[](FrameWriter& w) { put(w, FrameKind::kData); }, "a data frame with an invalid header"},
           {[](FrameWriter& w) { put(w, FrameKind::kData, padded(4)); }, "a data frame with an invalid header"},
           {[](FrameWriter& w) { put(w, FrameKind::kData, padded(~0U)); }, "a data frame with an invalid header"}}) {
    const std::string said = say(port, [&, &script = script](FrameWriter& writer) {
      put(writer, FrameKind::kFile, file_of(10));
      script(writer);
    });
    EXPECT_THAT(said, HasSubstr(why));
    EXPECT_FALSE(fs::exists(top / "root/x"));
  }
}

TEST_F(CopyPeers, NamesCannotLeaveTheirFolder) {
  for (const char* name : {"..", "../x", "/etc/x", "a/b"}) {
    const std::string said = say(port, [&](FrameWriter& writer) { put(writer, FrameKind::kFile, file_of(1, name)); });
    EXPECT_THAT(said, HasSubstr("the received name is invalid")) << name;
  }
  EXPECT_THAT(say(port, [](FrameWriter& writer) { put(writer, FrameKind::kFile, file_of(1, "")); }),
              HasSubstr("has sent an empty name"));
  EXPECT_THAT(say(port, [](FrameWriter& writer) { put(writer, FrameKind::kFile, file_of(1, ".x.rdma_copy-partial")); }),
              HasSubstr("the name of an unfinished copy"));
  EXPECT_FALSE(fs::exists(top / "x"));
}

TEST_F(CopyPeers, DepthHasABound) {
  const auto deep = [](FrameWriter& writer) {
    for (std::uint32_t id = 1; id < 1000; ++id) {
      put(writer, FrameKind::kDirectory, Entry{.id = id, .mode = 0755, .name = "d"}.encode());
    }
  };
  EXPECT_THAT(say(port, deep, {.recursive = true}), HasSubstr("more than 300 nested directories"));
}

/// The checksum of the written data is compared with that of the read data: a byte that changes in between is detected,
/// and the old file is kept.
TEST_F(CopyPeers, ChecksumsAreCompared) {
  std::ofstream(top / "root/x") << "old";
  for (const bool right : {false, true}) {
    programs::Checksum checksum(true);
    checksum.update(std::vector<std::byte>(3, std::byte{right ? std::uint8_t{7} : std::uint8_t{8}}));
    std::string failure;
    Forged forged(port, identification());
    auto stream = forged.open();
    ASSERT_TRUE(stream.has_value());
    FrameWriter writer(*stream);
    put(writer, FrameKind::kJob, Job{.sources = 1}.encode());
    put(writer, FrameKind::kPath);
    put(writer, FrameKind::kFile, file_of(3));
    const auto lent = writer.lend_data(3);
    std::ranges::fill(*lent, std::byte{7});
    ASSERT_TRUE(writer.commit_data(0, 3).ok());
    put(writer, FrameKind::kFileEnd, FileEnd{.id = 1, .checksum = checksum.value()}.encode());
    put(writer, FrameKind::kEnd);
    ASSERT_TRUE(writer.flush().ok());
    FrameReader reader(*stream);
    auto frame = reader.next(soon());
    ASSERT_TRUE(frame.has_value() && *frame);
    if ((*frame)->kind == FrameKind::kFailure) failure = Failure::decode((*frame)->payload)->text;
    EXPECT_EQ(failure.find("the checksums differ") == std::string::npos, right) << failure;
    EXPECT_EQ(fs::file_size(top / "root/x"), 3U);
    std::string text;
    std::getline(std::ifstream(top / "root/x"), text);
    EXPECT_EQ(text, right ? "\7\7\7" : "old");
  }
}

TEST_F(CopyPeers, ClientsOfOneAddressAreLimited) {
  std::vector<std::unique_ptr<Forged>> guests;
  std::string said;
  for (int i = 0; i < 100 && said.empty(); ++i) {
    guests.push_back(std::make_unique<Forged>(port, identification()));
    const auto endpoint = guests.back()->connect();
    if (!endpoint) said = endpoint.error().message();
  }
  EXPECT_THAT(said, HasSubstr("which is its limit for one address: try again later"));
  EXPECT_GE(guests.size(), 33U);
  // After they have disconnected, others are served.
  guests.clear();
  while (Forged(port, identification()).connect().code() == Errc::kPeerRefused) std::this_thread::yield();
}

bool is_aligned(std::span<const std::byte> data) {
  return reinterpret_cast<std::uintptr_t>(data.data()) % kDataAlignment == 0;
}

TEST_F(CopyPeers, DataMustBeAligned) {
  std::ofstream(top / "root/first") << std::string(100, 'x');
  std::ofstream(top / "root/second") << 'y';
  Forged forged(port, identification());
  auto stream = forged.open();
  ASSERT_TRUE(stream.has_value());
  FrameWriter writer(*stream);
  put(writer, FrameKind::kJob, Job{.direction = Direction::kPull, .sources = 2}.encode());
  for (const std::string_view path : {"first", "second"}) {
    ASSERT_TRUE(writer.put(FrameKind::kPath, std::as_bytes(std::span(path))).ok());
    const auto lent = writer.lend_data(path.size());  // not committed, so not sent
    ASSERT_TRUE(lent.has_value());
    EXPECT_TRUE(is_aligned(*lent));
  }
  ASSERT_TRUE(writer.flush().ok());
  FrameReader reader(*stream);
  std::vector<std::size_t> sizes;
  while (sizes.size() < 2) {
    const auto frame = reader.next(soon());
    ASSERT_TRUE(frame.has_value() && *frame);
    if ((*frame)->kind != FrameKind::kData) continue;
    auto data = (*frame)->payload;
    EXPECT_EQ(take_offset(data).value(), 0U);
    EXPECT_TRUE(is_aligned(data));
    sizes.push_back(data.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(100, 1));
}

TEST_F(CopyPeers, AtMostOnePathForEachSourceIsAccepted) {
  const auto two_files = [](FrameWriter& writer) {
    for (const char* name : {"x", "y"}) {
      put(writer, FrameKind::kFile, file_of(0, name));
      put(writer, FrameKind::kFileEnd, FileEnd{.id = 1}.encode());
    }
    put(writer, FrameKind::kEnd);
  };
  const CopyOptions unchecked{.checksum = false};
  EXPECT_THAT(say(port, two_files, unchecked), HasSubstr("has sent \"y\", which was not asked for"));
  EXPECT_FALSE(fs::exists(top / "root/y"));
  const auto nothing = [](FrameWriter& writer) { put(writer, FrameKind::kEnd); };
  EXPECT_THAT(say(port, nothing), HasSubstr("has left out files that were asked for"));
}

TEST_F(CopyPeers, OnlyRequestedFilesAreAccepted) {
  const auto entry_of = [](const char* target = "") { return Entry{.id = 1, .name = "x", .target = target}.encode(); };
  const auto directory = [&](FrameWriter& writer) { put(writer, FrameKind::kDirectory, entry_of()); };
  const auto link = [&](FrameWriter& writer) { put(writer, FrameKind::kLink, entry_of("/etc")); };
  EXPECT_THAT(say(port, directory), HasSubstr("is a directory: directories were not asked for"));
  EXPECT_THAT(say(port, directory, {.archive = true}), HasSubstr("is a directory: directories were not asked for"));
  EXPECT_THAT(say(port, link), HasSubstr("is a symbolic link: links were not asked for"));
  EXPECT_TRUE(fs::is_empty(top / "root"));
}

TEST_F(CopyPeers, AnUnchangedFileHasTheSizeOfTheOldOne) {
  std::ofstream(top / "root/x") << "old";
  const auto shorter = [](FrameWriter& writer) {
    put(writer, FrameKind::kFile, Entry{.id = 1, .mode = 0644, .size = 2, .asks = true, .name = "x"}.encode());
    put(writer, FrameKind::kSame, Same{.length = 2}.encode());
    put(writer, FrameKind::kFileEnd, FileEnd{.id = 1, .state = FileEnd::State::kUnchanged}.encode());
  };
  EXPECT_THAT(say(port, shorter, {.delta = true}), HasSubstr("ended a file of 2 bytes, of which 2 have arrived"));
}

/// A server that sends what the test specifies, whatever was requested.
struct ForgedServer : ActingSession<ServerSession> {
  explicit ForgedServer(Script said)
      : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", 0}}),
        script(std::move(said)) {
    EXPECT_TRUE(start().ok());
    thread = std::thread([this] { serve(); });
  }
  ~ForgedServer() override {
    thread.join();
    stop();
  }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {stream_options().channel(kChannel)};
    hca.polling_mode = PollingMode::kCompletionChannel;
    hca.private_data = identification();
    return {};
  }
  void serve() {
    const auto endpoint = accept(soon());
    ASSERT_TRUE(endpoint.has_value()) << endpoint.error().message();
    auto stream = RDMAStream::open(*endpoint, (*endpoint).channel(kChannel), stream_options(), soon());
    ASSERT_TRUE(stream.has_value()) << stream.error().message();
    FrameReader reader(*stream);
    auto frame = reader.next(soon());
    ASSERT_TRUE(frame.has_value() && *frame);
    const auto job = Job::decode((*frame)->payload);
    ASSERT_TRUE(job.has_value());
    for (std::uint32_t i = 0; i < job->paths(); ++i) ASSERT_TRUE(reader.next(soon()).has_value());
    FrameWriter writer(*stream);
    script(writer);
    (void)writer.flush();
    // Reads until the client ends the connection. In a pull, also the client's report of the written files ends this.
    while (frame && *frame && (*frame)->kind != FrameKind::kResult) frame = reader.next(soon());
    frame = std::optional<Frame>();  // its block must also be released before the end
    if ((*stream).finish(soon()).ok()) (void)reader.next(soon());
  }

  const Script script;
  std::thread thread;
};

void put_file(FrameWriter& writer, const std::string& name, FileEnd::State state = FileEnd::State::kWhole) {
  put(writer, FrameKind::kFile, file_of(0, name));
  put(writer, FrameKind::kFileEnd, FileEnd{.id = 1, .state = state}.encode());
}

/// A client that connects to such a server.
struct CopyFromOthers : CopyPeers {
  CopyFromOthers() { fs::create_directory(top / "got"); }
  /// Returns the client's final message.
  std::string pull(const std::vector<std::string>& sources, const Script& script, const std::string& destination,
                   CopyOptions options = {}) {
    ForgedServer server(script);
    options.checksum = false;
    failures.clear();
    counts = {};
    const Events events{.failed = [this](const std::string& text) { failures.push_back(text); }};
    return run_client({.connection = flags_for(server.port()),
                       .modes = {.polling = PollingMode::kCompletionChannel},
                       .direction = Direction::kPull,
                       .copy = options,
                       .sources = sources,
                       .destination = top / destination},
                      events, counts)
        .message();
  }
  [[nodiscard]] std::vector<std::string> got() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(top / "got")) {
      names.push_back(fs::relative(entry.path(), top / "got"));
    }
    return names;
  }

  Counts counts;
  std::vector<std::string> failures;
};

TEST_F(CopyFromOthers, OnlyRequestedNamesAreAccepted) {
  using testing::UnorderedElementsAre;
  const auto sends = [](const std::vector<std::string>& names) {
    return [names](FrameWriter& writer) {
      for (const std::string& name : names) put_file(writer, name);
      put(writer, FrameKind::kEnd);
    };
  };
  EXPECT_EQ(pull({"a/wanted", "b/too", "b/too"}, sends({"wanted", "too", "too"}), "got"), Status().message());
  EXPECT_EQ(counts.files, 3U);
  EXPECT_THAT(got(), UnorderedElementsAre("wanted", "too"));
  fs::remove(top / "got/wanted");
  fs::remove(top / "got/too");
  for (const std::vector<std::string>& names : {std::vector<std::string>{".bashrc"},
                                                {"wanted", ".bashrc"},
                                                {"wanted", "wanted"},
                                                {"too", "wanted"},
                                                {"\x1b]0;owned\a"},
                                                {"dir"}}) {
    EXPECT_THAT(pull({"dir/wanted", "too"}, sends(names), "got"), HasSubstr("was not asked for"));
    for (const std::string& name : got()) EXPECT_THAT(name, testing::AnyOf("wanted", "too"));
    for (const std::string& name : got()) fs::remove(top / "got" / name);
  }
  EXPECT_THAT(pull({"wanted"}, sends({"\x1b]0;owned\a"}), "got"), HasSubstr("\"\\x1b]0;owned\\x07\""));
}

TEST_F(CopyFromOthers, ADestinationThatIsANameTakesOneFile) {
  const auto both = [](FrameWriter& writer) {
    put_file(writer, "wanted");
    put_file(writer, "wanted");
  };
  EXPECT_THAT(pull({"wanted"}, both, "got/name"), HasSubstr("was not asked for"));
  const auto another = [](FrameWriter& writer) { put_file(writer, "another"); };
  EXPECT_THAT(pull({"wanted"}, another, "got/other"), HasSubstr("\"another\", which was not asked for"));
  EXPECT_THAT(got(), testing::IsSubsetOf({"name"}));
}

TEST_F(CopyFromOthers, OnlyRequestedKindsAreAccepted) {
  const auto directory = [](const std::string& name) {
    return [name](FrameWriter& writer) {
      put(writer, FrameKind::kDirectory, Entry{.id = 1, .mode = 0755, .name = name}.encode());
      put_file(writer, "authorized_keys");
    };
  };
  const auto link = [](FrameWriter& writer) {
    put(writer, FrameKind::kLink, Entry{.id = 1, .name = "wanted", .target = "/etc"}.encode());
  };
  EXPECT_THAT(pull({"wanted"}, directory("wanted"), "got"),
              HasSubstr("is a directory: directories were not asked for"));
  EXPECT_THAT(pull({"wanted"}, directory(""), "got"), HasSubstr("is a directory: directories were not asked for"));
  EXPECT_THAT(pull({"wanted"}, directory("wanted"), "got", {.archive = true}), HasSubstr("is a directory"));
  EXPECT_THAT(pull({"wanted"}, link, "got"), HasSubstr("is a symbolic link: links were not asked for"));
  EXPECT_THAT(pull({"wanted"}, directory(".ssh"), "got", {.recursive = true}), HasSubstr("was not asked for"));
  EXPECT_THAT(pull({"wanted"}, directory(""), "got", {.recursive = true}), HasSubstr("was not asked for"));
  EXPECT_THAT(pull({"dir/"}, directory("dir"), "got", {.recursive = true}), HasSubstr("was not asked for"));
  EXPECT_THAT(pull({"dir/"}, [](FrameWriter& writer) { put_file(writer, ""); }, "got/x", {.recursive = true}),
              HasSubstr("has sent an empty name"));
  EXPECT_TRUE(fs::is_empty(top / "got"));
}

/// A server that receives hashes of local files could find out their contents.
TEST_F(CopyFromOthers, HashesAreSentOnlyForComparison) {
  std::ofstream(top / "got/wanted") << "secret";
  const auto asking = [](FrameWriter& writer) {
    put(writer, FrameKind::kFile, Entry{.id = 1, .mode = 0644, .size = 1, .asks = true, .name = "wanted"}.encode());
  };
  EXPECT_THAT(pull({"wanted"}, asking, "got"),
              HasSubstr("it wants to compare with the existing file: that was not asked for"));
  EXPECT_THAT(got(), testing::ElementsAre("wanted"));
}

TEST_F(CopyFromOthers, OmittedFilesAreReported) {
  const auto nothing = [](FrameWriter& writer) { put(writer, FrameKind::kEnd); };
  const auto given_up = [](FrameWriter& writer) {
    put_file(writer, "wanted", FileEnd::State::kGivenUp);
    put(writer, FrameKind::kEnd);
  };
  const auto failure = [](FrameWriter& writer) {
    put(writer, FrameKind::kFailure, Failure{.text = "\x1b[2J\"wanted\": gone"}.encode());
    put(writer, FrameKind::kEnd);
  };
  EXPECT_THAT(pull({"wanted"}, nothing, "got"), HasSubstr("has left out files that were asked for"));
  EXPECT_THAT(pull({"wanted"}, given_up, "got"), HasSubstr("has left out files that were asked for"));
  EXPECT_EQ(pull({"wanted"}, failure, "got"), Status().message());
  EXPECT_EQ(counts.failures, 1U);
  EXPECT_THAT(failures, testing::ElementsAre("\\x1b[2J\"wanted\": gone"));
}

/// In a push, the client compares the server's report of written data with the data that it has sent.
TEST_F(CopyFromOthers, AResultMustMatchTheSentData) {
  const auto push = [&](const Counts& claimed) {
    ForgedServer server([&](FrameWriter& writer) { put(writer, FrameKind::kResult, claimed.encode()); });
    std::ofstream(top / "file") << "hello";
    counts = {};
    return run_client({.connection = flags_for(server.port()),
                       .modes = {.polling = PollingMode::kCompletionChannel},
                       .sources = {top / "file"}},
                      {}, counts)
        .message();
  };
  EXPECT_EQ(push({.files = 1, .bytes = 5}), Status().message());
  for (const Counts& wrong :
       {Counts{}, Counts{.files = 2, .bytes = 5}, Counts{.files = 1, .bytes = 6},
        Counts{.files = 1, .links = 1, .bytes = 5}, Counts{.files = 1, .bytes = 5, .failures = 1}}) {
    EXPECT_THAT(push(wrong), HasSubstr("differs from the sent data (1 files, 5 bytes, 0 failures)"));
  }
}

/// Peak memory of this process.
std::uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::uint64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes << 10;
  }
  return 0;
}

/// Blocks of this size belong to a file of 64 TiB. No memory may be allocated for them to read a file of 64 KiB.
TEST_F(CopyFromOthers, ItsBlocksTakeNoMemory) {
  const std::uint64_t size = Have::kMaxSize;
  EXPECT_EQ(hash_block_bytes(size), Have::kMaxBlock);
  std::ofstream(top / "file") << std::string(kMinAsked, 'x');
  ForgedServer server([&](FrameWriter& writer) {
    put(writer, FrameKind::kHave,
        Have{.id = 1, .base = Have::Base::kOld, .size = size, .block_bytes = Have::kMaxBlock}.encode());
    const std::vector<std::byte> sums(Hashes::kBytesOfBlock * 1024);
    for (std::uint64_t block = 0; block < Have::kMaxBlocks; block += 1024) put(writer, FrameKind::kHashes, sums);
    put(writer, FrameKind::kResult, Counts{.files = 1, .bytes = kMinAsked}.encode());
  });
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
  const std::uint64_t before = peak_bytes();
  const Status copied = run_client({.connection = flags_for(server.port()),
                                    .modes = {.polling = PollingMode::kCompletionChannel},
                                    .copy = {.delta = true},
                                    .sources = {top / "file"}},
                                   {}, counts);
  EXPECT_TRUE(copied.ok()) << copied.message();
  EXPECT_EQ(counts.bytes_sent, kMinAsked);
  EXPECT_LT(peak_bytes(), before + 2 * Have::kMaxBlock);
}

TEST_F(CopyPeers, AClientMayDisconnectWithoutNotice) {
  Forged forged(port, identification());
  EXPECT_TRUE(forged.connect().has_value());
}

}  // namespace
}  // namespace rdmacomm::copying
