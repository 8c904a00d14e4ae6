#include "session/session_core.h"

#include <utility>

#include "base/out_of_memory.h"
#include "session/stopped_error.h"

namespace rdmacomm {

SessionCore::SessionCore(std::shared_ptr<SessionHooks> hooks, bool wants_completions, SessionOptions options,
                         bool is_server)
    : hooks_(std::move(hooks), wants_completions),
      options_(std::move(options)),
      is_server_(is_server),
      host_(options_.queues_of != nullptr ? &options_.queues_of->core() : nullptr),
      hello_(Hello::of_this_process()),
      acceptor_(options_, loop_, kListenerId, handshakes_,
                [this](Id id, const std::shared_ptr<Connector>& connector) { set_up_server(id, connector); }),
      registry_(options_, is_server, loop_, kFirstEndPointId),
      queues_(hooks_, *this, host_ != nullptr ? &host_->queues_ : nullptr) {}

SessionCore::~SessionCore() {
  stop();
  // The threads of the session, of which this is one, would use it after its destruction.
  if (is_inside()) detail::die_of_misuse("a session was destroyed, or assigned to, by one of its own hooks", nullptr);
}

/// Sets state_; nothing else does.
void SessionCore::move_to(State next) {
  state_ = next;
  changed_.notify_all();
}

bool SessionCore::stopped() const {
  const std::lock_guard lock(mutex_);
  return state_ >= State::kStopping;
}

std::shared_ptr<DeviceCore> SessionCore::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

Result<std::shared_ptr<EndPointCore>> SessionCore::accept(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kNew)
      return make_error(Errc::kWrongState, "the session was not started, so no client can connect");
  }
  return registry_.accept(deadline, port());
}

// Starting ------------------------------------------------------------------------------------------------------------

Status SessionCore::start_server() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kStarting || state_ == State::kRunning) {
      return make_error(Errc::kWrongState, "the session was already started");
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
  if (state_ != State::kNew) return stopped_error();
  move_to(State::kStarting);
  lock.unlock();
  Status started = or_out_of_memory([&] { return start_up(address, reached_by); });
  if (started) return {};
  stop_listening();
  lock.lock();
  if (state_ == State::kStopping) {  // stop() was called meanwhile, also by a hook
    move_to(State::kStopped);
    return stopped_error();
  }
  move_to(State::kNew);
  return started;
}

/// Stops accepting clients and receiving events of the device.
void SessionCore::stop_listening() {
  acceptor_.close();
  device_events_.reset();
}

/// If it succeeds, the session runs, and from then on its control thread carries out stop().
Status SessionCore::start_up(const HostPort& address, Deadline reached_by) {
  const InsideThreads::Guard inside(inside_);
  Status status = options_.validate();
  if (status) status = make_events();
  if (status) status = open_device(address, reached_by);
  if (status) status = check_host();
  if (status && !initialised_) status = hooks_.init_session(device());
  if (!status) return status;
  initialised_ = true;
  if (is_server_) status = acceptor_.open(*device(), {.deadline = reached_by, .cancel_fd = loop_.stop_fd()});
  return status ? open_control() : status;
}

Status SessionCore::check_host() const {
  if (host_ == nullptr) return {};
  if (host_->host_ != nullptr) {
    return make_error(Errc::kInvalidArgument,
                      "SessionOptions::queues_of is a session that itself uses the queues of another session: set that "
                      "other session");
  }
  if (host_->device() == device()) return {};
  return make_error(
      Errc::kInvalidArgument,
      "SessionOptions::queues_of is not started, or is on another device: give both sessions the same shared_device");
}

/// The first step, because stop() also ends a search for the server's address.
Status SessionCore::make_events() {
  const std::lock_guard lock(mutex_);
  return state_ == State::kStopping ? stopped_error() : loop_.make_events();
}

Status SessionCore::open_device(const HostPort& address, Deadline reached_by) {
  if (device()) return {};
  std::shared_ptr<DeviceCore> device = options_.shared_device.core();
  if (!device) {
    auto opened = rdmacomm::open_device(options_.device, {.address = address,
                                                          .is_server = is_server_,
                                                          .connector = options_.connector,
                                                          .find_by = reached_by,
                                                          .cancel_fd = loop_.stop_fd()});
    if (!opened) return opened.status();
    device = opened->core();
  }
  queues_.open(device);
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
  return {};
}

Status SessionCore::open_control() {
  if (Status status = loop_.open(); !status) return status;
  if (Status status = watch_device(); !status) return status;
  const std::lock_guard lock(mutex_);
  if (state_ == State::kStopping) return stopped_error();
  if (Status started = loop_.start(*this, inside_); !started) return started;
  move_to(State::kRunning);
  return {};
}

// Stopping ------------------------------------------------------------------------------------------------------------

void SessionCore::stop() {
  std::vector<std::shared_ptr<Connector>> under_way;  // filled by the first call of stop()
  {
    const std::lock_guard lock(mutex_);
    if (state_ < State::kStopping) {
      move_to(state_ == State::kNew ? State::kStopped : State::kStopping);
      under_way = handshakes_.stop();
      registry_.close();
      queues_.close();
      loop_.stop();  // last, because the control thread then begins to tear down
    }
  }
  // Not done by the control thread, because it may be in a hook that is in the middle of a handshake.
  for (const auto& connector : under_way) {
    connector->refuse(being_stopped_error());
    connector->shutdown();
  }
  if (is_inside()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::kStopped; });
  lock.unlock();
  loop_.join();
}

/// Whether this thread may be in a hook of this session.
bool SessionCore::is_inside() const {
  return inside_.contains_this_one() || queues_.serves_here();
}

}  // namespace rdmacomm
