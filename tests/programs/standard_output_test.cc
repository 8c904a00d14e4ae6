// std::cout of the programs: several threads at a time, and errors.
#include "support/standard_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "rdmacomm/base/unique_fd.h"

namespace rdmacomm::programs {
namespace {

/// Standard output goes to `file` while it lives.
class Redirected {
 public:
  explicit Redirected(int file) : kept_(::dup(STDOUT_FILENO)) {
    EXPECT_EQ(::dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    set_up_standard_output();
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() {
    std::cout.clear();
    EXPECT_EQ(::dup2(kept_.get(), STDOUT_FILENO), STDOUT_FILENO);
    set_up_standard_output();
  }

 private:
  const UniqueFd kept_;
};

std::string contents(const UniqueFd& file) {
  std::string text(1 << 20, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file.get(), text.data(), text.size(), 0))));
  return text;
}

TEST(StandardOutput, SeveralThreadsLoseNothingAndRepeatNothing) {
  constexpr int kThreads = 4;
  constexpr int kLines = 20000;
  const UniqueFd file(::memfd_create("output", MFD_CLOEXEC));
  {
    const Redirected redirected(file.get());
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
      threads.emplace_back([number] {
        for (int line = 0; line < kLines; ++line) {
          std::cout << std::to_string(number) + "\n";
          if (line % 3 == 0) std::cout.flush();  // as a line to std::cerr does
        }
      });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_TRUE(flush_standard_output().ok());
  }
  std::vector<int> lines(kThreads, 0);
  std::istringstream in(contents(file));
  for (std::string line; std::getline(in, line);) {
    ASSERT_TRUE(line.size() == 1 && line[0] >= '0' && line[0] < '0' + kThreads) << line;
    ++lines[static_cast<std::size_t>(line[0] - '0')];
  }
  EXPECT_EQ(lines, std::vector<int>(kThreads, kLines));
}

TEST(StandardOutput, LongTextAndSingleCharactersKeepTheirOrder) {
  const UniqueFd file(::memfd_create("output", MFD_CLOEXEC));
  std::string expected;
  {
    const Redirected redirected(file.get());
    for (const std::size_t size : {1U, 16383U, 16384U, 16385U, 100'000U}) {
      const std::string text(size, 'x');
      std::cout << '<' << text << '>';
      expected += '<' + text + '>';
    }
    EXPECT_TRUE(flush_standard_output().ok());
  }
  const std::string text = contents(file);
  EXPECT_TRUE(text == expected) << text.size() << " bytes, expected " << expected.size();
}

TEST(StandardOutput, KeepsTheFirstErrorOfTheSystem) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Redirected redirected(full.get());
  std::cout << "lost" << std::endl;
  std::cout.clear();
  std::cout << "lost, too" << std::endl;
  const Status flushed = flush_standard_output();
  EXPECT_EQ(flushed.code(), std::errc::no_space_on_device);
}

}  // namespace
}  // namespace rdmacomm::programs
