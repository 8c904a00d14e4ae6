// Parts of rdma_copy: the messages between client and server, paths, unfinished files, rates, reports.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <latch>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "rdma_copy/aligned_bytes.h"
#include "rdma_copy/block_hashes.h"
#include "rdma_copy/block_search.h"
#include "rdma_copy/crew.h"
#include "rdma_copy/directory.h"
#include "rdma_copy/frame_parts.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/new_file.h"
#include "rdma_copy/place.h"
#include "rdma_copy/rate_limit.h"
#include "rdma_copy/remote_path.h"
#include "rdma_copy/report.h"
#include "rdma_copy/total_size.h"

namespace rdmacomm::copying {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

// Messages ------------------------------------------------------------------------------------------------------------

Job some_job() {
  return {.direction = Direction::kPull,
          .options = {.recursive = true, .archive = true, .delta = true, .bytes_per_second = 1 << 20},
          .sources = 2};
}

Entry some_entry() {
  return {.id = 7,
          .mode = 0644,
          .modified = {.seconds = -5, .nanoseconds = 999'999'999},
          .size = 12,
          .asks = true,
          .name = "x y",
          .target = "../z"};
}

TEST(AlignedBytes, StayAligned) {
  AlignedBytes bytes;
  for (std::size_t size = 1; size < (std::size_t{1} << 20); size = 3 * size + 1) {
    bytes.resize(size, std::byte{7});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % kDataAlignment, 0U) << size << " bytes";
    EXPECT_EQ(bytes.back(), std::byte{7});
  }
}

TEST(CopyMessages, AreDecodedAsTheyWereEncoded) {
  const auto job = Job::decode(some_job().encode());
  ASSERT_TRUE(job.has_value()) << job.error().message();
  EXPECT_EQ(*job, some_job());
  const auto entry = Entry::decode(some_entry().encode());
  ASSERT_TRUE(entry.has_value()) << entry.error().message();
  EXPECT_EQ(*entry, some_entry());
  const auto have = Have::decode(Have{.id = 3, .base = Have::Base::kOld, .size = 8193}.encode());
  ASSERT_TRUE(have.has_value()) << have.error().message();
  EXPECT_EQ(have->blocks(), 3U);
  const auto end = FileEnd::decode(FileEnd{.id = 1, .state = FileEnd::State::kUnchanged, .checksum = 5}.encode());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->checksum, 5U);
  EXPECT_EQ(Failure::decode(Failure{.id = 2, .text = "a\nb"}.encode())->text, "a\\nb");
  EXPECT_EQ(Counts::decode(Counts{.files = 1, .bytes_sent = 9, .failures = 2}.encode())->bytes_sent, 9U);
  EXPECT_EQ(Extent::decode(Extent{.offset = 1, .length = 2}.encode())->length, 2U);
}

/// Each message without its last byte, with an additional byte, and with each byte changed: it is refused, or decodes
/// to a different message.
template <typename Message>
void expect_robust(const std::vector<std::byte>& good) {
  EXPECT_TRUE(Message::decode(good).has_value());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(Message::decode(std::span(good).first(length)).code(), Errc::kBadMessage) << length;
  }
  std::vector<std::byte> more = good;
  more.push_back(std::byte{});
  EXPECT_EQ(Message::decode(more).code(), Errc::kBadMessage);
  std::mt19937 random(std::random_device{}());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> changed = good;
    changed[at] = static_cast<std::byte>(random());
    const auto decoded = Message::decode(changed);
    EXPECT_TRUE(decoded.has_value() || decoded.code() == Errc::kBadMessage);
  }
}

TEST(CopyMessages, AreCheckedByteByByte) {
  expect_robust<Job>(some_job().encode());
  expect_robust<Entry>(some_entry().encode());
  expect_robust<Have>(Have{.id = 3, .base = Have::Base::kOld, .size = 8193}.encode());
  expect_robust<Extent>(Extent{.offset = 1, .length = 2}.encode());
  expect_robust<Same>(Same{.offset = 1, .length = 2, .from = 3}.encode());
  expect_robust<FileEnd>(FileEnd{.id = 1, .checksum = 5}.encode());
  expect_robust<Failure>(Failure{.id = 1, .text = "why"}.encode());
  expect_robust<Counts>(Counts{.files = 1}.encode());
}

TEST(CopyMessages, NamesCannotLeaveTheirFolder) {
  for (const char* name : {"..", ".", "a/b", "/", "../x"}) {
    Entry entry = some_entry();
    entry.name = name;
    EXPECT_EQ(Entry::decode(entry.encode()).code(), Errc::kBadMessage) << name;
  }
  Entry entry = some_entry();
  for (const std::string& name : {std::string("a\0b", 3), std::string(256, 'x')}) {
    entry.name = name;
    EXPECT_EQ(Entry::decode(entry.encode()).code(), Errc::kBadMessage);
  }
  entry.name = "...";
  EXPECT_TRUE(Entry::decode(entry.encode()).has_value());
}

