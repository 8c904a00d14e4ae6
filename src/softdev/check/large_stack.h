// large_stack.h - runs a function on a stack of its own.
#pragma once

#include <functional>

namespace rdmacomm::softdev::check {

/// Runs `work` on a thread with a large stack, and waits for it: threads of the program, and their stacks for signals,
/// may have room for a few pages only. Without another thread, runs it on this one.
/// Threads: one at a time. The caller may hold a Locked; `work` must not take one.
void on_large_stack(const std::function<void()>& work);

}  // namespace rdmacomm::softdev::check
