// completing.h - completions: the program's buffers belong to the program again.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softdev/check/requests.h"

namespace rdmacomm::softdev::check {

/// A completion that the program is about to get.
struct Completed {
  std::uint64_t wr_id = 0;  ///< of the device; becomes that of the program
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::uint32_t bytes = 0;  ///< of a receive
};

/// Ends the request, and all requests of its send queue before it. Checks their buffers, and puts received data into
/// them.
/// caller  the address of the frame that polls: memory of the same stack below it is no longer in use
/// where   the stack of the poll; 0: not known yet
/// Threads: the caller holds a Locked, and completions of a queue come in their order.
void complete(Completed& completion, const void* caller);

}  // namespace rdmacomm::softdev::check
