#include "rdma_copy/server.h"

#include <glog/logging.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/system_call.h"
#include "connector/source_network.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/seats.h"
#include "rdma_copy/sink.h"
#include "rdma_copy/source.h"
#include "rdmacomm/session.h"
#include "support/client_domain.h"
#include "support/client_report.h"
#include "support/peer_loss.h"

namespace rdmacomm::copying {
namespace {

/// The time for a client to send its job.
constexpr std::chrono::seconds kPatience{30};
/// The time for clients to receive the message that the server ends.
constexpr std::chrono::milliseconds kEndTime{500};

/// The most simultaneous copies: each has threads, registered memory and open directories.
constexpr int kSeats = 64;

class CopyServerHooks final : public SessionHooks {
 public:
  CopyServerHooks(const ServerOptions& options, const Seats& seats) : options_(options), seats_(seats) {}

  Status init_session(const RDMADevice& device) override {
    device_ = device;
    return {};
  }

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    if (Status identified = check_identification(peer.private_data); !identified.ok()) return identified;
    if (Status free = seats_.offer(SourceNetwork::of(peer.address).to_text()); !free.ok()) return free;
    if (Status apart = programs::give_own_domain(hca, device_); !apart.ok()) return apart;
    options_.modes.apply(hca);
    hca.channels = {programs::with_flags(stream_options().channel(kChannel), options_.connection.adapter)};
    hca.private_data = identification();
    return {};
  }

