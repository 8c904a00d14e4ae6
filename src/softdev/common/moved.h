// moved.h - what came of moving bytes through a descriptor.
#pragma once

#include <cstddef>

namespace rdmacomm::softdev {

/// What came of sending or receiving without waiting.
struct Moved {
  std::size_t bytes = 0;
  int error = 0;  ///< EAGAIN: no more for now; EPIPE: the connection is over; EFAULT: memory that is not there; others
};

}  // namespace rdmacomm::softdev
