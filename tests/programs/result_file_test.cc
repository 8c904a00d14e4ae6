#include "support/result_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace rdmacomm::programs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class ResultFile : public testing::Test {
 protected:
  ResultFile() {
    std::string pattern = testing::TempDir() + "resultsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    write("secret", "mine");
  }
  ~ResultFile() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const { std::ofstream(path(name)) << content; }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(path(name)).rdbuf();
    return content.str();
  }
  [[nodiscard]] mode_t mode(const std::string& name) const {
    struct stat is = {};
    return ::stat(path(name).c_str(), &is) == 0 ? is.st_mode & 07777 : 0;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  void plant_link(const std::string& name, uid_t owner) const {
    ASSERT_EQ(::symlink(path("secret").c_str(), path(name).c_str()), 0);
    ASSERT_EQ(::lchown(path(name).c_str(), owner, owner), 0);
  }

  std::string folder_;
};

TEST_F(ResultFile, HasThePermissionsOfTheUmask) {
  const mode_t before = ::umask(027);
  EXPECT_TRUE(replace_file(path("new"), "result").ok());
  ::umask(before);
  EXPECT_EQ(read("new"), "result");
  EXPECT_EQ(mode("new"), 0640U);
  EXPECT_EQ(files(), 2U);
}

TEST_F(ResultFile, KeepsItsPermissionsWhenItIsReplaced) {
  write("old", "old");
  ASSERT_EQ(::chmod(path("old").c_str(), 0604), 0);
  EXPECT_TRUE(replace_file(path("old"), "new").ok());
  EXPECT_EQ(read("old"), "new");
  EXPECT_EQ(mode("old"), 0604U);
}

