// request_fault.h - the faults for which a request is refused before it is posted.
// Layer: channel.
#pragma once

#include <cstdint>
#include <string>

#include "rdmacomm/channel.h"

namespace rdmacomm {

/// One value for each condition of kInvalidArgument. The comments say which `value` and `limit` PostedRequest keeps.
enum class detail::RequestFault : std::uint8_t {
  kNone,
  kTooManySlices,   ///< slices; the limit of the queue pair
  kBeyondMessage,   ///< bytes; max_message_bytes()
  kBeyondRegion,    ///< bytes; the length of the remote region
  kBeyondInline,    ///< bytes; max_inline_bytes()
  kInlineResult,    ///< kInline on a request that returns bytes
  kResultSize,      ///< bytes, not equal to 8
  kUnaligned,       ///< the remote address
  kImmediate,       ///< on a request that cannot carry one
  kNoRequest,       ///< an operation that occurs only in completions
  kUnsignaledWait,  ///< kUnsignaled on a request that is to be waited for
};
using detail::RequestFault;

/// "5000 bytes are more than the remote region has (4096)".
[[nodiscard]] std::string to_text(RequestFault fault, Operation operation, std::uint64_t value, std::uint64_t limit);

}  // namespace rdmacomm
