// moved.h - the result of moving bytes through a descriptor.
#pragma once

#include <cstddef>

namespace rdmacomm::softdev {

/// The result of sending or receiving without waiting.
struct Moved {
  std::size_t bytes = 0;
  int error = 0;  ///< EAGAIN: no more for now; EPIPE: the connection has ended; EFAULT: invalid memory; others
};

}  // namespace rdmacomm::softdev