TEST(CopyMessages, HaveBounds) {
  EXPECT_EQ(Have::decode(Have{.size = 1, .block_bytes = 2048}.encode()).code(), Errc::kBadMessage);
  EXPECT_EQ(Have::decode(Have{.size = 1, .block_bytes = 5000}.encode()).code(), Errc::kBadMessage);
  EXPECT_EQ(Have::decode(Have{.size = 1, .block_bytes = Have::kMaxBlock}.encode()).code(), Errc::kBadMessage);
  EXPECT_EQ(Have::decode(Have{.size = Have::kMaxSize, .block_bytes = Have::kMaxBlock}.encode())->size, Have::kMaxSize);
  EXPECT_EQ(Have::decode(Have{.size = std::uint64_t{1} << 40, .block_bytes = 4096}.encode()).code(), Errc::kBadMessage);
  EXPECT_EQ(hash_block_bytes(0), 4096U);
  EXPECT_EQ(hash_block_bytes(std::uint64_t{1} << 30), 4096U);
  for (const std::uint64_t size : {std::uint64_t{1} << 32, std::uint64_t{1} << 40, Have::kMaxSize}) {
    EXPECT_LE((Have{.size = size, .block_bytes = hash_block_bytes(size)}.blocks()), Have::kMaxBlocks) << size;
  }
}

TEST(CopyMessages, AFileThatHasNoChecksumHasNoneInItsEnd) {
  auto bytes = FileEnd{.id = 1}.encode();
  EXPECT_TRUE(FileEnd::decode(bytes).has_value());
  bytes.back() = std::byte{1};
  EXPECT_EQ(FileEnd::decode(bytes).code(), Errc::kBadMessage);
}

TEST(CopyFrames, AreReadFromABlockOneByOne) {
  std::vector<std::byte> block(kFrameHead + 3 + kDataHead + 5 + 4);
  const std::span<std::byte> rest = std::span(block).subspan(kFrameHead + 3);
  put_frame_head(block, FrameKind::kPath, 3);
  put_data_head(rest, 4096, 2, 3);
  std::span<const std::byte> left = block;
  const auto path = take_frame(left);
  ASSERT_TRUE(path.has_value() && *path);
  EXPECT_EQ((*path)->kind, FrameKind::kPath);
  EXPECT_EQ((*path)->payload.size(), 3U);
  const auto data = take_frame(left);
  ASSERT_TRUE(data.has_value() && *data);
  std::span<const std::byte> payload = (*data)->payload;
  EXPECT_EQ(take_offset(payload).value(), 4096U);
  EXPECT_EQ(payload.size(), 3U);
  EXPECT_EQ(left.size(), 4U);
  EXPECT_FALSE(take_frame(left).value());  // zeroes: the rest of the block is empty
  EXPECT_TRUE(left.empty());
}

TEST(CopyFrames, BeyondTheirBlockAreRefused) {
  std::vector<std::byte> block(kFrameHead + 3);
  for (const std::size_t length : {std::size_t{4}, std::size_t{0xffffffff}}) {
    put_frame_head(block, FrameKind::kPath, length);
    std::span<const std::byte> left = block;
    EXPECT_EQ(take_frame(left).code(), Errc::kBadMessage) << length;
  }
  put_frame_head(block, static_cast<FrameKind>(16), 0);
  std::span<const std::byte> left = block;
  EXPECT_EQ(take_frame(left).code(), Errc::kBadMessage);
  left = std::span(block).first(kFrameHead - 1);
  EXPECT_EQ(take_frame(left).code(), Errc::kBadMessage);
}

TEST(CopyMessages, AnErrorAboutVersionsNamesBoth) {
  EXPECT_TRUE(check_identification(identification()).ok());
  EXPECT_EQ(check_identification({}).code(), Errc::kBadMessage);
  auto other = identification();
  other[4] = std::byte{9};
  EXPECT_EQ(check_identification(other).code(), Errc::kVersionMismatch);
  EXPECT_THAT(check_identification(other).message(),
              HasSubstr("uses version 9 of the protocol, this program version 4"));
}

