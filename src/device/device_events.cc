#include "device/device_events.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <utility>

#include "base/logging.h"
#include "base/system_call.h"
#include "verbs/call.h"
#include "verbs/transport.h"

namespace rdmacomm {
namespace {

std::string name_of(const ibv_context& context) {
  return context.device->name;
}

/// If a directory is removed and created again under the same name, it gets another number.
std::optional<ino_t> number_of(const char* directory) {
  struct stat found {};
  if (::stat(directory, &found) != 0) return {};
  return found.st_ino;
}

Error queue_pair_failed(const ibv_async_event& event, const std::string& why) {
  char number[16];
  std::snprintf(number, sizeof(number), "0x%06x", event.element.qp->qp_num);
  return make_error(Errc::kLocalQueuePair, std::string("queue pair ") + number + " of " +
                                               name_of(*event.element.qp->context) + " has failed (" +
                                               ibv_event_type_str(event.event_type) + "): " + why);
}

std::optional<Error> failure_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
      if (verbs::fails_with_connection(*event.element.qp->context)) return {};
      return queue_pair_failed(event, "the device has taken it out of service; the kernel log may say why");
    case IBV_EVENT_QP_REQ_ERR:
      return queue_pair_failed(
          event,
          "the peer sent an invalid request: a message larger than the posted receive, or an operation that is not "
          "enabled for it");
    case IBV_EVENT_QP_ACCESS_ERR:
      return queue_pair_failed(
          event,
          "the peer tried to access memory without permission; check the rkey and the address range that it uses");
    case IBV_EVENT_CQ_ERR:
      return make_error(Errc::kCompletionFailed, "a completion queue of " + name_of(*event.element.cq->context) +
                                                     " has failed: it was overrun, or the device had an error");
    case IBV_EVENT_SRQ_ERR:
      return make_error(Errc::kLocalQueuePair, "a shared receive queue of " + name_of(*event.element.srq->context) +
                                                   " has failed: the device had an error");
    default: return {};
  }
}

void log_event(const ibv_context& context, const ibv_async_event& event) {
  const std::string port = name_of(context) + " port " + std::to_string(event.element.port_num);
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      RDMACOMM_LOG(WARNING)
          << port << " has lost its link; its connections survive if the link returns before their retries are used up";
      return;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER: RDMACOMM_VLOG(1) << port << ": " << ibv_event_type_str(event.event_type); return;
    default: RDMACOMM_VLOG(2) << name_of(context) << ": " << ibv_event_type_str(event.event_type);
  }
}

}  // namespace

// Subscriptions -------------------------------------------------------------------------------------------------------

DeviceEvents::Subscription::Subscription(Subscription&& other) noexcept
    : events_(std::exchange(other.events_, nullptr)), id_(other.id_) {}

DeviceEvents::Subscription& DeviceEvents::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    reset();
    events_ = std::exchange(other.events_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void DeviceEvents::Subscription::reset() noexcept {
  if (DeviceEvents* events = std::exchange(events_, nullptr)) events->unsubscribe(id_);
}

DeviceEvents::DeviceEvents(const verbs::Api& api, ibv_context& context)
    : api_(api), context_(context), directory_(number_of(context.device->dev_path)) {}

Result<DeviceEvents::Subscription> DeviceEvents::subscribe(std::function<void(const DeviceEvent&)> function) {
  if (!function) return make_error(Errc::kInvalidArgument, "subscribe() needs a function to call");
  const std::lock_guard lock(mutex_);
  if (!readable_) {
    const std::string what = "watch the events of " + name_of(context_);
    const int flags = fcntl(fd(), F_GETFL);
    Status status = verbs::from_minus_one(flags, what);
    if (status) status = verbs::from_minus_one(fcntl(fd(), F_SETFL, flags | O_NONBLOCK), what);
    if (!status) return status.error();
    readable_ = true;
  }
  subscribers_.emplace(++last_id_, std::move(function));
  return Subscription(*this, last_id_);
}

void DeviceEvents::unsubscribe(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  subscribers_.erase(id);
}

// Taking --------------------------------------------------------------------------------------------------------------

void DeviceEvents::take() {
  const std::lock_guard lock(mutex_);
  if (!readable_ || !health()) return;
  read_all();
  look_for_device();
}

void DeviceEvents::read_all() {
  while (health()) {
    ibv_async_event event{};
    const Status got = verbs::from_minus_one(api_.get_async_event(&context_, &event), "");
    if (got.code() == std::errc::interrupted) continue;
    if (got.code() == std::errc::operation_would_block) return;
    if (!got) return lose_device("its events cannot be read any more: " + got.code().message());
    /// Acknowledges in every case: a queue pair is not destroyed before its events are acknowledged.
    struct Acknowledged {
      const verbs::Api& api;
      ibv_async_event& event;
      ~Acknowledged() { api.ack_async_event(&event); }
    };
    const Acknowledged acknowledged{api_, event};
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
      lose_device(std::string("it reports: ") + ibv_event_type_str(event.event_type));
    } else {
      log_event(context_, event);
      show({event, failure_of(event)});
    }
  }
}

void DeviceEvents::show(const DeviceEvent& event) {
  for (const auto& [id, function] : subscribers_) function(event);
}

/// Some drivers cannot remove a device that is in use: they wait for its users, without an event. Then only the missing
/// directory shows the removal.
void DeviceEvents::look_for_device() {
  if (!directory_ || !health()) return;
  const auto now = number_of(context_.device->dev_path);
  const bool unknown = !now && last_system_error() != std::errc::no_such_file_or_directory;
  if (unknown || now == directory_) return;
  lose_device(std::string(context_.device->dev_path) + " no longer exists");
}

void DeviceEvents::lose_device(const std::string& why) {
  Error lost = make_error(Errc::kDeviceLost, "the RDMA device " + name_of(context_) +
                                                 " was removed, or has failed: " + why + "; see the kernel log");
  {
    const std::lock_guard lock(failure_mutex_);
    failure_ = lost;
  }
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  show({event, std::move(lost)});
}

Status DeviceEvents::health() const {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) return *failure_;
  return {};
}

}  // namespace rdmacomm
