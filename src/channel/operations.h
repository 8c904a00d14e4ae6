// operations.h - which queue an operation is of, and the operands of each as one SendRequest. All inlined: each caller
// becomes the straight line for its own operation.
// Layer: channel.
#pragma once

#include "base/hot_inline.h"
#include "rdmacomm/channel.h"

namespace rdmacomm {

/// Whether completions that name it are of the receive queue.
[[nodiscard]] constexpr bool is_receive(Operation operation) noexcept {
  return operation == Operation::kRecv || operation == Operation::kRecvWriteImm;
}

[[nodiscard]] RDMACOMM_HOT_INLINE SendRequest send_request(const SliceList& local,
                                                           const PostOptions& options) noexcept {
  return {.operation = Operation::kSend, .local = local.slices(), .options = options};
}

/// operation  kWrite or kRead
[[nodiscard]] RDMACOMM_HOT_INLINE SendRequest rdma_request(Operation operation, const SliceList& local,
                                                           const RemoteRegion& remote,
                                                           const PostOptions& options) noexcept {
  return {.operation = operation, .local = local.slices(), .remote = remote, .options = options};
}

[[nodiscard]] RDMACOMM_HOT_INLINE SendRequest fetch_add_request(const BufferSlice& result, const RemoteRegion& remote,
                                                                const FetchAdd& operand,
                                                                const PostOptions& options) noexcept {
  return {.operation = Operation::kFetchAdd,
          .local = {&result, 1},
          .remote = remote,
          .options = options,
          .operand = operand.addend};
}

[[nodiscard]] RDMACOMM_HOT_INLINE SendRequest compare_swap_request(const BufferSlice& result,
                                                                   const RemoteRegion& remote,
                                                                   const CompareSwap& operands,
                                                                   const PostOptions& options) noexcept {
  return {.operation = Operation::kCompareSwap,
          .local = {&result, 1},
          .remote = remote,
          .options = options,
          .operand = operands.expected,
          .desired = operands.desired};
}

}  // namespace rdmacomm
