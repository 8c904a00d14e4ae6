#include "session/session_core.h"

#include <sys/epoll.h>

#include <random>

#include "base/logging.h"
#include "base/start_thread.h"
#include "base/system_call.h"
#include "base/wait.h"
#include "rdmacomm/session.h"
#include "session/session_connectors.h"

namespace rdmacomm {
namespace {

Error is_stopped() {
  return make_error(Errc::kStopped, "the session was stopped");
}

Status watch(int epoll, int fd, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return make_error(last_system_error(), "cannot watch a descriptor by epoll");
}

HandshakeQueue::Bounds handshake_bounds(const SessionOptions& options) {
  return {.slots = options.handshake_slots,
          .per_source = options.handshakes_per_source,
          .waiting = options.waiting_handshakes,
          .patience = options.handshake_patience};
}

/// Who is to be dropped should not be known beforehand; the numbers protect nothing else.
HandshakeQueue::Random random_choice() {
  return [engine = std::make_shared<std::mt19937_64>(std::random_device{}())](std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(*engine);
  };
}

}  // namespace

SessionCore::SessionCore(std::shared_ptr<SessionHooks> hooks, SessionOptions options, bool is_server)
    : hooks_(std::move(hooks)),
      options_(std::move(options)),
      is_server_(is_server),
      host_(options_.queues_of != nullptr ? options_.queues_of->core() : *this),
      hello_(Hello::of_this_process()),
      handshakes_(handshake_bounds(options_), random_choice()) {
  door_->core = this;
}

SessionCore::~SessionCore() {
  stop();
  // Its threads, of which this is one, would go on without it.
  if (is_inside()) detail::die_of_misuse("a session was destroyed, or assigned to, by one of its own hooks", nullptr);
  const std::lock_guard lock(door_->mutex);
  door_->core = nullptr;
}

/// The only place where state_ changes.
void SessionCore::move_to(State next) {
  state_ = next;
  changed_.notify_all();
}

bool SessionCore::stopping() const {
  const std::lock_guard lock(mutex_);
  return state_ >= State::kStopping;
}

bool SessionCore::stopped() const {
  return stopping();
}

// Starting ------------------------------------------------------------------------------------------------------------

Status SessionCore::start_server() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kStarting || state_ == State::kRunning) {
      return make_error(Errc::kWrongState, "the session was started already");
    }
  }
  return ensure_running(options_.address, Deadline::after(options_.tcp.connect_timeout));
}

Status SessionCore::ensure_running(const HostPort& address, Deadline reached_by) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kStarting && inside_.contains_this_one()) {
    return make_error(Errc::kWrongState, "init_session() must not connect: the session is not running yet");
  }
  changed_.wait(lock, [&] { return state_ != State::kStarting; });
  if (state_ == State::kRunning) return {};
  if (state_ != State::kNew) return is_stopped();
  move_to(State::kStarting);
  lock.unlock();
  Status started = start_up(address, reached_by);
  if (started) return {};
  stop_listening();
  lock.lock();
  if (state_ == State::kStopping) {  // by stop() in between, or by a hook
    move_to(State::kStopped);
    return is_stopped();
  }
  move_to(State::kNew);
  return started;
}

/// To newcomers and to the device: nobody is to find a door that nobody opens.
void SessionCore::stop_listening() {
  listener_.reset();
  device_events_.reset();
  const std::lock_guard lock(mutex_);
  port_ = 0;
}

/// Where it succeeds, the session runs, and its control thread does what stop() asks for.
Status SessionCore::start_up(const HostPort& address, Deadline reached_by) {
  const InsideThreads::Guard inside(inside_);
  Status status = options_.validate();
  if (status) status = make_stop_event();
  if (status) status = open_device(address, reached_by);
  if (status && &host_ != this && host_.device() != device()) {
    status =
        make_error(Errc::kInvalidArgument,
                   "SessionOptions::queues_of is not started, or on another device: give both the same shared_device");
  }
  if (status && !initialised_) status = hooks_.init_session(device());
  if (!status) return status;
  initialised_ = true;
  if (is_server_) {
    auto listener = listen_for(options_, *device());
    if (!listener) return listener.status();
    listener_ = std::move(*listener);
    const std::lock_guard lock(mutex_);
    port_ = listener_->port();
  }
  return open_control();
}

