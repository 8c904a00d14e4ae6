// crash_trace.h - prints a stack trace with source lines when a program crashes.
#pragma once

namespace rdmacomm::programs {

/// From now on SIGSEGV, SIGABRT and similar signals print a trace to standard error before they end the program. Under
/// a sanitizer this does nothing, because a sanitizer prints its own. For programs only, never in the library.
void install_crash_trace();

}  // namespace rdmacomm::programs
