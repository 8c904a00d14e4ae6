// standard_output.h - std::cout that keeps why it could not be written.
#pragma once

#include <cstddef>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// std::cout writes to descriptor 1 by a buffer that keeps the first error of the system's: a stream keeps only that
/// there was one. A terminal gets each line when it ends. Call it once, before anything is printed.
void set_up_standard_output();

/// How many characters a line has room for: of the terminal, as it was when the program began; SIZE_MAX: it is none.
[[nodiscard]] std::size_t output_width() noexcept;

/// Writes what is still buffered. Returns  the first error since the program began, however long ago that was
[[nodiscard]] Status flush_standard_output();

}  // namespace rdmacomm::programs
