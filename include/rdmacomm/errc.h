// errc.h - the error codes of rdmacomm, as a std::error_category.
// Layer: base.   The meaning of each code for the caller, and what to do next: docs/errors.md
#pragma once

#include <system_error>

#include "rdmacomm/version.h"  // checks the compiler options that all headers need

namespace rdmacomm {

/// All failures that have a code in this library. 0 is success, so that a std::error_code made from kOk is false.
/// Failures of the operating system keep their own std::errc value (for example std::errc::address_in_use from a
/// listening socket).
///
/// The numbers are part of the wire format: a REJECT carries the sender's code. So a number never changes its meaning
/// and is never reused. New codes get the next number, wherever they stand in this list.
enum class Errc : int {
  kOk = 0,  ///< success
  // Requests that cannot be fulfilled.
  kInvalidArgument = 1,    ///< a value outside its documented range; the context names value and range
  kBeyondDeviceLimit = 2,  ///< a request larger than the device offers; the context has both numbers
  kLockedMemoryLimit = 3,  ///< registration refused by RLIMIT_MEMLOCK
  kNoDevice = 4,           ///< no device of that name, or no device at all
  kNoActivePort = 5,       ///< the device exists, but no port of it is ACTIVE
  kNoUsableGid = 6,        ///< no GID of the wanted type, or none that reaches the peer
  kWrongState = 7,         ///< an operation that the state of the object does not allow
  kNotSupported = 8,       ///< the device or this build has no such operation
  // Posting.
  kSendQueueFull = 9,         ///< the send queue is full: poll, then retry
  kReceiveQueueFull = 10,     ///< the receive queue is full: poll, then retry
  kNotConnected = 11,         ///< the queue pair is not in RTS (send side) or not past INIT (receive side)
  kCompletionQueueFull = 12,  ///< a shared completion queue cannot hold the requests of one more queue pair
  // Completions. Each code stands for one ibv_wc_status, or for several that require the same reaction.
  kLocalLength = 13,           ///< the message does not fit the posted receive buffers, or exceeds the maximum
  kLocalProtection = 14,       ///< a local slice is not (or no longer) registered, or lacks local write
  kLocalQueuePair = 15,        ///< the local queue pair found an inconsistency (IBV_WC_LOC_QP_OP_ERR)
  kRemoteAccess = 16,          ///< wrong rkey, out of bounds, or the remote region does not permit the operation
  kRemoteInvalidRequest = 17,  ///< the peer refused the request: for example, its receive buffer is too short
  kRemoteOperation = 18,       ///< the peer could not execute the request
  kRnrRetryExceeded = 19,      ///< the peer posted no receive buffer within rnr_retry x min_rnr_timer
  kRetryExceeded = 20,         ///< no answer from the peer within timeout x (retry_count + 1): dead or unreachable
  kFlushed = 21,               ///< not executed: the queue pair was already in the error state
  kCompletionFailed = 22,      ///< any other completion status; vendor_error has the device's own code
  // Devices.
  kDeviceLost = 23,  ///< the device has failed, or was removed while it was open
  // Peers.
  kTimeout = 24,      ///< a deadline passed
  kPeerClosed = 35,   ///< the peer has ended the connection in order, by stop() or close()
  kPeerLost = 25,     ///< the peer's process or host is gone, or closed the connection without notice. Not kPeerClosed
  kPeerRefused = 26,  ///< the peer refused the connection; the context has its reason
  kVersionMismatch = 27,   ///< the peer uses another version of the handshake
  kBadMessage = 28,        ///< bytes that are not a message of this protocol
  kIncompatiblePeer = 29,  ///< the two ends do not fit together (GID types, MTU, link layer)
  kStopped = 30,           ///< the object was stopped while the call was waiting
  // Pools and streams.
  kPoolExhausted = 31,  ///< every suitable block of a BufferPool is leased: give some back, then retry
  kAborted = 32,        ///< a stream was given up, locally or by the peer; the context has the reason
  // Sessions.
  kHookFailed = 33,  ///< a hook of the application threw an exception; the log has its text
  kServerBusy = 34,  ///< the server has no slot, thread or descriptor for another client now: try again later
};

/// The largest number that is in use.
inline constexpr int kMaxErrc = static_cast<int>(Errc::kPeerClosed);

/// The category of Errc: name() is "rdmacomm", message(e) is one short sentence. Cost: none.
[[nodiscard]] RDMACOMM_API const std::error_category& errc_category() noexcept;

/// Makes a std::error_code in errc_category(). std::error_code calls it when it is made from an Errc, or compared with
/// one.
[[nodiscard]] inline std::error_code make_error_code(Errc e) noexcept {
  return {static_cast<int>(e), errc_category()};
}

}  // namespace rdmacomm

/// Lets an Errc convert to a std::error_code.
template <>
struct std::is_error_code_enum<rdmacomm::Errc> : std::true_type {};
