// stacks.h - the places in a program that made an object or posted a request: stacks of return addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rdmacomm::softdev::check {

/// Names a stack. Equal stacks have one number. 0: no stack.
using StackId = std::uint32_t;

/// The stack of the caller, without the frames of this library. At most 24 frames.
/// Threads: any. The caller does not hold a Locked.
/// Cost: about 1 us.
[[nodiscard]] StackId capture_stack();
/// The same for a caller that holds a Locked.
[[nodiscard]] StackId capture_stack_locked();

/// The frames of a stack from the innermost: "function at file.cc:12", or "function in libx.so" if the program has no
/// line numbers. A call that the compiler has inlined is a frame of its own. Functions of <infiniband/verbs.h> itself are
/// left out. Uses libdw if it is installed.
/// Threads: the caller holds a Locked.
/// Cost: milliseconds, because it reads the debug information.
[[nodiscard]] std::vector<std::string> describe_stack(StackId stack);

/// The file names, without folders, of the objects that a stack passes through.
/// Threads: the caller holds a Locked.
[[nodiscard]] std::vector<std::string> objects_of(StackId stack);

/// Loads libdw, so that reports can be printed when the process ends.
void prepare_names();

}  // namespace rdmacomm::softdev::check
