// standard_output.h - std::cout that keeps the error of a failed write.
#pragma once

#include <cstddef>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Makes std::cout write to descriptor 1 through a buffer that keeps the system's first error. A stream alone keeps
/// only the fact that an error occurred. A terminal gets each line when it is complete. Call it once, before anything
/// is printed.
void set_up_standard_output();

/// The width of the terminal in characters when the program began; SIZE_MAX: not a terminal.
[[nodiscard]] std::size_t output_width() noexcept;

/// Writes the buffered output. Returns  the first error since the program began
[[nodiscard]] Status flush_standard_output();

}  // namespace rdmacomm::programs
