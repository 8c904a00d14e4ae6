// crash_trace.h - a stack trace with source lines when a program crashes.
#pragma once

namespace rdmacomm::programs {

/// From now on SIGSEGV, SIGABRT and their like print a trace to standard error before the program dies of them.
/// Under a sanitizer nothing is installed: it has its own. For programs only, never in the library.
void install_crash_trace();

}  // namespace rdmacomm::programs