TEST(CopyMessages, TextBecomesPrintable) {
  EXPECT_EQ(escaped("plain ü 日本 😀"), "plain ü 日本 😀");
  EXPECT_EQ(escaped("a\nb\tc\x1b[2J"), "a\\nb\\x09c\\x1b[2J");
  EXPECT_EQ(escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b") << "a control of terminals";
  EXPECT_EQ(escaped("\xe6\x97"), "\\xe6\\x97") << "cut off";
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf") << "longer than need be";
}

TEST(CopyBlockHashes, AreXxh3) {
  const BlockHash empty = hash_of({});  // XXH3, 128 bits, of no data: 99aa06d3014798d86001c324468d497f
  EXPECT_EQ(empty[0], std::byte{0x99});
  EXPECT_EQ(empty[15], std::byte{0x7f});
  EXPECT_NE(hash_of(std::vector<std::byte>(4096)), hash_of(std::vector<std::byte>(4095)));
}

TEST(CopyBlockHashes, CanBeRolled) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(9000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const std::size_t length : {std::size_t{1}, std::size_t{33}, std::size_t{4096}}) {
    RollingSum rolled(std::span<const std::byte>(bytes).first(length));
    for (std::size_t at = 0; at + length < bytes.size(); ++at) {
      const RollingSum fresh(std::span<const std::byte>(bytes).subspan(at, length));
      ASSERT_EQ(rolled.value(), fresh.value()) << length << ' ' << at;
      rolled.roll(bytes[at], bytes[at + length]);
    }
  }
}

TEST(CopyBlockHashes, FindBlocksByTheirContent) {
  std::vector<std::vector<std::byte>> blocks;
  for (int i = 0; i < 300; ++i) blocks.emplace_back(64, static_cast<std::byte>(i % 256));
  std::vector<BlockSums> sums;
  for (const auto& block : blocks) sums.push_back(sums_of(block));
  const BlockIndex index(sums);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(index.may_have(sums[i].rolling));
    EXPECT_EQ(index.find(sums[i].rolling, blocks[i]), i % 256);
  }
  blocks[0][5] = std::byte{9};
  EXPECT_EQ(index.find(sums[0].rolling, blocks[0]), std::nullopt) << "the sum is right, the bytes are not";
  EXPECT_EQ(index.find(12345, blocks[0]), std::nullopt);
}

/// Rebuilds a file from the results of a search. Returns the number of bytes that had to be sent.
std::size_t rebuild(const std::vector<std::byte>& old, const std::vector<std::byte>& wanted, Have::Base base,
                    std::size_t window_bytes) {
  const Have have{.base = base, .size = old.size()};
  BlockSearch search(have, [&](std::uint64_t block) -> Result<BlockSums> {
    const std::size_t from = block * have.block_bytes;
    return sums_of(std::span(old).subspan(from, std::min<std::size_t>(have.block_bytes, old.size() - from)));
  });
  std::size_t sent = 0;
  std::vector<std::byte> built;
  for (std::size_t at = 0; at < wanted.size();) {
    const std::size_t count = std::min(window_bytes, wanted.size() - at);
    const bool last = at + count == wanted.size();
    if (!last && count < have.block_bytes) break;
    const auto found = search.next(at, std::span(wanted).subspan(at, count), last);
    EXPECT_TRUE(found.has_value());
    EXPECT_LE(found->at + found->length, count);
    EXPECT_GT(found->at + found->length, 0U) << "it goes on";
    sent += found->at;
    built.insert(built.end(), wanted.begin() + static_cast<std::ptrdiff_t>(at),
                 wanted.begin() + static_cast<std::ptrdiff_t>(at + found->at));
    EXPECT_LE(found->from + found->length, old.size());
    EXPECT_TRUE(base == Have::Base::kOld || found->length == 0 || found->from == built.size());
    built.insert(built.end(), old.begin() + static_cast<std::ptrdiff_t>(found->from),
                 old.begin() + static_cast<std::ptrdiff_t>(found->from + found->length));
    at += found->at + found->length;
  }
  EXPECT_EQ(built, wanted);
  return sent;
}

