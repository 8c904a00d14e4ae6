#include "softdev/preload/statistics.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "softdev/common/at_exit.h"
#include "softdev/common/path_counts.h"

namespace rdmacomm::softdev::preload {
namespace {

constexpr std::array<const char*, kReaches> kReasons = {
    "loads and stores",
    "system calls, because its own memory is off (softdev-run --own-memory)",
    "system calls, because it is less than a page, or was allocated too early or in another way",
    "system calls, because it is a mapping of a file",
    "system calls, because it is shared memory of the program",
    "system calls, because it is in several mappings",
};

std::string describe_requests() {
  const PathCounts& counts = path_counts();
  std::array<char, 256> line{};
  std::snprintf(
      line.data(), line.size(),
      "  slower parts of requests: system calls %llu, serving thread of the peer %llu; requests over TCP: %llu\n",
      static_cast<unsigned long long>(counts.system_calls.load()),
      static_cast<unsigned long long>(counts.served.load()), static_cast<unsigned long long>(counts.tcp.load()));
  return line.data();
}

void print() {
  std::string text = std::string("softdev-run: ") + program_invocation_short_name + ", process " +
                     std::to_string(getpid()) + ":\n" + describe_registrations(reach_counts()) + describe_requests();
  const char* at = text.data();
  std::size_t left = text.size();
  while (left != 0) {
    const ssize_t written = ::write(STDERR_FILENO, at, left);
    if (written <= 0) return;
    at += written;
    left -= static_cast<std::size_t>(written);
  }
}

}  // namespace

std::string describe_registrations(const ReachCounts& counts) {
  std::string text;
  for (std::size_t i = 0; i < kReaches; ++i) {
    const std::uint64_t registrations = counts.registrations[i].load();
    if (registrations == 0) continue;
    text += "  " + std::to_string(registrations) + (registrations == 1 ? " registration, " : " registrations, ") +
            std::to_string(counts.bytes[i].load()) + " bytes: peers use " + kReasons[i] + "\n";
  }
  return text;
}

void print_statistics_at_exit() {
  const char* const wanted = ::secure_getenv("RDMACOMM_SOFT0_STATS");
  if (wanted == nullptr || *wanted == '\0') return;
  // A child of fork() does not inherit the task.
  static std::atomic<pid_t> owner{0};
  if (owner.exchange(getpid()) != getpid()) new AtExit(print);  // lives until the process ends
}

}  // namespace rdmacomm::softdev::preload
