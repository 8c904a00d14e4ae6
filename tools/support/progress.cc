#include "support/progress.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "support/program.h"
#include "support/table.h"

namespace rdmacomm::programs {
namespace {

constexpr const char* kBlankLine = "\r\033[K";

/// "0:12", "1:02:03".
std::string time_left(double seconds) {
  const auto all = static_cast<std::uint64_t>(std::ceil(seconds));
  char text[32];
  if (all < 3600) {
    std::snprintf(text, sizeof(text), "%d:%02d", static_cast<int>(all / 60), static_cast<int>(all % 60));
  } else {
    std::snprintf(text, sizeof(text), "%llu:%02d:%02d", static_cast<unsigned long long>(all / 3600),
                  static_cast<int>(all / 60 % 60), static_cast<int>(all % 60));
  }
  return text;
}

}  // namespace

/// About three digits.
std::string amount_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  if (unit == 0) return std::to_string(static_cast<std::uint64_t>(bytes)) + " B";
  return number_text(bytes) + ' ' + kUnits[unit];
}

std::string progress_text(std::uint64_t bytes, std::optional<std::uint64_t> total, double bytes_per_second) {
  std::string text = amount_text(static_cast<double>(bytes)) + "  " + amount_text(bytes_per_second) + "/s";
  if (!total || *total == 0 || bytes > *total) return text;
  text +=
      "  " + std::to_string(static_cast<int>(100.0 * static_cast<double>(bytes) / static_cast<double>(*total))) + " %";
  const double seconds = static_cast<double>(*total - bytes) / bytes_per_second;
  constexpr double kSaysNothing = 1000.0 * 3600;
  return seconds < kSaysNothing ? text + "  " + time_left(seconds) + " left" : text;
}

std::string stats_text(std::uint64_t bytes, double seconds, double user_seconds, double system_seconds,
                       std::optional<std::uint64_t> checksum) {
  char text[160];
  std::snprintf(text, sizeof(text), "%llu bytes in %.3f s, %s/s, processor %.3f s user %.3f s system",
                static_cast<unsigned long long>(bytes), seconds,
                amount_text(seconds > 0 ? static_cast<double>(bytes) / seconds : 0).c_str(), user_seconds,
                system_seconds);
  std::string line = text;
  if (!checksum) return line + ", no checksum";
  std::snprintf(text, sizeof(text), ", XXH3 %016llx", static_cast<unsigned long long>(*checksum));
  return line + text;
}

ProcessorTime processor_time() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return {};
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {.user_seconds = seconds(usage.ru_utime), .system_seconds = seconds(usage.ru_stime)};
}

Progress::Progress(Options options) : options_(std::move(options)), total_(options_.total.value_or(0)) {
  if (options_.shown) thread_ = std::thread([this] { run(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  options_.out << kBlankLine << std::flush;
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  const double seconds = std::chrono::duration<double>(options_.period).count();
  for (std::uint64_t before = 0;;) {
    if (changed_.wait_for(lock, options_.period, [this] { return ended_; })) return;
    const std::uint64_t now = bytes();
    const double rate = static_cast<double>(now - before) / seconds;
    options_.out << kBlankLine << line(progress_text(now, total_.load(std::memory_order_relaxed), rate)) << std::flush;
    before = now;
  }
}

/// "rdma_copy: <about><numbers>", in one line of the terminal. The last column stays empty.
std::string Progress::line(const std::string& numbers) const {
  const std::size_t columns = options_.columns();
  const std::size_t room = columns > 0 ? columns - 1 : std::string::npos;
  const std::string name = program_name() + ": ";
  const std::size_t taken = display_width(name) + display_width(numbers);
  const std::string about = options_.about ? options_.about(room - std::min(room, taken)) : "";
  return fitted(name + about + numbers, room);
}

void Progress::say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (options_.shown) options_.out << kBlankLine;
  options_.out << program_name() << ": " << text << std::endl;
}

}  // namespace rdmacomm::programs
