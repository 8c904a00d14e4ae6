// log.h - where the library's log lines go.
// Layer: base.
//
// They go to glog, unless the application sets a function of its own; never to standard output. The environment
// variable RCL_MAX_VLOG_LEVEL (read once, at the first line) says how much there is to say:
//   unset or 0   warnings and errors that nobody else reports
//   1            one line for each thing opened, connected, chosen or closed
//   2            every step of a connection
//   3            every message of the handshake
// A function of the library returns an error or logs it, never both.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "rdmacomm/version.h"

namespace rdmacomm {

enum class LogSeverity : std::uint8_t { kInfo, kWarning, kError };

/// Takes one line, without its end. It must not throw, and should not block: the caller may be a thread that takes
/// completions.
using LogSink = std::function<void(LogSeverity severity, std::string_view line)>;

/// From now on all lines go to `sink`, and no longer to glog. When this returns, the sink before it is not running and
/// will not be called again.
///
/// sink     empty: the lines go to glog. It is called by any thread, and by several at a time. Lines that the sink
///          causes itself, by calling the library, go to glog. It must not call set_log_sink(), which would wait for
///          it: that is a mistake of the program, and ends it
/// Threads  any
RDMACOMM_API void set_log_sink(LogSink sink);

}  // namespace rdmacomm
