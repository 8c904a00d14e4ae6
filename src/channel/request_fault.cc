#include "channel/request_fault.h"

#include <cstdio>

namespace rdmacomm {
namespace {

std::string hex(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

const char* slices_option(Operation operation) {
  if (operation == Operation::kRecv) return "max_recv_slices";
  return operation == Operation::kRead ? "max_read_slices" : "max_send_slices";
}

}  // namespace

std::string to_text(RequestFault fault, Operation operation, std::uint64_t value, std::uint64_t limit) {
  const auto bytes_beyond = [&](const char* what) {
    return std::to_string(value) + " bytes are more than " + what + " (" + std::to_string(limit) + ")";
  };
  switch (fault) {
    case RequestFault::kNone: break;
    case RequestFault::kTooManySlices:
      return std::to_string(value) + " slices are more than AdapterConfig::" + slices_option(operation) + " allows (" +
             std::to_string(limit) + ")";
    case RequestFault::kBeyondMessage: return bytes_beyond("max_message_bytes()");
    case RequestFault::kBeyondRegion: return bytes_beyond("the remote region has");
    case RequestFault::kBeyondInline: return bytes_beyond("max_inline_bytes() allows with kInline");
    case RequestFault::kInlineResult: return "it returns remote data, so it cannot be kInline";
    case RequestFault::kResultSize: return "its result has " + std::to_string(value) + " bytes instead of 8";
    case RequestFault::kUnaligned: return "the remote address " + hex(value) + " is not a multiple of 8";
    case RequestFault::kImmediate: return "only a SEND or a WRITE can carry immediate data";
    case RequestFault::kNoRequest: return "this operation cannot be posted";
    case RequestFault::kUnsignaledWait:
      return "a kUnsignaled request has no completion, so no thread can wait for it; use post_...";
  }
  return "the device refused it";
}

}  // namespace rdmacomm
