// server.h - the thread that answers initiators, and notices the death of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/context/unproven.h"
#include "softdev/local/peer_directory.h"
#include "softdev/shared/access_proof.h"
#include "softdev/shared/control_protocol.h"

namespace rdmacomm::softdev {

class SoftContext;
class SoftQp;

/// Serves the queue pair numbers of a context. It passes the descriptors that initiators map, and accesses memory that
/// they cannot map. It watches all connections, those of initiators and those of this context. It never waits for a
/// peer, so two contexts that send requests to each other cannot deadlock.
/// Threads: any. Lifetime: call stop() before other parts of the context are destroyed.
class Server final : public PeerServer {
 public:
  explicit Server(SoftContext& context);
  ~Server() override { stop(); }

  /// Returns  0, or an errno value.
  [[nodiscard]] int start();
  void stop();

  /// Answers initiators that connect to `listener` from now on.
  void add_listener(UniqueFd listener);
  [[nodiscard]] UniqueFd connect_to_itself() override;
  [[nodiscard]] bool serves(std::uint32_t qpn) override;
  void watch(const std::shared_ptr<Peer>& peer) override;
  /// Waits for all accesses to memory that are in progress. A later access checks the registration again.
  void wait_for_access() { const std::scoped_lock lock(access_mutex_); }

 private:
  enum class Kind : std::uint8_t { kStop, kListener, kIncoming, kPeer };
  /// An initiator's mapping of a queue pair. It keeps the queue pair's block from being reused, because an initiator
  /// that was left behind still writes its hazard flag there.
  struct Attachment {
    std::shared_ptr<SoftQp> target;
    std::uint32_t initiator_qpn;
  };
  struct Watched {
    Kind kind = Kind::kStop;
    std::uint64_t id = 0;
    UniqueFd fd{};               // not for kPeer: the Peer owns its socket
    std::weak_ptr<Peer> peer{};  // kPeer
    // kIncoming:
    pid_t pid = 0;
    std::unique_ptr<AccessProof> proof{};  // until the proof was given
    bool may_share = false;                // it has proven that it may share memory
    std::vector<Attachment> targets{};     // the queue pairs that this initiator has mapped
  };

  /// Returns its number in the epoll set.
  std::uint64_t add(Watched watched, int fd, std::uint32_t events);
  void run();
  void handle(std::uint64_t id, std::uint32_t events);
  [[nodiscard]] bool look_after(const Watched& watched, std::uint32_t events);
  void accept_initiator(Watched& listener);
  static void wait_for_room();
  bool answer(Watched& initiator);
  void initiator_gone(const Watched& initiator);

  [[nodiscard]] bool reply(const Request& request, Watched& initiator, std::span<const std::byte> payload);
  void reply_hello(const Request& request, Watched& initiator, Answer& answer);
  [[nodiscard]] int reply_proof(const Request& request, Watched& initiator, Answer& answer);
  void reply_queue_pair(const Request& request, Watched& initiator, Answer& answer);
  UniqueFd reply_channel(const Request& request, Answer& answer);
  int access_memory(const Request& request, std::span<const std::byte> payload, Answer& answer,
                    std::span<std::byte> out);
  /// Returns  false: not a report that a correct initiator sends.
  bool take_report(const Request& request, Watched& initiator);
  bool take_failure(const Request& request, SoftQp* qp);

  SoftContext& context_;
  std::shared_ptr<UniqueFd> epoll_ = std::make_shared<UniqueFd>();  // shared with peers that outlive the thread
  WakeEvent stop_event_;
  std::thread thread_;
  Unproven unproven_;        // used by the thread only
  std::mutex access_mutex_;  // held during each access to memory for an initiator
  std::mutex mutex_;         // guards watched_ and next_id_; only the thread uses the contents of entries
  std::map<std::uint64_t, std::shared_ptr<Watched>> watched_;
  std::uint64_t next_id_ = 1;
};

}  // namespace rdmacomm::softdev
