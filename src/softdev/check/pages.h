// pages.h - page protection of buffers in flight, for `--check=pages`.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev::check {

enum class Touch { kWrite, kAny };

/// Protects the whole pages inside a buffer: against writes, or against any access. A program that touches them gets a
/// report, and continues. Buffers may overlap: pages keep the strictest protection until the last buffer ends.
/// owner   tells the report which request it is: Request::id
/// Threads: the caller holds a Locked.
void protect_pages(std::uint64_t address, std::uint64_t length, Touch forbidden, std::uint64_t owner);

/// Ends that. The pages can be read and written afterwards, unless another buffer protects them.
/// Threads: the caller holds a Locked.
void unprotect_pages(std::uint64_t address, std::uint64_t length, std::uint64_t owner);

/// Opens the pages of a buffer for the checker, which puts data into it; close_again() protects them again, if other
/// buffers in flight ask for it.
/// Threads: the caller holds a Locked.
void open_for_checker(std::uint64_t address, std::uint64_t length);
void close_again(std::uint64_t address, std::uint64_t length);

/// Opens all pages: before fork(), whose child cannot open those of its parent.
/// Threads: the caller holds a Locked.
void open_all_pages();

}  // namespace rdmacomm::softdev::check
