// soft_context.h - one opened soft0: what ibv_open_device returns, and all that belongs to it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "softdev/common/event_queue.h"
#include "softdev/context/retrier.h"
#include "softdev/context/server.h"
#include "softdev/host/port_watch.h"
#include "softdev/host/soft_device.h"
#include "softdev/host/target_route.h"
#include "softdev/memory/memory_windows.h"
#include "softdev/memory/mr_table.h"
#include "softdev/memory/stragglers.h"
#include "softdev/shared/hazard.h"
#include "softdev/shared/shared_file.h"
#include "softdev/tcp/tcp_addresses.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {

class Peer;
class SoftCq;
class SoftQp;
class SoftSrq;
class SoftXrcd;

/// The memory handed out by allocate_memory(): mapped by peers at full speed.
/// Threads: any.
class SharedMemory {
 public:
  struct Allocation {
    SharedBlock block;
    Arena arena = Arena::kNone;
    std::uint64_t made_at = 0;  ///< a moment of the Stragglers'
  };
  [[nodiscard]] void* allocate(std::size_t length, bool huge_pages, std::uint64_t made_at);
  /// Takes out what was allocated at `address`, to be given back to its file. false: nothing was.
  [[nodiscard]] bool take(const void* address, Allocation& taken);
  [[nodiscard]] SharedFile& file(Arena arena) noexcept { return arena == Arena::kHugePages ? huge_pages_ : pages_; }
  /// Which arena [address, address + length) lies in as a whole, and where; kNone: memory of the application's own.
  [[nodiscard]] Arena locate(const void* address, std::size_t length, std::uint64_t& offset);
  [[nodiscard]] int arena_fd(Arena arena);

 private:
  SharedFile pages_{"soft0-memory", kPage, 0};
  SharedFile huge_pages_{"soft0-huge-memory", std::size_t{2} << 20, 4 /* MFD_HUGETLB */};
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
};

/// The queue pairs of a context by number, and the numbers.
/// Threads: any.
class QueuePairs {
 public:
  /// A number nobody on this host has; 0 and errno: EADDRINUSE, all are other processes'. `listener` is valid where a new block of numbers
  /// was taken: it must be served. `with_port`: other hosts are to reach it.
  [[nodiscard]] std::uint32_t take_number(bool with_port, UniqueFd& listener);
  /// The port of the number's block, which nobody else gets: for who will listen there. Not valid: it could not be taken, was given
  /// out before, or is another network namespace's than the caller's.
  [[nodiscard]] UniqueFd take_port(std::uint32_t qpn);
  void insert(const std::shared_ptr<SoftQp>& qp);
  /// Forgets the queue pair, and keeps it alive for the caller.
  [[nodiscard]] std::shared_ptr<SoftQp> remove(std::uint32_t qpn);
  [[nodiscard]] std::shared_ptr<SoftQp> find(std::uint32_t qpn);
  /// Whether the number is one of this context's, given out or not.
  [[nodiscard]] bool owns(std::uint32_t qpn);
  /// Whether other processes of this host find the number by the name of its block. Else another user has taken the name, and
  /// they find it by its port alone.
  [[nodiscard]] bool has_name(std::uint32_t qpn);
  [[nodiscard]] std::vector<std::shared_ptr<SoftQp>> all();

 private:
  struct Block {
    std::uint32_t number;
    UniqueFd port;
    std::uint64_t host;  ///< where the port is: device_guid()
    bool has_name;
  };
  enum class Reach : std::uint8_t { kNameAndPort, kName, kPort };
  bool take_block_locked(Reach reach, UniqueFd& listener);
  bool take_any_block_locked(bool with_port, UniqueFd& listener);

  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<SoftQp>> by_number_;
  std::vector<Block> blocks_;
  std::uint32_t next_ = 0;  // counts through all numbers of all blocks, so that numbers are reused late
};

/// The objects of one kind of a context, which the application owns.
/// Threads: any.
template <typename Object>
class Objects {
 public:
  void insert(Object& object) {
    const std::scoped_lock lock(mutex_);
    objects_.push_back(&object);
  }
  void remove(Object& object) {
    const std::scoped_lock lock(mutex_);
    std::erase(objects_, &object);
  }
  /// Calls `use` for each; none of them goes meanwhile.
  template <typename Use>
  void for_each(Use&& use) {
    const std::scoped_lock lock(mutex_);
    for (Object* object : objects_) use(*object);
  }

 private:
  std::mutex mutex_;
  std::vector<Object*> objects_;
};

/// The contexts that this one's queue pairs are connected to.
/// Threads: any.
class PeerDirectory {
 public:
  explicit PeerDirectory(Server& server) : server_(server) {}
  /// The owner of `qpn`, connected to if need be. nullptr and `error`: see Peer::connect. Who does not answer is not asked
  /// again for a while: ETIMEDOUT at once.
  [[nodiscard]] std::shared_ptr<Peer> get(std::uint32_t qpn, int& error);

 private:
  using Clock = std::chrono::steady_clock;
  /// As long as it is waited for: who has queue pairs to a process that is stopped must get round to others, too.
  static constexpr std::chrono::seconds kSilentFor{5};
  /// The owner of a block of numbers. Its lock is held while it is asked: one that is stopped holds up nobody who is going to
  /// somebody else.
  struct Owner {
    std::mutex mutex;
    std::weak_ptr<Peer> peer;
    Clock::time_point silent_until;
  };
  [[nodiscard]] std::shared_ptr<Owner> owner_of(std::uint32_t block);