/// First: stop() ends a search for the server's address, too.
Status SessionCore::make_stop_event() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kStopping) return is_stopped();
  if (stop_event_) return {};
  auto stop = WakeEvent::create();
  if (!stop) return stop.status();
  stop_event_ = std::move(*stop);
  return {};
}

Status SessionCore::open_device(const HostPort& address, Deadline reached_by) {
  if (device()) return {};
  std::shared_ptr<DeviceCore> device = options_.shared_device.core();
  if (!device) {
    auto opened = rdmacomm::open_device(options_.device, {.address = address,
                                                          .is_server = is_server_,
                                                          .connector = options_.connector,
                                                          .find_by = reached_by,
                                                          .cancel_fd = stop_event_->fd()});
    if (!opened) return opened.status();
    device = opened->core();
  }
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
  return {};
}

Status SessionCore::open_control() {
  auto wake = WakeEvent::create();
  if (!wake) return wake.status();
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return make_error(last_system_error(), "cannot create an epoll descriptor");
  if (Status status = watch(epoll_.get(), wake->fd(), kWakeId); !status) return status;
  if (Status status = watch_device(); !status) return status;
  const std::lock_guard lock(mutex_);
  wake_event_ = std::move(*wake);
  if (state_ == State::kStopping) return is_stopped();
  if (Status started = start_thread(control_, "rdma-control", [this] { run_control(); }); !started) return started;
  move_to(State::kRunning);
  return {};
}

// Stopping ------------------------------------------------------------------------------------------------------------

void SessionCore::stop() {
  std::unique_lock lock(mutex_);
  const auto handshakes = request_stop(lock);
  lock.unlock();
  // Not by the control thread: it may be in a hook that is in the middle of one.
  for (const auto& connector : handshakes) {
    connector->refuse(make_error(Errc::kStopped, "this side is being stopped"));
    connector->shutdown();
  }
  lock.lock();
  if (is_inside()) return;
  changed_.wait(lock, [&] { return state_ == State::kStopped; });
  join_control(lock);
}

/// Whether this thread may be in a hook of this session.
bool SessionCore::is_inside() const {
  const bool in_guest = &host_ != this && host_.serving_.contains_this_one();
  return in_guest || inside_.contains_this_one() || serving_.contains_this_one();
}

/// Returns  the handshakes under way, for the first who asks. No new ones begin from now on
std::vector<std::shared_ptr<Connector>> SessionCore::request_stop(std::unique_lock<std::mutex>& /*held*/) {
  std::vector<std::shared_ptr<Connector>> handshakes;
  if (state_ >= State::kStopping) return handshakes;
  move_to(state_ == State::kNew ? State::kStopped : State::kStopping);
  if (stop_event_) stop_event_->signal();
  if (wake_event_) wake_event_->signal();
  for (const auto& [id, setup] : setups_) {
    if (setup.connector) handshakes.push_back(setup.connector);
  }
  return handshakes;
}

void SessionCore::join_control(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !joining_; });
  if (!control_.joinable()) return;
  joining_ = true;
  lock.unlock();
  control_.join();
  lock.lock();
  joining_ = false;
  changed_.notify_all();
}

// Looking -------------------------------------------------------------------------------------------------------------

std::vector<std::shared_ptr<EndPointCore>> SessionCore::endpoints() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<EndPointCore>> alive;
  for (const auto& [id, endpoint] : endpoints_) {
    if (endpoint->alive()) alive.push_back(endpoint);
  }
  return alive;
}

std::shared_ptr<DeviceCore> SessionCore::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

std::uint16_t SessionCore::port() const {
  const std::lock_guard lock(mutex_);
  return port_;
}

Result<std::shared_ptr<EndPointCore>> SessionCore::accept(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return !unclaimed_.empty() || state_ >= State::kStopping; };
  if (!wait(changed_, lock, deadline, over)) {
    return make_error(Errc::kTimeout, "no client connected to port " + std::to_string(port_) + " in time");
  }
  if (unclaimed_.empty() || state_ >= State::kStopping) return is_stopped();
  std::shared_ptr<EndPointCore> endpoint = std::move(unclaimed_.front());
  unclaimed_.pop_front();
  return endpoint;
}

}  // namespace rdmacomm