TEST_F(ResultFile, FollowsALinkOfTheUser) {
  plant_link("link", ::geteuid());
  EXPECT_TRUE(replace_file(path("link"), "result").ok());
  EXPECT_EQ(read("secret"), "result");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

// The name of the temporary file cannot be predicted from the process id.
TEST_F(ResultFile, DoesNotUsePreparedTemporaryNames) {
  for (pid_t pid = ::getpid(); pid < ::getpid() + 50; ++pid) {
    plant_link("result.new." + std::to_string(pid), ::geteuid());
  }
  EXPECT_TRUE(replace_file(path("result"), "result").ok());
  EXPECT_EQ(read("secret"), "mine");
  EXPECT_EQ(read("result"), "result");
  EXPECT_FALSE(fs::is_symlink(path("result")));
}

TEST_F(ResultFile, DoesNotFollowALinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "wants two users";
  plant_link("result", kNobody);
  for (const Status& outcome : {check_replaceable(path("result")), replace_file(path("result"), "result")}) {
    EXPECT_EQ(outcome.code(), std::errc::operation_not_permitted);
    EXPECT_THAT(outcome.message(), HasSubstr(path("result") + ": it is a symbolic link that belongs to another user"));
  }
  EXPECT_EQ(read("secret"), "mine");
}

// If another user's link has the name at any time, it is never followed.
TEST_F(ResultFile, DoesNotFollowAnAlternatingLinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "wants two users";
  write("result", "old");
  std::atomic<bool> over{false};
  std::thread swapping([&] {
    while (!over) {
      plant_link("trap", kNobody);
      ::rename(path("trap").c_str(), path("result").c_str());
      write("file", "old");
      ::rename(path("file").c_str(), path("result").c_str());
    }
  });
  int written = 0;
  for (int i = 0; i < 3000 && read("secret") == "mine"; ++i)
    written += replace_file(path("result"), "new").ok() ? 1 : 0;
  over = true;
  swapping.join();
  EXPECT_EQ(read("secret"), "mine") << "after " << written << " results";
}

TEST_F(ResultFile, FollowsRelativeLinksFromTheirFolder) {
  fs::create_directory(path("below"));
  fs::create_symlink("../secret", path("below/link"));
  fs::create_symlink("below/link", path("first"));
  EXPECT_TRUE(check_replaceable(path("first")).ok());
  EXPECT_TRUE(replace_file(path("first"), "result").ok());
  EXPECT_EQ(read("secret"), "result");
  EXPECT_TRUE(fs::is_symlink(path("first")) && fs::is_symlink(path("below/link")));
  fs::create_symlink("loop", path("loop"));
  EXPECT_EQ(replace_file(path("loop"), "result").code(), std::errc::too_many_symbolic_link_levels);
}

TEST_F(ResultFile, IsWrittenToAnOpenDescriptor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string name = "/proc/self/fd/" + std::to_string(ends[1]);
  EXPECT_TRUE(check_replaceable(name).ok());
  EXPECT_TRUE(replace_file(name, "result").ok());
  std::array<char, 16> got{};
  EXPECT_EQ(::read(ends[0], got.data(), got.size()), 6);
  EXPECT_STREQ(got.data(), "result");
  for (const int end : ends) ::close(end);
}

// As with `--json=/dev/stdout >>log`: neither the log's contents nor the file itself is lost.
TEST_F(ResultFile, IsAppendedToAnOpenFile) {
  for (const int append : {O_APPEND, 0}) {
    write("log", append != 0 ? "former\n" : "");
    const int log = ::open(path("log").c_str(), O_WRONLY | append);
    ASSERT_GE(log, 0);
    ASSERT_EQ(::write(log, "text\n", 5), 5);
    const std::string name = "/proc/self/fd/" + std::to_string(log);
    fs::create_symlink(name, path("link"));
    for (const std::string& to : {name, "/dev/fd/" + std::to_string(log), path("link")}) {
      EXPECT_TRUE(check_replaceable(to).ok()) << to;
      const Status written = replace_file(to, "result\n");
      EXPECT_TRUE(written.ok()) << written.message();
    }
    ASSERT_EQ(::write(log, "end\n", 4), 4);
    EXPECT_EQ(read("log"), (append != 0 ? "former\n" : "") + std::string("text\nresult\nresult\nresult\nend\n"));
    EXPECT_TRUE(fs::is_symlink(path("link")));
    ::close(log);
    fs::remove(path("link"));
  }
  EXPECT_EQ(files(), 2U);
}

TEST_F(ResultFile, IsAppendedToAFileThatOnlyAnotherProcessHasOpen) {
  write("log", "former\n");
  const int log = ::open(path("log").c_str(), O_WRONLY);
  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  ::close(log);
  const Status written = replace_file("/proc/" + std::to_string(other) + "/fd/" + std::to_string(log), "result\n");
  EXPECT_TRUE(written.ok()) << written.message();
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(read("log"), "former\nresult\n");
}

TEST_F(ResultFile, IsNotWrittenToAnUnrelatedDescriptor) {
  write("log", "former");
  const int read_only = ::open(path("log").c_str(), O_RDONLY);
  const int programs_own = ::open(path("log").c_str(), O_WRONLY | O_CLOEXEC);
  const int closed = 1 << 20;
  for (const int each : {read_only, programs_own, closed}) {
    for (const char* folder : {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"}) {
      const std::string name = folder + std::to_string(each);
      EXPECT_EQ(check_replaceable(name).code(), std::errc::bad_file_descriptor) << name;
      EXPECT_EQ(replace_file(name, "result").code(), std::errc::bad_file_descriptor) << name;
    }
  }
  EXPECT_EQ(read("log"), "former");
  for (const int each : {read_only, programs_own}) ::close(each);
}

TEST_F(ResultFile, WaitsForANonBlockingPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const std::string text(1 << 20, 'x');
  std::size_t got = 0;
  std::thread reader([&] {
    std::array<char, 65536> part{};
    while (got < text.size()) {
      const ssize_t count = ::read(ends[0], part.data(), part.size());
      if (count > 0) got += static_cast<std::size_t>(count);
      if (count < 0) std::this_thread::yield();
    }
  });
  const Status written = replace_file("/dev/fd/" + std::to_string(ends[1]), text);
  EXPECT_TRUE(written.ok()) << written.message();
  reader.join();
  for (const int end : ends) ::close(end);
}

// Opening it would wait for a reader, and that reader would get the result.
TEST_F(ResultFile, DoesNotWriteToAPipeOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "wants two users";
  ASSERT_EQ(::mkfifo(path("result").c_str(), 0666), 0);
  ASSERT_EQ(::lchown(path("result").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(check_replaceable(path("result")).code(), std::errc::operation_not_permitted);
  EXPECT_EQ(replace_file(path("result"), "result").code(), std::errc::operation_not_permitted);
}

TEST_F(ResultFile, DoesNotCopyThePermissionsOfAnotherUsersFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "wants two users";
  write("result", "planted");
  ASSERT_EQ(::chmod(path("result").c_str(), 0666), 0);
  ASSERT_EQ(::lchown(path("result").c_str(), kNobody, kNobody), 0);
  const mode_t before = ::umask(022);
  EXPECT_TRUE(replace_file(path("result"), "result").ok());
  ::umask(before);
  EXPECT_EQ(mode("result"), 0644U);
}

TEST_F(ResultFile, AFailedWriteNamesTheReasonAndLeavesNothing) {
  EXPECT_EQ(replace_file("/dev/full", "result").code(), std::errc::no_space_on_device);
  EXPECT_EQ(replace_file(folder_, "result").code(), std::errc::is_a_directory);
  EXPECT_EQ(replace_file(path("none/result"), "result").code(), std::errc::no_such_file_or_directory);
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace rdmacomm::programs
