// operations.h - the queue of each operation, and its operands as one RequestView. All of it is inlined, so that the
// compiler generates straight-line code for each operation.
// Layer: channel.
#pragma once

#include "base/hot_inline.h"
#include "rdmacomm/channel.h"

namespace rdmacomm {

/// Whether completions with this operation come from the receive queue.
[[nodiscard]] constexpr bool is_receive(Operation operation) noexcept {
  return operation == Operation::kRecv || operation == Operation::kRecvWriteImm;
}

/// A SendRequest that refers to the caller's operands and has each option in a register. A view, for arguments.
struct RequestView {
  RDMACOMM_HOT_INLINE RequestView(Operation operation_, std::span<const BufferSlice> local_,
                                  const RemoteRegion* remote_, PostOptions options, std::uint64_t operand_ = 0,
                                  std::uint64_t desired_ = 0) noexcept
      : operation(operation_),
        local(local_),
        remote(remote_),
        id(options.id),
        immediate(options.immediate.value()),
        has_immediate(options.immediate.given() ? 1 : 0),
        flags(static_cast<unsigned>(options.flags)),
        operand(operand_),
        desired(desired_) {}
  [[nodiscard]] bool has(PostFlags flag) const noexcept { return (flags & static_cast<unsigned>(flag)) != 0; }

  Operation operation;
  std::span<const BufferSlice> local;
  const RemoteRegion* remote;  ///< nullptr: kSend
  std::uint64_t id;
  std::uint32_t immediate;  ///< host byte order; 0 if none is given
  unsigned has_immediate;   ///< 0 or 1
  unsigned flags;           ///< of PostFlags
  std::uint64_t operand;    ///< kFetchAdd: the addend; kCompareSwap: the expected value
  std::uint64_t desired;
};

/// The payload of a request, in bytes.
[[nodiscard]] inline std::uint64_t total_bytes(std::span<const BufferSlice> slices) noexcept {
  std::uint64_t bytes = 0;
  for (const BufferSlice& slice : slices) bytes += slice.size();
  return bytes;
}

/// Whether it has operands of an operation that is not its own.
[[nodiscard]] RDMACOMM_HOT_INLINE bool has_wrong_operand(const SendRequest& request) noexcept {
  if (request.operation != Operation::kFetchAdd && request.fetch_add.addend != 0) return true;
  return request.operation != Operation::kCompareSwap &&
         (request.compare_swap.expected | request.compare_swap.desired) != 0;
}

[[nodiscard]] RDMACOMM_HOT_INLINE RequestView view_of(const SendRequest& request) noexcept {
  const bool adds = request.operation == Operation::kFetchAdd;
  return {request.operation,
          request.local.slices(),
          &request.remote,
          request.options,
          adds ? request.fetch_add.addend : request.compare_swap.expected,
          request.compare_swap.desired};
}

[[nodiscard]] RDMACOMM_HOT_INLINE RequestView send_request(const SliceList& local, PostOptions options) noexcept {
  return {Operation::kSend, local.slices(), nullptr, options};
}

/// operation  kWrite or kRead
[[nodiscard]] RDMACOMM_HOT_INLINE RequestView rdma_request(Operation operation, const SliceList& local,
                                                           const RemoteRegion& remote, PostOptions options) noexcept {
  return {operation, local.slices(), &remote, options};
}

[[nodiscard]] RDMACOMM_HOT_INLINE RequestView fetch_add_request(const BufferSlice& result, const RemoteRegion& remote,
                                                                FetchAdd operand, PostOptions options) noexcept {
  return {Operation::kFetchAdd, {&result, 1}, &remote, options, operand.addend};
}

[[nodiscard]] RDMACOMM_HOT_INLINE RequestView compare_swap_request(const BufferSlice& result,
                                                                   const RemoteRegion& remote, CompareSwap operands,
                                                                   PostOptions options) noexcept {
  return {Operation::kCompareSwap, {&result, 1}, &remote, options, operands.expected, operands.desired};
}

}  // namespace rdmacomm
