// cm_service.h - the connection manager of a process: its identifiers, and the thread that serves their sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/cm/cm_device.h"
#include "softdev/cm/cm_id.h"
#include "softdev/cm/cm_link.h"
#include "softdev/cm/host_listener.h"
#include "softdev/context/settings.h"
#include "softdev/host/route.h"

namespace rdmacomm::softdev {

/// Threads: one at a time, the holder of mutex(), if nothing else is said. The service's thread takes the lock itself.
class CmService {
 public:
  using Clock = std::chrono::steady_clock;

  /// identities  the devices of the process, at least one
  CmService(std::vector<DeviceIdentity> identities, Settings settings);
  CmService(const CmService&) = delete;
  CmService& operator=(const CmService&) = delete;
  ~CmService();

  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }
  [[nodiscard]] const CmDevices& devices() const noexcept { return devices_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

  // Identifiers
  [[nodiscard]] std::shared_ptr<CmId> create(std::shared_ptr<CmFile> file, std::uint64_t uid, std::uint16_t port_space,
                                             std::uint8_t qp_type);
  [[nodiscard]] std::shared_ptr<CmId> find(std::uint32_t number) const;
  void remove(CmId& id);
  /// All identifiers of a file.
  [[nodiscard]] std::vector<std::shared_ptr<CmId>> of(const CmFile& file) const;

  // Memberships of multicast groups. They have numbers of their own, which no identifier has.
  struct Membership {
    std::shared_ptr<CmId> id;
    std::uint32_t reported_events = 0;  ///< events that the program has read
  };
  [[nodiscard]] std::uint32_t add_membership(CmId& id);
  void count_membership_event(std::uint32_t number);
  std::optional<Membership> end_membership(std::uint32_t number);

  // For identifiers
  /// Starts the thread. Returns 0, or an errno value.
  [[nodiscard]] int start();
  /// Lets other hosts reach this process's listeners, if that is possible.
  void open_host_listener();
  /// The identifier's sockets, or what it waits for, have changed.
  void update(CmId& id);
  /// Before one of its sockets is closed.
  void forget_socket(CmId& id, int fd);

  /// True if the program has closed the thread's descriptors, as closefrom() does. All numbers of descriptors that the
  /// object knows may then belong to other files, and must not be used or closed.
  [[nodiscard]] bool has_lost_its_files() const noexcept;
  /// Then: ends the thread. The object must not be used or destroyed any more. Takes the lock itself.
  void stop_without_files() noexcept;
  /// In a child made by fork(): closes what belongs to the parent. The object must not be used any more.
  void abandon() noexcept;

 private:
  /// A connection until its first message has arrived. The message of another host names the listener.
  struct Unidentified {
    CmLink link;
    Clock::time_point accepted_at;
    Route back;                    ///< of another host
    std::weak_ptr<CmId> listener;  ///< of this host: the listener that it has connected to
    bool is_local = false;
    bool is_identified = false;  ///< `request` is known, but its listener's process has no room yet
    CmMessage request;
  };
  struct Watched {
    std::uint32_t id = 0;
    std::uint32_t events = 0;
    bool operator==(const Watched&) const = default;
  };

  void run();
  void handle(int fd);
  void accept_from_other_hosts();
  void accept_at(CmId& listener);
  void serve_unidentified(std::list<Unidentified>::iterator which);
  /// These two return true if the connection has ended or was handed over.
  [[nodiscard]] bool serve_remote(Unidentified& connection);
  [[nodiscard]] bool serve_local(Unidentified& connection);
  void add_unidentified(Unidentified connection);
  [[nodiscard]] bool is_full(bool is_local) const;
  /// The one of this host, or of other hosts, that has waited longest. There must be one.
  [[nodiscard]] std::list<Unidentified>::iterator oldest(bool is_local);
  void end_unidentified(std::list<Unidentified>::iterator which);
  [[nodiscard]] bool hand_over(Unidentified& connection);
  [[nodiscard]] std::shared_ptr<CmId> listener_for(const CmMessage& request) const;
  void make_room(Clock::time_point now);
  void check_deadlines(Clock::time_point now);
  [[nodiscard]] int time_to_wait(Clock::time_point now) const;
  void watch(int fd, std::uint32_t events);
  void unwatch(int fd) noexcept;

  const CmDevices devices_;
  const Settings settings_;
  std::mutex mutex_;
  UniqueFd epoll_;
  WakeEvent wake_;
  bool stopping_ = false;
  bool must_rest_ = false;  ///< a connection could not be accepted
  HostListener host_listener_;
  bool host_listener_is_paused_ = false;
  std::optional<Clock::time_point> host_listener_retry_at_;
  std::uint32_t next_number_ = 1;
  std::map<std::uint32_t, Membership> memberships_;
  std::map<std::uint32_t, std::shared_ptr<CmId>> ids_;
  std::map<int, Watched> watched_;  ///< identifiers' sockets
  std::list<Unidentified> unidentified_;
  std::thread thread_;
};

}  // namespace rdmacomm::softdev