std::vector<std::byte> random_bytes(std::mt19937& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(CopyBlockSearch, FindsMovedBlocks) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto old = random_bytes(random, 200'000);
  const auto rebuilt = [&](const std::vector<std::byte>& wanted) {
    return rebuild(old, wanted, Have::Base::kOld, 65536);
  };
  EXPECT_EQ(rebuilt(old), 0U);
  EXPECT_EQ(rebuilt({}), 0U);
  auto wanted = old;
  wanted.insert(wanted.begin() + 50'001, std::byte{1});
  EXPECT_LE(rebuilt(wanted), 4097U) << "inserted";
  wanted.erase(wanted.begin() + 10, wanted.begin() + 1234);
  EXPECT_LE(rebuilt(wanted), 3 * 4096U) << "and taken out";
  std::rotate(wanted.begin(), wanted.begin() + 77'777, wanted.end());
  EXPECT_LE(rebuilt(wanted), 8 * 4096U) << "and moved";
  wanted = old;
  wanted[100'000] ^= std::byte{1};
  EXPECT_EQ(rebuilt(wanted), 4096U) << "changed in its place";
  EXPECT_EQ(rebuilt(random_bytes(random, 100'000)), 100'000U);
  wanted.assign(old.end() - 200'000 % 4096 - 4096, old.end());
  EXPECT_EQ(rebuilt(wanted), 0U) << "the end, with its short block";
}

TEST(CopyBlockSearch, ChangesAPartialFileInPlace) {
  std::mt19937 random(11);
  const auto old = random_bytes(random, 20'000);
  auto wanted = old;
  wanted.resize(50'000);
  wanted[5000] ^= std::byte{1};
  EXPECT_EQ(rebuild(old, wanted, Have::Base::kPartial, 65536), 4096U + 50'000 - 20'000);
  wanted.insert(wanted.begin(), std::byte{1});
  EXPECT_EQ(rebuild(old, wanted, Have::Base::kPartial, 65536), wanted.size());
}

/// For any edits and any window, the result is the wanted file.
TEST(CopyBlockSearch, AlwaysYieldsTheFile) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t bound) { return static_cast<std::ptrdiff_t>(random() % bound); };
  for (int round = 0; round < 30; ++round) {
    auto old = random_bytes(random, 1 + random() % 60'000);
    if (round % 5 == 0) std::fill(old.begin() + below(old.size()), old.end(), std::byte{});
    auto wanted = old;
    for (int edit = 0; edit < 5 && !wanted.empty(); ++edit) {
      const auto at = wanted.begin() + below(wanted.size());
      if (random() % 3 == 0)
        *at ^= std::byte{1};
      else if (random() % 2 == 0)
        wanted.erase(at, at + below(static_cast<std::size_t>(wanted.end() - at) + 1));
      else
        wanted.insert(at, static_cast<std::size_t>(random() % 9000), std::byte{5});
    }
    for (const auto base : {Have::Base::kOld, Have::Base::kPartial}) {
      (void)rebuild(old, wanted, base, 4096 + random() % 20'000);
    }
  }
}

// Paths ---------------------------------------------------------------------------------------------------------------

std::string remote(std::string_view word) {
  const auto parsed = parse_remote_path(word);
  if (!parsed) return "error: " + parsed.error().context;
  if (!*parsed) return "local";
  return (*parsed)->host.host + '|' + std::to_string((*parsed)->host.port.value_or(0)) + '|' + (*parsed)->path;
}

TEST(CopyRemotePath, IsAHostAndAPath) {
  EXPECT_EQ(remote("h:p"), "h|0|p");
  EXPECT_EQ(remote("h:"), "h|0|");
  EXPECT_EQ(remote("h:2020:p:q"), "h|2020|p:q");
  EXPECT_EQ(remote("h:2020"), "h|0|2020");
  EXPECT_EQ(remote("h:2020:"), "h|2020|");
  EXPECT_EQ(remote("[::1]:a/b"), "[::1]|0|a/b");
  EXPECT_EQ(remote("[::1]:7:/abs"), "[::1]|7|/abs");
  EXPECT_EQ(remote("a/b:c"), "local");
  EXPECT_EQ(remote("./h:p"), "local");
  EXPECT_EQ(remote("plain"), "local");
  EXPECT_EQ(remote("[x]"), "local");
  EXPECT_THAT(remote(":p"), HasSubstr("error: "));
  EXPECT_THAT(remote("h:70000:p"), HasSubstr("error: its port"));
}

struct CopyFolder : testing::Test {
  CopyFolder() {
    std::string pattern = (fs::temp_directory_path() / "copyXXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) top = pattern;
    folder.reset(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~CopyFolder() override { fs::remove_all(top); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(top / name) << text; }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(top / name).rdbuf();
    return text.str();
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(top)) found.push_back(entry.path().filename());
    return found;
  }

  fs::path top;
  UniqueFd folder;
};

using CopyPlace = CopyFolder;

TEST_F(CopyPlace, NothingLeadsOutOfARoot) {
  fs::create_directories(top / "root/in/deep");
  write("secret", "x");
  fs::create_symlink("../secret", top / "root/out");
  fs::create_symlink(top / "secret", top / "root/absolute");
  fs::create_symlink("in/deep", top / "root/inside");
  const auto place = Place::below(top / "root");
  ASSERT_TRUE(place.has_value()) << place.error().message();
  for (const char* path : {"out", "absolute", "..", "in/../../secret", "/", "/etc", "in/..", "inside/.."}) {
    EXPECT_EQ(place->open(path, O_RDONLY).code(), Errc::kInvalidArgument) << path;
    EXPECT_EQ(place->open(std::string(path) + "/x", O_RDONLY).code(), Errc::kInvalidArgument) << path;
  }
  EXPECT_EQ(place->find("out/x").code(), Errc::kInvalidArgument);
  EXPECT_EQ(place->open(std::string("a\0b", 3), O_RDONLY).code(), Errc::kInvalidArgument);
  EXPECT_EQ(place->open("none", O_RDONLY).code(), std::errc::no_such_file_or_directory);
  for (const char* path : {"", ".", "in", "in/deep/", "inside"}) {
    EXPECT_TRUE(place->open(path, O_RDONLY).has_value()) << path;
  }
  EXPECT_EQ(Place::below(top / "none").code(), std::errc::no_such_file_or_directory);
}

/// A file on which another program (Samba) has a lease cannot be opened at once. The copy reports that, and does not
/// retry forever.
TEST_F(CopyPlace, DoesNotRetryWithoutEnd) {
  write("leased", "x");
  const auto place = Place::below(top);
  ASSERT_TRUE(place.has_value());
  const auto before = std::signal(SIGIO, SIG_IGN);  // tells the holder to release the lease
  const UniqueFd holder(::open((top / "leased").c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(holder.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  EXPECT_EQ(place->open("leased", O_RDONLY | O_NONBLOCK).code(), std::errc::resource_unavailable_try_again);
  EXPECT_EQ(::fcntl(holder.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_TRUE(place->open("leased", O_RDONLY | O_NONBLOCK).has_value());
  (void)std::signal(SIGIO, before);
}

/// Like container runtimes that do not know a system call (EPERM), and old kernels (ENOSYS). For this thread only.
bool refuse_openat2(int error) {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

TEST_F(CopyPlace, IsRefusedIfTheKernelCannotKeepPathsBelow) {
  for (const int error : {EPERM, ENOSYS}) {
    bool refused = false;
    std::optional<Result<Place>> place;
    std::thread([&] {
      refused = refuse_openat2(error);
      place = Place::below(top);
    }).join();
    if (!refused) GTEST_SKIP() << "no seccomp here";
    EXPECT_THAT(place->status().message(), HasSubstr("openat2(2), which keeps paths below it, is refused"));
    EXPECT_EQ(place->code(), std::error_code(error, std::generic_category()));
  }
}

TEST_F(CopyPlace, APathIsAFolderAndAName) {
  const Place place = Place::everywhere();
  for (const auto& [path, name] : std::vector<std::pair<std::string, std::string>>{
           {"/a", "a"}, {top / "x", "x"}, {top.string() + "//", ""}, {top.string() + "/.", ""}, {"..", ""}, {"", ""}}) {
    const auto spot = place.find(path);
    ASSERT_TRUE(spot.has_value()) << path;
    EXPECT_EQ(spot->name, name) << path;
  }
  EXPECT_EQ(joined("a", "b"), "a/b");
  EXPECT_EQ(joined("a/", "b"), "a/b");
  EXPECT_EQ(joined("", "b"), "b");
  EXPECT_EQ(joined("a", ""), "a");
}

// Unfinished files
// -------------------------------------------------------------------------------------------------------

struct CopyNewFile : CopyFolder {
  [[nodiscard]] Result<NewFile> make(bool unnamed, const std::string& name) const {
    return unnamed ? NewFile::create_unnamed(folder.get(), name, 0644) : NewFile::create(folder.get(), name, 0644);
  }
};

TEST_F(CopyNewFile, HasItsNameWhenItIsWhole) {
  write("name", "old");
  auto file = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(::write(file->fd(), "new", 3), 3);
  EXPECT_EQ(read("name"), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("name", ".name.rdma_copy-partial"));
  EXPECT_TRUE(file->publish().ok());
  EXPECT_EQ(read("name"), "new");
  EXPECT_THAT(names(), ElementsAre("name"));
}

TEST_F(CopyNewFile, IsWrittenByOneAtATime) {
  auto file = NewFile::create(folder.get(), "name", 0644);
  EXPECT_EQ(NewFile::create(folder.get(), "name", 0644).code(), std::errc::text_file_busy);
  EXPECT_EQ(NewFile::reopen(folder.get(), "name").code(), std::errc::text_file_busy);
  ASSERT_EQ(::write(file->fd(), "half", 4), 4);
  *file = NewFile();
  auto again = NewFile::reopen(folder.get(), "name");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(::lseek(again->file.fd(), 0, SEEK_END), 4);
  again->file.discard();
  EXPECT_THAT(names(), ElementsAre());
  EXPECT_EQ(NewFile::reopen(folder.get(), "name").code(), std::errc::no_such_file_or_directory);
}

TEST_F(CopyNewFile, StartsEmptyOverAPartialFile) {
  write(".name.rdma_copy-partial", "left");
  auto file = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(::lseek(file->fd(), 0, SEEK_END), 0);
}

/// A copy that has lost the name must neither give another copy's unfinished file its name nor remove that file.
TEST_F(CopyNewFile, PublishesAndRemovesOnlyItself) {
  auto lost = NewFile::create(folder.get(), "name", 0644);
  auto lost_too = NewFile::create(folder.get(), "name2", 0644);
  fs::remove(top / ".name.rdma_copy-partial");
  fs::remove(top / ".name2.rdma_copy-partial");
  const auto other = NewFile::create(folder.get(), "name", 0644);
  const auto other_too = NewFile::create(folder.get(), "name2", 0644);
  ASSERT_TRUE(other.has_value() && other_too.has_value());
  EXPECT_THAT(lost->publish().message(), HasSubstr("another process has removed it"));
  lost_too->discard();
  EXPECT_THAT(names(), UnorderedElementsAre(".name.rdma_copy-partial", ".name2.rdma_copy-partial"));
}

TEST_F(CopyNewFile, LeavesLockedFilesToTheirWriters) {
  write(".name.rdma_copy-partial", "other's");
  fs::permissions(top / ".name.rdma_copy-partial", fs::perms::owner_read | fs::perms::owner_write);
  const UniqueFd other(::open((top / ".name.rdma_copy-partial").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_EQ(NewFile::create(folder.get(), "name", 0644).code(), std::errc::text_file_busy);
  EXPECT_TRUE(publish_link(folder.get(), "name", "target", nullptr).ok());
  EXPECT_EQ(fs::read_symlink(top / "name"), "target");
  EXPECT_EQ(read(".name.rdma_copy-partial"), "other's");
}

TEST_F(CopyNewFile, HasNoNameAtAllUntilItIsWhole) {
  write(".name.rdma_copy-partial", "left");
  auto file = NewFile::create_unnamed(folder.get(), "name", 0640);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(::write(file->fd(), "new", 3), 3);
  EXPECT_THAT(names(), ElementsAre());
  EXPECT_TRUE(file->publish().ok());
  EXPECT_EQ(read("name"), "new");
  EXPECT_THAT(names(), ElementsAre("name"));
  { const auto dropped = NewFile::create_unnamed(folder.get(), "other", 0640); }
  auto discarded = NewFile::create_unnamed(folder.get(), "name", 0640);
  discarded->discard();
  EXPECT_THAT(names(), ElementsAre("name"));
}

TEST_F(CopyNewFile, DoesNotSearchANewFolder) {
  write(".name.rdma_copy-partial", "left");
  auto file = NewFile::create_unnamed(folder.get(), "name", 0640, true);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(::write(file->fd(), "new", 3), 3);
  EXPECT_TRUE(file->publish().ok());
  EXPECT_EQ(read("name"), "new");
  EXPECT_EQ(read(".name.rdma_copy-partial"), "left");
}

TEST_F(CopyNewFile, WithoutANameReplacesTheFileOfThatName) {
  auto file = NewFile::create_unnamed(folder.get(), "name", 0640);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(::write(file->fd(), "new", 3), 3);
  write("name", "somebody else's, meanwhile");
  write(".name.rdma_copy-partial", "left, meanwhile");
  EXPECT_TRUE(file->publish().ok());
  EXPECT_EQ(read("name"), "new");
  EXPECT_THAT(names(), ElementsAre("name"));
}

TEST_F(CopyNewFile, WithoutANameLeavesPartialFilesToTheirWriters) {
  auto begun = NewFile::create_unnamed(folder.get(), "name", 0640);
  write("name", "old");
  const auto other = NewFile::create(folder.get(), "name", 0644);
  EXPECT_EQ(NewFile::create_unnamed(folder.get(), "name", 0640).code(), std::errc::text_file_busy);
  EXPECT_EQ(begun->publish().code(), std::errc::text_file_busy);
  begun->discard();
  EXPECT_EQ(read("name"), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("name", ".name.rdma_copy-partial"));
}

/// Behaves like create() if the file system does not support unnamed files, for example in /proc.
TEST_F(CopyNewFile, HasATemporaryNameIfTheFileSystemRequiresIt) {
  const UniqueFd proc(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::openat(proc.get(), ".", O_TMPFILE | O_RDWR, 0600), -1);
  EXPECT_EQ(NewFile::create_unnamed(proc.get(), "name", 0644).code(), NewFile::create(proc.get(), "name", 0644).code());
}

/// Many threads write the same name. A thread that gets the file publishes all of its data at once; all others get
/// "busy".
TEST_F(CopyNewFile, IsCompleteWithSeveralWriters) {
  constexpr int kWriters = 8;
  std::atomic<int> published{0};
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back([&, unnamed = writer % 2 != 0] {
        for (int turn = 0; turn < 1000; ++turn) {
          auto file = make(unnamed, "name");
          if (!file) {
            EXPECT_EQ(file.code(), std::errc::text_file_busy) << file.error().message();
            continue;
          }
          EXPECT_EQ(::write(file->fd(), "whole", 5), 5);
          const Status named = file->publish();
          if (named.ok()) {
            ++published;
          } else if (!unnamed || named.code() != std::errc::text_file_busy) {
            ADD_FAILURE() << named.message();
          }
          EXPECT_EQ(read("name"), "whole");
        }
      });
    }
  }
  EXPECT_GT(published, 0);
  EXPECT_THAT(names(), ElementsAre("name"));
}

/// If a copy finds a partial file without a lock, it takes the file for an abandoned one and removes it.
TEST_F(CopyNewFile, IsLockedBeforeOthersCanFindIt) {
  int unlocked = 0;
  std::jthread other([&](const std::stop_token& over) {
    while (!over.stop_requested()) {
      const UniqueFd found(::openat(folder.get(), ".name.rdma_copy-partial", O_RDWR | O_CLOEXEC));
      if (!found || ::flock(found.get(), LOCK_EX | LOCK_NB) != 0) continue;
      struct stat is = {};
      if (::fstat(found.get(), &is) == 0 && is.st_nlink > 0) ++unlocked;
    }
  });
  for (int turn = 0; turn < 3000; ++turn) {
    auto file = NewFile::create(folder.get(), "name", 0644);
    if (file) file->discard();
    EXPECT_TRUE(file) << file.status().message();
  }
  other.request_stop();
  other.join();
  EXPECT_EQ(unlocked, 0);
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(CopyNewFile, DoesNotReplaceSomethingThatIsNoFile) {
  ASSERT_EQ(::mkfifoat(folder.get(), "fifo", 0600), 0);
  fs::create_directory(top / "directory");
  fs::create_symlink("nowhere", top / "link");
  fs::create_symlink("nowhere", top / "other_link");
  for (const auto& [unnamed, link] : {std::pair(false, "link"), {true, "other_link"}}) {
    for (const char* name : {"fifo", "directory"}) {
      auto file = make(unnamed, name);
      ASSERT_TRUE(file.has_value());
      EXPECT_FALSE(file->publish().ok()) << name;
      file->discard();
    }
    auto file = make(unnamed, link);
    EXPECT_TRUE(file->publish().ok());
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(top / link)));
  }
  EXPECT_THAT(names(), UnorderedElementsAre("fifo", "directory", "link", "other_link"));
}

TEST_F(CopyNewFile, TakesLongNames) {
  const std::string name(255, 'n');
  const auto shorter = NewFile::create(folder.get(), name.substr(1), 0644);
  auto file = NewFile::create(folder.get(), name, 0644);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(names().size(), 2U);
  for (const std::string& partial : names()) EXPECT_TRUE(is_partial_name(partial)) << partial;
  EXPECT_TRUE(file->publish().ok());
  EXPECT_THAT(names(), testing::Contains(name));
  EXPECT_EQ(NewFile::create(folder.get(), name + 'n', 0644).code(), std::errc::filename_too_long);
}

// Rates ---------------------------------------------------------------------------------------------------------------

TEST(CopyRateLimit, ReturnsTheTimeOfTheNextBlock) {
  using std::chrono::milliseconds;
  const RateLimit::Clock::time_point start{std::chrono::hours(1)};
  RateLimit limit(1'000'000);
  EXPECT_EQ(limit.most(), 100'000U);
  // A tenth of a second may be used in advance.
  EXPECT_EQ(limit.take(100'000, start), start);
  EXPECT_EQ(limit.take(100'000, start), start + milliseconds(100));
  EXPECT_EQ(limit.take(50'000, start + milliseconds(100)), start + milliseconds(150));
  EXPECT_EQ(limit.take(200'000, start + milliseconds(10'000)), start + milliseconds(10'100)) << "nothing is saved up";
  EXPECT_EQ(RateLimit(5).most(), 4096U);
}

TEST(CopyRateLimit, MayBeUnlimited) {
  RateLimit none(0);
  EXPECT_FALSE(none.bounded());
  EXPECT_EQ(none.take(1 << 30, RateLimit::Clock::time_point{}), RateLimit::Clock::time_point{});
}

// Jobs ----------------------------------------------------------------------------------------------------------------

TEST(CopyCrew, DoesJobsOfOneNameInOrder) {
  constexpr std::size_t kNames = 10;
  constexpr std::size_t kJobs = 300;  // more than may wait
  std::vector<std::vector<std::size_t>> done(kNames);
  Crew crew(3);
  for (std::size_t job = 0; job < kJobs; ++job) {
    for (std::size_t name = 0; name < kNames; ++name) {
      crew.add(std::to_string(name), [&done, name, job] { done[name].push_back(job); });
    }
  }
  crew.drain();
  for (const auto& jobs : done) {
    EXPECT_EQ(jobs.size(), kJobs);
    EXPECT_TRUE(std::ranges::is_sorted(jobs));
  }
  crew.drain();
}

TEST(CopyCrew, ReleasesCompletedJobs) {
  const auto held = std::make_shared<int>(1);
  Crew crew(2);
  for (const char* name : {"a", "b", "c"}) crew.add(name, [held] {});
  crew.drain();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(CopyCrew, EndsAfterTheCurrentJob) {
  std::atomic<bool> over{false};
  std::latch begun(1);
  {
    Crew crew(1);
    crew.add("x", [&] {
      begun.count_down();
      std::this_thread::yield();
      over = true;
    });
    begun.wait();
  }
  EXPECT_TRUE(over);
  Crew never(4);
  never.drain();
}

// Reports -------------------------------------------------------------------------------------------------------------

TEST(CopyReport, PrintsNamesFailuresAndTheResult) {
  std::ostringstream out;
  std::ostringstream err;
  {
    Report report({.out = out, .err = err, .names = true, .json = true});
    report.events().entry("a\nb", 5);
    report.events().failed("\"c\": is a FIFO");
    EXPECT_TRUE(report.end({.files = 1, .bytes = 5, .bytes_sent = 5, .failures = 1}, {}).ok());
  }
  EXPECT_EQ(err.str(), "rdmacomm: \"c\": is a FIFO\n");
  const std::string text = out.str();
  EXPECT_TRUE(text.starts_with("a\\nb\n{")) << text;
  const auto result = nlohmann::json::parse(text.substr(text.find('{')));
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["files"], 1);
  EXPECT_THAT(result["failures"].get<std::vector<std::string>>(), ElementsAre("\"c\": is a FIFO"));
}

TEST(CopyReport, KeepsTheFirstFailures) {
  std::ostringstream out;
  std::ostringstream err;
  {
    Report report({.out = out, .err = err, .json = true});
    for (int i = 0; i < 10'007; ++i) report.events().failed(std::to_string(i));
    EXPECT_TRUE(report.end({.failures = 10'007}, {}).ok());
  }
  const auto result = nlohmann::json::parse(out.str());
  EXPECT_EQ(result["failures"].size(), 10'000U);
  EXPECT_EQ(result["failures"].back(), "9999");
  EXPECT_EQ(result["failures_left_out"], 7);
}

TEST(CopyReport, PrintsASummaryOnATerminal) {
  std::ostringstream out;
  std::ostringstream err;
  {
    Report report({.out = out, .err = err, .progress = true});
    EXPECT_TRUE(report.end({.files = 3, .bytes = 45'100'000}, {}).ok());
  }
  EXPECT_THAT(err.str(), HasSubstr(": 3 files, 45.10 MB (0 B sent), "));
  EXPECT_EQ(out.str(), "");
}

using CopyDirectory = CopyFolder;

TEST_F(CopyDirectory, DistinguishesItsEndFromAnError) {
  write("a", "");
  fs::create_directory(top / "b");
  auto directory = Directory::of(UniqueFd(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  ASSERT_TRUE(directory.has_value()) << directory.error().message();
  std::vector<std::string> found;
  for (auto entry = directory->next(); entry && *entry != nullptr; entry = directory->next()) {
    found.emplace_back((*entry)->d_name);
  }
  EXPECT_THAT(found, UnorderedElementsAre("a", "b"));
  // Its descriptor no longer refers to a directory.
  const UniqueFd file(::open((top / "a").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_GE(::dup2(file.get(), directory->fd()), 0);
  EXPECT_EQ(directory->next().code(), std::errc::not_a_directory);
  EXPECT_EQ(Directory::of(UniqueFd(::dup(file.get()))).code(), std::errc::not_a_directory);
}

using CopyTotalSize = CopyFolder;

TEST_F(CopyTotalSize, IsTheSizeOfAllFiles) {
  fs::create_directories(top / "tree/deeper");
  write("tree/deeper/a", std::string(100, 'x'));
  write("tree/b", std::string(20, 'x'));
  write("c", "xxx");
  fs::create_symlink("b", top / "tree/link");
  std::atomic<bool> over{false};
  const std::vector<std::string> paths{top / "tree", top / "c", top / "none"};
  EXPECT_EQ(total_size(paths, true, over), 123U);
  EXPECT_EQ(total_size(paths, false, over), 3U);
  over = true;
  EXPECT_EQ(total_size(paths, true, over), std::nullopt);
}

TEST(CopyReport, IsQuietByDefault) {
  std::ostringstream out;
  Report report({.out = out, .err = out});
  EXPECT_FALSE(report.events().entry);
  EXPECT_FALSE(report.events().moved);
  EXPECT_TRUE(report.end({.files = 1}, {}).ok());
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace rdmacomm::copying
