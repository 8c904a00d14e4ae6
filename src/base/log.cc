// The only file that uses glog.
#include "rdmacomm/log.h"

#include <glog/logging.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "base/logging.h"
#include "rdmacomm/result.h"

namespace rdmacomm {
namespace {

struct Sink {
  std::shared_mutex mutex;  // shared while the function runs
  LogSink function;
};
/// Never deleted, because destructors of static objects log, too.
Sink& sink() {
  static auto* const one = new Sink();
  return *one;
}

thread_local bool in_sink = false;

int glog_severity(LogSeverity severity) noexcept {
  switch (severity) {
    case LogSeverity::kInfo: return google::GLOG_INFO;
    case LogSeverity::kWarning: return google::GLOG_WARNING;
    case LogSeverity::kError: break;
  }
  return google::GLOG_ERROR;
}

/// Writes a line to standard error in the format of glog. For programs that do not initialize glog: with a normal
/// LogMessage, glog would print a warning about that before the first line.
class StandardError final : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char*, const char* file, int line, const google::LogMessageTime& time,
            const char* message, std::size_t bytes) override {
    const std::string text = ToString(severity, file, line, time, message, bytes) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
};

bool write_to_sink(LogSeverity severity, std::string_view line) {
  if (in_sink) return false;
  const std::shared_lock lock(sink().mutex);
  if (!sink().function) return false;
  in_sink = true;
  sink().function(severity, line);
  in_sink = false;
  return true;
}

}  // namespace

void set_log_sink(LogSink function) {
  if (in_sink)
    detail::die_of_misuse("a log sink called set_log_sink(), which would wait for ever for the same sink to return",
                          nullptr);
  const std::unique_lock lock(sink().mutex);
  sink().function.swap(function);  // destroyed without the lock: the objects it owns may log
}

LogLine::~LogLine() {
  const std::string_view text = buffer_.text();
  if (write_to_sink(severity_, text)) return;
  if (google::IsGoogleLoggingInitialized()) {
    google::LogMessage(file_, line_, glog_severity(severity_)).stream() << "rdmacomm: " << text;
  } else {
    StandardError standard_error;
    constexpr bool kAlsoToFiles = false;
    google::LogMessage(file_, line_, glog_severity(severity_), &standard_error, kAlsoToFiles).stream()
        << "rdmacomm: " << text;
  }
}

int max_vlog_level() noexcept {
  static const int level = [] {
    const char* text = ::secure_getenv("RCL_MAX_VLOG_LEVEL");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

}  // namespace rdmacomm