  Server& server_;
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Owner>> by_block_;
};

/// An opened device. Threads: any.
class SoftContext : private verbs_context {
 public:
  /// nullptr and errno: no descriptors or no memory.
  [[nodiscard]] static SoftContext* open(std::shared_ptr<SoftDevice> device);
  ~SoftContext();
  SoftContext(const SoftContext&) = delete;
  SoftContext& operator=(const SoftContext&) = delete;

  [[nodiscard]] static SoftContext& from(ibv_context* context) noexcept;
  /// Whether it is one of this device, and not of a device of the kernel's.
  [[nodiscard]] static bool is(const ibv_context* context) noexcept;
  /// Whether it is the cmd_fd of one of these: there is nothing to be imported by it.
  [[nodiscard]] static bool is_command_fd(int fd) noexcept;
  [[nodiscard]] ibv_context* verbs() noexcept { return &this->context; }

  [[nodiscard]] const DeviceIdentity& identity() const noexcept { return device_->identity(); }
  [[nodiscard]] SharedFile& segment() noexcept { return segment_; }
  [[nodiscard]] SharedMemory& memory() noexcept { return memory_; }
  [[nodiscard]] MrTable& registrations() noexcept { return registrations_; }
  [[nodiscard]] MemoryWindows& windows() noexcept { return windows_; }
  [[nodiscard]] Objects<SoftCq>& completion_queues() noexcept { return completion_queues_; }
  [[nodiscard]] Objects<SoftSrq>& shared_receive_queues() noexcept { return shared_receive_queues_; }
  [[nodiscard]] Objects<SoftXrcd>& xrc_domains() noexcept { return xrc_domains_; }
  [[nodiscard]] QueuePairs& queue_pairs() noexcept { return queue_pairs_; }
  [[nodiscard]] PeerDirectory& peers() noexcept { return peers_; }
  [[nodiscard]] EventQueue& events() noexcept { return events_; }
  /// As PortWatch::gids.
  [[nodiscard]] int gid_table(std::vector<ibv_gid_entry>& table) { return port_.gids(table, events_); }
  /// As ibv_get_async_event.
  int next_event(ibv_async_event& event);
  [[nodiscard]] Retrier& retrier() noexcept { return retrier_; }
  [[nodiscard]] Server& server() noexcept { return server_; }
  [[nodiscard]] TcpService& tcp() noexcept { return tcp_; }
  [[nodiscard]] TcpUse tcp_use() const noexcept { return tcp_use_; }
  /// What kListenVariable says; nullptr: nothing.
  [[nodiscard]] const TcpAddresses* tcp_addresses() const noexcept {
    return tcp_addresses_ ? &*tcp_addresses_ : nullptr;
  }

  /// Starts the threads with the first queue pair. 0, or an errno value.
  [[nodiscard]] int ensure_threads();
  /// Whether this process can take part in membarrier(2), see hazard.h.
  [[nodiscard]] bool membarrier() const noexcept { return membarrier_; }
  /// How long requests wait for a poll before they are carried out, see kLateVariable; 0: not at all.
  [[nodiscard]] std::chrono::milliseconds lateness() const noexcept { return lateness_; }
  [[nodiscard]] std::uint32_t next_pd_number() noexcept { return next_pd_number_.fetch_add(1); }
  [[nodiscard]] std::uint32_t next_channel_number() noexcept { return next_channel_number_.fetch_add(1); }
  /// Waits until nobody is at work in this context's memory any more who was when this was called: no initiator, no
  /// thread of this process. false: but for Stragglers.
  [[nodiscard]] bool wait_until_idle();
  /// The same for initiators alone: for a thread that holds a send queue.
  [[nodiscard]] bool wait_for_initiators();
  [[nodiscard]] Stragglers& stragglers() noexcept { return stragglers_; }
  /// Gives a block of one of its files back, at the latest when no straggler can be using it any more.
  void give_back(SharedFile& file, SharedBlock block, std::uint64_t made_at = 0);
  /// Memory that peers map. nullptr and errno: none is left.
  [[nodiscard]] void* allocate_memory(std::size_t length, bool huge_pages);
  void free_memory(void* address);

 private:
  explicit SoftContext(std::shared_ptr<SoftDevice> device);

  std::shared_ptr<SoftDevice> device_;
  SharedFile segment_{"soft0-control", kPage, 0};
  SharedMemory memory_;
  MrTable registrations_;
  Stragglers stragglers_;
  MemoryWindows windows_{*this};
  Objects<SoftCq> completion_queues_;
  Objects<SoftSrq> shared_receive_queues_;
  Objects<SoftXrcd> xrc_domains_;
  QueuePairs queue_pairs_;
  EventQueue events_;
  PortWatch port_;
  const bool membarrier_ = register_for_membarrier();
  std::chrono::milliseconds lateness_{};  // these three are set by open() for good
  TcpUse tcp_use_ = TcpUse::kOtherHosts;
  std::optional<TcpAddresses> tcp_addresses_;
  std::atomic<std::uint32_t> next_pd_number_{1};
  std::atomic<std::uint32_t> next_channel_number_{1};
  std::mutex threads_mutex_;
  bool threads_running_ = false;
  Server server_{*this};
  Retrier retrier_{*this};
  PeerDirectory peers_{server_};
  TcpService tcp_{*this};
};

}  // namespace rdmacomm::softdev
