// server.h - the thread that answers initiators, and notices who has died.
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

/// Serves the context's queue pair numbers: hands out what initiators map, does their work on memory that cannot be
/// mapped, and watches all connections, theirs and this context's own. It never waits for a peer, so that two
/// contexts that ask each other cannot lock each other up.
/// Threads: any. Lifetime: stop() before the context's other parts go.
class Server final : public PeerServer {
 public:
  explicit Server(SoftContext& context);
  ~Server() override { stop(); }

  /// 0, or an errno value.
  [[nodiscard]] int start();
  void stop();

  /// Answers at `listener` from now on.
  void add_listener(UniqueFd listener);
  [[nodiscard]] UniqueFd connect_to_itself() override;
  [[nodiscard]] bool serves(std::uint32_t qpn) override;
  void watch(const std::shared_ptr<Peer>& peer) override;
  /// Waits until no access to memory is under way that began before. One that begins later looks at the registration.
  void wait_for_access() { const std::scoped_lock lock(access_mutex_); }

 private:
  enum class Kind : std::uint8_t { kStop, kListener, kIncoming, kPeer };
  /// An initiator's mapping of a queue pair. It keeps the queue pair's block from being used for anything else: an
  /// initiator that was left behind still writes its hazard flag there.
  struct Attachment {
    std::shared_ptr<SoftQp> target;
    std::uint32_t initiator_qpn;
  };
  struct Watched {
    Kind kind = Kind::kStop;
    std::uint64_t id = 0;
    UniqueFd fd{};               // not kPeer: the Peer owns its own
    std::weak_ptr<Peer> peer{};  // kPeer
    // kIncoming:
    pid_t pid = 0;
    std::unique_ptr<AccessProof> proof{};  // while it is due
    bool may_share = false;                // it has proven that
    std::vector<Attachment> targets{};     // the queue pairs that this initiator has mapped
  };

  /// Returns by what the epoll set names it.
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
  /// false: it is none that a request can cause.
  bool take_report(const Request& request, Watched& initiator);
  bool take_failure(const Request& request, SoftQp* qp);

  SoftContext& context_;
  std::shared_ptr<UniqueFd> epoll_ = std::make_shared<UniqueFd>();  // peers that outlive the thread have it, too
  WakeEvent stop_event_;
  std::thread thread_;
  Unproven unproven_;        // of the thread alone
  std::mutex access_mutex_;  // held while memory is accessed for an initiator
  std::mutex mutex_;         // guards watched_ and next_id_; what is in an entry is used by the thread alone
  std::map<std::uint64_t, std::shared_ptr<Watched>> watched_;
  std::uint64_t next_id_ = 1;
};

}  // namespace rdmacomm::softdev
