// line_numbers.h - the function, file and line of an address, by libdw.
#pragma once

#include <string>
#include <vector>

namespace rdmacomm::softdev::check {

/// Loads libdw.so.1, which is not linked: a program that reports nothing does without it. Does nothing if it is missing.
void load_line_numbers();

/// The functions that contain an instruction, from the innermost inlined one: "function at file.cc:12", "function in
/// libx.so", or "0x7f... in libx.so".
/// Threads: one at a time.
[[nodiscard]] std::vector<std::string> describe_address(const void* address);

}  // namespace rdmacomm::softdev::check
