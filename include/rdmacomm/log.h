// log.h - where the log lines of the library go.
// Layer: base.
//
// The lines are written to glog, unless the application sets its own function; never to standard output. The
// environment variable RCL_MAX_VLOG_LEVEL (read once, at the first line) sets the level of detail.
//   - unset or 0: warnings, and errors that no call returns
//   - 1: one line for each thing opened, connected, chosen or closed
//   - 2: every step of a connection
//   - 3: every message of the handshake
// A function of the library returns an error or logs it, never both.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "rdmacomm/version.h"

namespace rdmacomm {

/// How serious a log line is.
enum class LogSeverity : std::uint8_t {
  kInfo,     ///< details, only if RCL_MAX_VLOG_LEVEL is 1 or more
  kWarning,  ///< the library continues, but something may need attention
  kError,    ///< a failure that no call returns
};

/// Receives one line, without its line end. It must not throw, and should not block: the calling thread may be one that
/// takes completions.
using LogSink = std::function<void(LogSeverity severity, std::string_view line)>;

/// From now on `sink` receives all lines, and glog receives none. When this returns, the previous sink is not running
/// and will not be called again.
///
/// sink     empty: the lines go to glog again. Any thread calls it, and several may call it at the same time. Lines
///          that the sink itself causes by calling the library go to glog. It must not call set_log_sink(), which would
///          wait for the sink itself: that is a bug in the program and ends it
/// Threads  any
RDMACOMM_API void set_log_sink(LogSink sink);

}  // namespace rdmacomm
