// soft_context.h - an opened soft0: the result of ibv_open_device, with all its parts.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "softdev/common/event_queue.h"
#include "softdev/common/objects.h"
#include "softdev/context/context_threads.h"
#include "softdev/context/retrier.h"
#include "softdev/context/server.h"
#include "softdev/context/settings.h"
#include "softdev/faults/device_faults.h"
#include "softdev/host/port_watch.h"
#include "softdev/host/soft_device.h"
#include "softdev/host/traffic.h"
#include "softdev/local/local_wire.h"
#include "softdev/local/peer_directory.h"
#include "softdev/memory/memory_windows.h"
#include "softdev/memory/mr_table.h"
#include "softdev/memory/shared_memory.h"
#include "softdev/memory/stragglers.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/queue_pairs.h"
#include "softdev/shared/hazard.h"
#include "softdev/shared/shared_file.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {

class SoftCq;
class SoftSrq;
class SoftXrcd;

/// An opened device.
/// Threads: any.
class SoftContext : private verbs_context, private FaultyDevice {
 public:
  /// Sets the verbs that programs call through an ibv_context and the verbs_context around it.
  using SetVerbs = void (*)(verbs_context& context);
  /// Returns  nullptr and errno: no descriptors or no memory.
  [[nodiscard]] static SoftContext* open(std::shared_ptr<SoftDevice> device, SetVerbs set_verbs);
  ~SoftContext() override;
  SoftContext(const SoftContext&) = delete;
  SoftContext& operator=(const SoftContext&) = delete;

  [[nodiscard]] static SoftContext& from(ibv_context* context) noexcept;
  /// True for a context of this device, false for one of a kernel device.
  [[nodiscard]] static bool is(const ibv_context* context) noexcept;
  /// True if `fd` is the cmd_fd of such a context. It cannot be imported.
  [[nodiscard]] static bool is_command_fd(int fd) noexcept;
  [[nodiscard]] ibv_context* verbs() noexcept { return &this->context; }
  /// For the context's queues.
  [[nodiscard]] const Premises& premises() const noexcept { return premises_; }

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
  [[nodiscard]] int gid_table(std::vector<ibv_gid_entry>& table, std::vector<ibv_gid_entry>* host = nullptr) {
    return port_.gids(table, host);
  }
  /// As ibv_get_async_event.
  int next_event(ibv_async_event& event);
  [[nodiscard]] Retrier& retrier() noexcept { return retrier_; }
  [[nodiscard]] Server& server() noexcept { return server_; }
  /// nullptr: no faults.
  [[nodiscard]] DeviceFaults* faults() noexcept { return faults_.get(); }
  [[nodiscard]] TcpUse tcp_use() const noexcept { return settings_.tcp_use; }

  /// Time that requests wait for a poll before they are executed, see kLateVariable; 0: they do not wait.
  [[nodiscard]] std::chrono::milliseconds lateness() const noexcept { return settings_.lateness; }
  /// See kMemlockVariable.
  [[nodiscard]] bool limits_memory() const noexcept { return settings_.limits_memory; }
  [[nodiscard]] std::uint32_t next_pd_number() noexcept { return next_pd_number_.fetch_add(1); }
  [[nodiscard]] std::uint32_t next_channel_number() noexcept { return next_channel_number_.fetch_add(1); }
  /// Waits until all accesses to this context's memory that were in progress at the call have ended, by initiators and
  /// by threads of this process. Returns false: some Stragglers have not finished.
  [[nodiscard]] bool wait_until_idle();
  /// The same for initiators only. For a thread that holds a send queue's lock.
  [[nodiscard]] bool wait_for_initiators();
  [[nodiscard]] Stragglers& stragglers() noexcept { return stragglers_; }
  /// Frees a block of `file`, which belongs to this context, at the latest when no straggler can be using it any more.
  void give_back(SharedFile& file, SharedBlock block, std::uint64_t made_at = 0);
  /// Allocates memory that peers can map. Returns nullptr and errno: no memory.
  [[nodiscard]] void* allocate_memory(std::size_t length, bool huge_pages);
  void free_memory(void* address);

 private:
  SoftContext(std::shared_ptr<SoftDevice> device, Settings settings, SetVerbs set_verbs);
  void report_port(ibv_event_type type) noexcept override { port_.report(type); }
  [[nodiscard]] bool overrun(const ibv_cq* queue, const ibv_qp* queue_pair) noexcept override;
  void flush_and_report_failure() noexcept override;
  void follow_port();

  std::shared_ptr<SoftDevice> device_;
  const Settings settings_;
  const std::unique_ptr<DeviceFaults> faults_;
  SharedFile segment_{"soft0-control", kPage, 0};
  SharedMemory memory_;
  MrTable registrations_;
  Traffic traffic_;
  const LocalPremises local_{registrations_, peers_, traffic_, register_for_membarrier()};
  const Premises premises_{context,
                           device_->identity(),
                           settings_.tcp_use,
                           settings_.lateness.count() != 0,
                           faults_.get(),
                           segment_,
                           local_,
                           windows_,
                           stragglers_,
                           events_,
                           port_,
                           queue_pairs_,
                           tcp_,
                           threads_};
  Stragglers stragglers_;
  MemoryWindows windows_{registrations_, stragglers_, [this] { (void)wait_for_initiators(); }};
  Objects<SoftCq> completion_queues_;
  Objects<SoftSrq> shared_receive_queues_;
  Objects<SoftXrcd> xrc_domains_;
  QueuePairs queue_pairs_;
  EventQueue events_;
  PortWatch port_{events_};
  std::mutex follow_mutex_;  // taken before the locks of queue pairs; guards
  std::uint64_t followed_changes_ = 0;
  std::atomic<std::uint32_t> next_pd_number_{1};
  std::atomic<std::uint32_t> next_channel_number_{1};
  Server server_{*this};
  Retrier retrier_{*this};
  ContextThreads threads_{server_, retrier_};
  PeerDirectory peers_{server_};
  TcpService tcp_{{local_, queue_pairs_, port_, retrier_.finder(), settings_.addresses}};
};

}  // namespace rdmacomm::softdev
