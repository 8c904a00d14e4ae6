// Partial files on file systems whose flock(2) does not lock, or that do not support a rename that fails if the new
// name exists.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "rdma_copy/file_writer.h"
#include "rdma_copy/new_file.h"

namespace {

std::atomic<int> flock_fails_with{0};        // an errno; 0: works normally
std::atomic<bool> flock_wants_write{false};  // like NFS
std::atomic<bool> rename_replaces{false};    // RENAME_NOREPLACE is not supported, as on NFS
std::atomic<bool> has_no_links{false};       // like FAT

}  // namespace

/// Replace the C library's functions in this program.
extern "C" int flock(int fd, int operation) noexcept {
  const bool read_only = (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
  const int why = flock_wants_write && read_only && (operation & LOCK_EX) != 0 ? EBADF : flock_fails_with.load();
  if (why == 0) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = why;
  return -1;
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (!rename_replaces || flags == 0)
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EINVAL;
  return -1;
}
extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (!has_no_links) return static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  errno = EPERM;
  return -1;
}

namespace rdmacomm::copying {
namespace {

namespace fs = std::filesystem;

struct CopyLocks : testing::Test {
  CopyLocks() {
    std::string pattern = (fs::temp_directory_path() / "copyXXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) top = pattern;
    folder.reset(::open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~CopyLocks() override {
    flock_fails_with = 0;
    flock_wants_write = false;
    rename_replaces = false;
    has_no_links = false;
    fs::remove_all(top);
  }
  /// Names in the directory.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(top)) found.push_back(entry.path().filename());
    return found;
  }
  void leave_partial() const { std::ofstream(top / ".name.rdma_copy-partial") << "left"; }

  fs::path top;
  UniqueFd folder;
};

TEST_F(CopyLocks, AreOptional) {
  for (const int why : {ENOSYS, ENOLCK, EOPNOTSUPP, EPERM, EIO}) {
    flock_fails_with = why;
    for (const bool unnamed : {false, true}) {
      fs::remove(top / "name");
      for (const char* turn : {"a new one", "over an old one", "over an old one and what was left"}) {
        if (std::string(turn).ends_with("left")) leave_partial();
        auto file =
            unnamed ? NewFile::create_unnamed(folder.get(), "name", 0644) : NewFile::create(folder.get(), "name", 0644);
        ASSERT_TRUE(file.has_value()) << why << ", " << turn << ": " << file.error().message();
        ASSERT_TRUE(file->publish().ok()) << why << ", " << turn;
        EXPECT_EQ(names(), std::vector<std::string>{"name"}) << why << ", " << turn;
      }
    }
    leave_partial();
    const auto again = NewFile::reopen(folder.get(), "name");
    ASSERT_TRUE(again.has_value()) << why;
    EXPECT_FALSE(again->file) << "somebody may be writing it";
    EXPECT_TRUE(again->base);
    fs::remove(top / ".name.rdma_copy-partial");
  }
}

/// Without locks, a copy that resumes must not touch a file that another copy is writing, because that file may still
/// get its final name.
TEST_F(CopyLocks, AreOptionalForResuming) {
  const std::string data(100'000, 'x');
  for (const bool all : {false, true}) {
    flock_fails_with = ENOSYS;
    auto other = NewFile::create(folder.get(), "name", 0644);
    ASSERT_TRUE(other.has_value());
    const std::size_t left = all ? data.size() : 65'536;
    ASSERT_EQ(::pwrite(other->fd(), data.data(), left, 0), static_cast<ssize_t>(left));

    programs::ChecksumQueue queue;
    programs::Checksum checksum(true);
    checksum.update(std::as_bytes(std::span(data)));
    FileWriter writer({.folder = folder.get(),
                       .entry = {.id = 1, .mode = 0644, .size = data.size(), .asks = true, .name = "name"},
                       .resume = true},
                      queue);
    ASSERT_TRUE(writer.begin().ok());
    ASSERT_TRUE(writer.same({.offset = 0, .length = left, .from = 0}).ok());
    if (!all) {
      ASSERT_TRUE(writer.write(left, std::as_bytes(std::span(data)).subspan(left), nullptr).ok());
    }
    const auto state = all ? FileEnd::State::kUnchanged : FileEnd::State::kWhole;
    const Status ended = writer.end({.id = 1, .state = state, .checksum = checksum.value()});
    ASSERT_TRUE(ended.ok()) << ended.message();

    ASSERT_EQ(::pwrite(other->fd(), "late", 4, 0), 4);
    EXPECT_FALSE(other->publish().ok());
    std::string there(data.size() + 1, '\0');
    std::ifstream(top / "name").read(there.data(), static_cast<std::streamsize>(there.size()));
    EXPECT_EQ(there, data + '\0');
    fs::remove(top / "name");
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(CopyLocks, AreHeldByOneAtATime) {
  const auto file = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(file.has_value());
  flock_fails_with = EWOULDBLOCK;
  EXPECT_EQ(NewFile::create(folder.get(), "name", 0644).code(), std::errc::text_file_busy);
  EXPECT_EQ(NewFile::reopen(folder.get(), "name").code(), std::errc::text_file_busy);
}

/// A user with write access to the directory could block a name for all others with a locked file of that name.
TEST_F(CopyLocks, OfAnotherUsersFileBlockNoCopy) {
  if (::geteuid() != 0) GTEST_SKIP() << "wants two users";
  constexpr uid_t kNobody = 65534;
  const std::string partial = top / ".name.rdma_copy-partial";
  leave_partial();
  ASSERT_EQ(::chown(partial.c_str(), kNobody, kNobody), 0);
  const UniqueFd held(::open(partial.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_EQ(NewFile::reopen(folder.get(), "name").code(), std::errc::no_such_file_or_directory);
  for (const bool unnamed : {false, true, true}) {
    auto file =
        unnamed ? NewFile::create_unnamed(folder.get(), "name", 0644) : NewFile::create(folder.get(), "name", 0644);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    const Status published = file->publish();
    ASSERT_TRUE(published.ok()) << published.message();
    EXPECT_EQ(names().size(), 2U) << "it, and the other user's";
  }
  auto given_up = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(given_up.has_value());
  given_up->discard();
  EXPECT_EQ(names().size(), 2U);
  std::string left;
  std::ifstream(partial) >> left;
  EXPECT_EQ(left, "left");
}

TEST_F(CopyLocks, OfAnOwnFileCannotBeTakenByOtherUsers) {
  const std::string partial = top / ".name.rdma_copy-partial";
  const auto file = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(file.has_value());
  struct stat is = {};
  ASSERT_EQ(::stat(partial.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0600U) << "who may open it may lock it";
  EXPECT_EQ(file->made_mode(), 0644U);
  EXPECT_EQ(NewFile::create(folder.get(), "name", 0644).code(), std::errc::text_file_busy) << "it is another copy's";
}

/// Like the files of earlier versions.
TEST_F(CopyLocks, OfAFileThatOthersMayOpenBlockNoCopy) {
  leave_partial();
  const std::string partial = top / ".name.rdma_copy-partial";
  ASSERT_EQ(::chmod(partial.c_str(), 0644), 0);
  const UniqueFd held(::open(partial.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_EQ(NewFile::reopen(folder.get(), "name").code(), std::errc::no_such_file_or_directory);
  for (const bool unnamed : {false, true}) {
    auto file =
        unnamed ? NewFile::create_unnamed(folder.get(), "name", 0644) : NewFile::create(folder.get(), "name", 0644);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    EXPECT_TRUE(file->publish().ok());
    EXPECT_EQ(names().size(), 2U) << "it, and what is locked";
  }
}

TEST_F(CopyLocks, AreTakenOfWritableFiles) {
  flock_wants_write = true;
  for (const bool unnamed : {false, true}) {
    leave_partial();
    auto file =
        unnamed ? NewFile::create_unnamed(folder.get(), "name", 0644) : NewFile::create(folder.get(), "name", 0644);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    const auto other = NewFile::create(folder.get(), "name", 0644);
    EXPECT_EQ(other.has_value(), unnamed) << "what has a name is locked";
    file->discard();
    fs::remove(top / ".name.rdma_copy-partial");
  }
}

TEST_F(CopyLocks, AreOptionalForRemovingReadOnlyFiles) {
  flock_wants_write = true;
  leave_partial();
  fs::permissions(top / ".name.rdma_copy-partial", fs::perms::owner_read);
  auto file = NewFile::create(folder.get(), "name", 0644);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_TRUE(file->publish().ok());
}

/// Without that kind of rename the partial file gets its name by a link. Without links, too, it has a name of its own
/// from the start.
TEST_F(CopyLocks, AreTakenBeforeTheFileHasItsNameOnAllFileSystems) {
  rename_replaces = true;
  for (const bool links : {true, false}) {
    has_no_links = !links;
    leave_partial();
    auto file = NewFile::create(folder.get(), "name", 0644);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    EXPECT_EQ(::write(file->fd(), "new", 3), 3);
    EXPECT_EQ(NewFile::create(folder.get(), "name", 0644).has_value(), !links) << "another copy finds it by its name";
    EXPECT_TRUE(file->publish().ok());
    std::string text;
    std::getline(std::ifstream(top / "name"), text);
    EXPECT_EQ(text, "new");
    for (const std::string& each : names()) {
      if (each != "name") fs::remove(top / each);
    }
  }
}

}  // namespace
}  // namespace rdmacomm::copying
