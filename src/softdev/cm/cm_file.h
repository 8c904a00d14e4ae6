// cm_file.h - one open /dev/infiniband/rdma_cm: an event channel of librdmacm.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

class CmId;

/// rdma_cm_event_type of librdmacm's header, which cannot be used together with the kernel's.
enum class CmEventType : std::uint32_t {
  kAddressResolved = 0,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kMulticastJoin = 12,
  kTimeWaitExit = 15,
  // The program writes these itself, see RDMA_USER_CM_CMD_WRITE_CM_EVENT.
  kUser = 18,
  kInternal = 19,  ///< of librdmacm: the end of rdma_resolve_addrinfo()
};

/// An event that the program has not read yet.
struct CmEvent {
  rdma_ucm_event_resp body{};
  std::shared_ptr<CmId> id;       ///< the identifier that counts it as reported, unless the program does not know it
  std::shared_ptr<CmId> arrived;  ///< for a connect request: the new identifier
  std::uint32_t group = 0;        ///< for events of multicast groups: the number of the membership
};

/// The queue of events of one descriptor. The program waits for the read end of a pipe, which has one byte for each
/// event, so poll(2), blocking and O_NONBLOCK work as for the kernel's device.
/// Its descriptors are closed by raw calls: the program's close() may be UserCm::closed(), which waits for the locks that
/// the caller holds.
/// Threads: one at a time.
class CmFile {
 public:
  CmFile() = default;
  CmFile(const CmFile&) = delete;
  CmFile& operator=(const CmFile&) = delete;
  ~CmFile() { abandon(); }

  /// Creates the pipe. Returns the descriptor for the program, or -1 and errno.
  /// flags  O_NONBLOCK and O_CLOEXEC are used
  [[nodiscard]] int open(int flags) noexcept;
  /// In a child made by fork(): closes what belongs to the parent.
  void abandon() noexcept;
  /// Whether the program can still use the file.
  enum class Use : std::uint8_t {
    kOpen,
    kClosed,  ///< the program has no descriptor of it
    kLost,    ///< the program has closed this object's descriptors: their numbers may belong to other files
  };
  /// Cost: if the program has closed the descriptor from open(), reads the list of all descriptors.
  [[nodiscard]] Use use() const noexcept;
  /// For kLost: forgets the numbers of the descriptors.
  void forget() noexcept;
  /// The number of the pipe among all files, the same for all duplicates of the descriptor.
  [[nodiscard]] std::uint64_t inode() const noexcept { return inode_; }

  /// Waits for an event, or fails with EAGAIN if the descriptor has O_NONBLOCK. Another thread may take the event first.
  /// A cancellation point: the thread may end here. Threads: any; the object must not be locked.
  /// Returns  0, or an errno value.
  [[nodiscard]] int wait() const;
  /// Takes the byte of an event. Returns false: there is none, because another thread has taken it.
  [[nodiscard]] bool take_byte() const noexcept;

  void push(CmEvent event);
  /// Takes the next event, after a byte was read. Returns false: there is none, because it was removed meanwhile.
  [[nodiscard]] bool pop(CmEvent& event);
  /// Takes all events that `wanted` selects.
  [[nodiscard]] std::deque<CmEvent> remove(const std::function<bool(const CmEvent&)>& wanted);

 private:
  void ring() noexcept;
  void silence(std::size_t count) noexcept;

  UniqueFd bell_;
  UniqueFd waiting_end_;  ///< another read end: the program may close its descriptor while a thread waits
  int first_ = -1;        ///< the program's descriptor from open()
  std::uint64_t inode_ = 0;
  std::deque<CmEvent> events_;
  std::uint32_t silent_ = 0;  ///< events for which the pipe had no room
};

/// The inode of an open file; 0: `fd` is not open. It is asked of the kernel, whatever fstat() says.
[[nodiscard]] std::uint64_t inode_of(int fd) noexcept;
[[nodiscard]] bool is_pipe(int fd) noexcept;

}  // namespace rdmacomm::softdev
