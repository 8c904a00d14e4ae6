// fault_handler.h - the handler of page faults (SIGSEGV), called before a handler of the program.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev::check {

/// True: the access may be tried again. The function may be called in any thread, at any access to memory.
using HandleFault = bool (*)(std::uint64_t address);

/// Installs a handler. A fault that it does not handle is the program's: its handler is called, or the signal ends the
/// process. From now on, sigaction() and signal() of the program for SIGSEGV set and return the program's handler only.
/// A second call does nothing.
/// Threads: one at a time.
void install_fault_handler(HandleFault handle);

}  // namespace rdmacomm::softdev::check
