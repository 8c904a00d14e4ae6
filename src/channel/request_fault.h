// request_fault.h - what can be wrong with a request that is to be posted.
// Layer: channel.
#pragma once

#include <cstdint>
#include <string>

#include "rdmacomm/channel.h"

namespace rdmacomm {

/// One for each condition of kInvalidArgument. `value` and `limit` in the comments are what PostedRequest keeps with it.
enum class detail::RequestFault : std::uint8_t {
  kNone,
  kTooManySlices,   ///< slices; what the queue pair takes
  kBeyondMessage,   ///< bytes; max_message_bytes()
  kBeyondRegion,    ///< bytes; the length of the remote region
  kBeyondInline,    ///< bytes; max_inline_bytes()
  kInlineResult,    ///< kInline on what brings bytes back
  kResultSize,      ///< bytes, which are not 8
  kUnaligned,       ///< the remote address
  kImmediate,       ///< on what carries none
  kNoRequest,       ///< an operation that only completions name
  kUnsignaledWait,  ///< kUnsignaled on a request that is to be waited for
};
using detail::RequestFault;

/// "5000 bytes are more than the remote region has (4096)".
[[nodiscard]] std::string to_text(RequestFault fault, Operation operation, std::uint64_t value, std::uint64_t limit);

}  // namespace rdmacomm
