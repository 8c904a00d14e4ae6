// page_faults.h - loads the pages of application memory, and accesses memory that may not be mapped.
#pragma once

#include <cstddef>
#include <span>

namespace rdmacomm::softdev {

/// Loads the pages of a range, as pinning on hardware does, and checks that it is mapped, and writable if `writable`.
/// Returns  0, or EFAULT.
[[nodiscard]] int load_pages(const void* address, std::size_t length, bool writable) noexcept;

/// Copies between memory of this process and memory of the application, which may have been unmapped since its
/// registration: then the copy fails, and no signal ends the process. Returns false: some of it is not mapped.
[[nodiscard]] bool write_guarded(std::byte* to, std::span<const std::byte> from) noexcept;
[[nodiscard]] bool read_guarded(std::span<std::byte> to, const std::byte* from) noexcept;

}  // namespace rdmacomm::softdev