 private:
  const ServerOptions& options_;
  const Seats& seats_;
  RDMADevice device_;
};

/// One client, and the thread that serves it.
class Guest {
 public:
  /// on_end  is called once, at its end
  Guest(const ServerOptions& options, const Place& place, EndPoint endpoint, std::function<void()> on_end)
      : options_(options), place_(place), endpoint_(std::move(endpoint)), on_end_(std::move(on_end)) {
    thread_ = std::thread([this] { run(); });
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  ~Guest() { thread_.join(); }

  [[nodiscard]] bool gone() const noexcept { return gone_.load(); }
  /// Ends its copy. Does not wait.
  void dismiss() {
    const std::lock_guard lock(mutex_);
    dismissed_ = true;
    if (stream_) stream_.abort("the server ends");
  }
  void stop() { endpoint_.stop(); }

 private:
  void run() {
    const Status served = programs::explained(endpoint_, serve());
    if (served.code() == Errc::kLockedMemoryLimit) {
      LOG_EVERY_T(WARNING, 1) << "cannot serve " << endpoint_.peer() << ": " << served.message();
    } else if (!served.ok()) {
      VLOG(1) << endpoint_.peer() << ": " << served.message();
    }
    (void)endpoint_.close();
    on_end_();
    gone_.store(true);
  }

  Status serve() {
    auto opened = RDMAStream::open(endpoint_, endpoint_.channel(kChannel), stream_options(), patience());
    if (!opened) return opened.error();
    {
      const std::lock_guard lock(mutex_);
      stream_ = std::move(*opened);
      if (dismissed_) stream_.abort("the server ends");
    }
    Status outcome = copy(stream_);
    if (!outcome.ok()) stream_.abort(outcome.message());
    const std::lock_guard lock(mutex_);
    stream_ = {};
    return outcome;
  }

  [[nodiscard]] Deadline patience() const {
    const bool bounded = options_.timeout.count() > 0;
    return Deadline::after(bounded ? std::min<std::chrono::milliseconds>(kPatience, options_.timeout) : kPatience);
  }

  [[nodiscard]] Result<std::vector<std::string>> hear_paths(FrameReader& reader, const Job& job) const {
    std::vector<std::string> paths;
    std::size_t bytes = 0;
    const Deadline soon = patience();
    while (paths.size() < job.paths()) {
      const auto frame = reader.next(soon);
      if (!frame) return frame.error();
      if (!*frame || (*frame)->kind != FrameKind::kPath) {
        return make_error(Errc::kBadMessage, "the client has sent fewer paths than it announced");
      }
      auto path = take_path((*frame)->payload);
      if (!path) return path.error();
      bytes += path->size() + sizeof(std::string);
      if (bytes > Job::kMaxPaths) {
        return make_error(Errc::kBadMessage,
                          "the client has sent too many paths at once: copy the directory that they are in, "
                          "or fewer of them at a time");
      }
      paths.push_back(std::move(*path));
    }
    return paths;
  }

  Status copy(RDMAStream& stream) const {
    const auto watch = Watch::start(endpoint_, stream, options_.timeout);
    if (!watch) return watch.error();
    Work& work = (*watch)->work();
    FrameReader reader(stream, &work);
    const auto frame = reader.next(patience());
    if (!frame) return frame.error();
    if (!*frame || (*frame)->kind != FrameKind::kJob) {
      return make_error(Errc::kBadMessage, "the client has not sent a job as its first message");
    }
    const auto job = Job::decode((*frame)->payload);
    if (!job) return job.error();
    const auto paths = hear_paths(reader, *job);
    if (!paths) return paths.error();
    if (Status good = place_.check_root(); !good.ok()) return good;
    Counts counts;
    if (job->direction == Direction::kPull) {
      return run_source(stream, place_, *paths, job->options, {}, counts, work);
    }
    const Destination destination{.path = paths->front(), .sources = job->sources, .mask = options_.mask};
    return run_sink(stream, reader, place_, destination, job->options, {}, counts, work);
  }

  const ServerOptions& options_;
  const Place& place_;
  const EndPoint endpoint_;
  const std::function<void()> on_end_;
  std::atomic<bool> gone_{false};
  std::mutex mutex_;
  bool dismissed_ = false;
  RDMAStream stream_;
  std::thread thread_;
};

class Guests {
 public:
  void add(const ServerOptions& options, const Place& place, const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    const std::string holder = SourceNetwork::of(endpoint.peer()).to_text();
    if (Status seated = seats_.take(holder); !seated.ok()) {  // other clients with an offer were faster
      VLOG(1) << endpoint.peer() << " is not served: " << seated.message();
      endpoint.stop();
      return;
    }
    try {
      guests_.push_back(
          std::make_unique<Guest>(options, place, endpoint, [this, holder] { seats_.give_back(holder); }));
    } catch (const std::system_error& error) {  // no more threads for this user: other clients continue
      seats_.give_back(holder);
      report_.failed(endpoint.peer(), endpoint.peer() + " is not served: cannot start a thread: " + error.what());
      endpoint.stop();
    }
  }
  /// Destroys the guests that have ended.
  void tidy() {
    const std::lock_guard lock(mutex_);
    guests_.remove_if([](const auto& guest) { return guest->gone(); });
  }
  [[nodiscard]] const Seats& seats() const noexcept { return seats_; }
  /// Call it when no more guests are added.
  void dismiss_all() {
    for (const auto& guest : guests_) guest->dismiss();
    const Deadline ended_by = Deadline::after(kEndTime);
    const auto some_left = [this] {
      return std::ranges::any_of(guests_, [](const auto& guest) { return !guest->gone(); });
    };
    while (some_left() && !ended_by.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (const auto& guest : guests_) guest->stop();
    guests_.clear();
  }

 private:
  programs::ClientReport report_;
  std::mutex mutex_;
  Seats seats_{kSeats};  // of the clients being served
  std::list<std::unique_ptr<Guest>> guests_;
};

}  // namespace

Status run_server(const ServerOptions& options, int stop_fd) {
  const auto place = Place::below(options.root);
  if (!place) return place.error();
  Guests guests;
  const ServerSession session(options.connection.session, std::make_shared<CopyServerHooks>(options, guests.seats()));
  if (Status started = session.start(); !started.ok()) return started;
  std::atomic<bool> over{false};
  std::thread waiter;
  try {
    waiter = std::thread([&] {
      while (!over.load()) {
        const auto endpoint = session.accept(Deadline::after(std::chrono::milliseconds(200)));
        guests.tidy();
        if (endpoint) guests.add(options, *place, *endpoint);
      }
    });
  } catch (const std::system_error& error) {
    return make_error(error.code(), "cannot start a thread that accepts clients");
  }
  if (options.listening) options.listening(session.port());
  pollfd stop{.fd = stop_fd, .events = POLLIN, .revents = 0};
  (void)retry_interrupted([&] { return ::poll(&stop, 1, -1); });
  over.store(true);
  waiter.join();
  guests.dismiss_all();
  session.stop();
  return {};
}

}  // namespace rdmacomm::copying
