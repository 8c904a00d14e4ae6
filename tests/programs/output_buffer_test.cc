// The buffer behind std::cout in the programs: used by several threads at the same time, and errors.
#include "support/output_buffer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace rdmacomm::programs {
namespace {

class OutputBufferTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string written() const {
    std::string text(1 << 20, ' ');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file_.get(), text.data(), text.size(), 0))));
    return text;
  }

  const UniqueFd file_{::memfd_create("output", MFD_CLOEXEC)};
  OutputBuffer buffer_{file_.get()};
  std::ostream out_{&buffer_};
};

TEST_F(OutputBufferTest, SeveralThreadsLoseNothingAndRepeatNothing) {
  constexpr int kThreads = 4;
  constexpr int kLines = 20'000;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([this, line = std::to_string(number) + "\n"] {
      for (int i = 0; i < kLines; ++i) {
        buffer_.sputn(line.data(), 2);
        if (i % 3 == 0) buffer_.pubsync();  // like a line to std::cerr, which flushes std::cout
      }
    });
  }
  for (std::thread& each : threads) each.join();
  out_.flush();
  std::vector<int> lines(kThreads, 0);
  std::istringstream in(written());
  for (std::string line; std::getline(in, line);) {
    ASSERT_TRUE(line.size() == 1 && line[0] >= '0' && line[0] < '0' + kThreads) << line;
    ++lines[static_cast<std::size_t>(line[0] - '0')];
  }
  EXPECT_EQ(lines, std::vector<int>(kThreads, kLines));
}

TEST_F(OutputBufferTest, LongTextAndSingleCharactersKeepTheirOrder) {
  std::string expected;
  for (const std::size_t size : {1U, 16383U, 16384U, 16385U, 100'000U}) {
    const std::string text(size, 'x');
    out_ << '<' << text << '>';
    expected += '<' + text + '>';
  }
  EXPECT_LT(written().size(), expected.size()) << "the end is written when the stream is flushed";
  out_.flush();
  EXPECT_TRUE(written() == expected) << written().size() << " bytes, expected " << expected.size();
}

TEST(OutputBuffer, KeepsTheFirstErrorOfTheSystem) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  OutputBuffer buffer(full.get());
  std::ostream out(&buffer);
  out << "lost" << std::flush;
  EXPECT_FALSE(out);
  out.clear();
  out << "lost, too" << std::flush;
  EXPECT_FALSE(out);
  EXPECT_EQ(buffer.failed(), std::errc::no_space_on_device);
}

}  // namespace
}  // namespace rdmacomm::programs
