#include "rdmacomm/completion.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "channel/channel_core.h"
#include "device/device_core.h"
#include "rdmacomm/deadline.h"
#include "verbs/describe.h"
#include "verbs/transport.h"

namespace rdmacomm {
namespace {

// "to QPN 0x000211", or nothing if the channel is not connected.
std::string peer_text(const RDMAChannel& channel) {
  const auto& remote = channel.remote_address();
  if (!remote) return {};
  char text[32];
  std::snprintf(text, sizeof(text), " to QPN 0x%06x", remote->qpn);
  return text;
}

// How long to wait until the port reports that it is down. A request on a link that is going down fails before the port
// reports that. No wait for the other errors: when retries run out because the peer's link is down, and when siw
// flushes requests, the port has reported it already (rxe and siw of Linux 6.1). Besides, flushes are too many to wait
// for each.
constexpr std::chrono::milliseconds kPortLag{200};

// ok, or the error that the port is down.
Status ask_port(const DeviceCore& device, Errc error) {
  const Deadline deadline = Deadline::after(error == Errc::kLocalQueuePair ? kPortLag : std::chrono::milliseconds(0));
  for (;;) {
    Status port = device.check_port();
    if (!port.ok() || deadline.passed()) return port;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// The likely cause of the failure, and the next step.
std::string advice(const RDMAChannel* channel, Errc error) {
  const std::string text(verbs::completion_advice(error));
  const bool is_queue_pair = channel != nullptr && error == Errc::kLocalQueuePair;
  if (!is_queue_pair || !verbs::fails_with_connection(*core_of(*channel).adapter().device().context())) return text;
  return "its connection has ended (the endpoint's status has the reason), or " + text;
}

Status failure(const Completion& completion, const std::string& advice) {
  const RDMAChannel* const channel = completion.channel;
  std::string text = std::string(to_text(completion.operation)) + " with id " + std::to_string(completion.id);
  if (channel != nullptr) text += " on channel \"" + channel->name() + "\"" + peer_text(*channel);
  text += " failed: " + advice;
  if (completion.vendor_error != 0) text += "; vendor error " + std::to_string(completion.vendor_error);
  return make_error(completion.error, text);
}

}  // namespace

const char* to_text(Operation operation) noexcept {
  switch (operation) {
    case Operation::kSend: return "SEND";
    case Operation::kWrite: return "WRITE";
    case Operation::kWriteImm: return "WRITE_WITH_IMM";
    case Operation::kRead: return "READ";
    case Operation::kFetchAdd: return "FETCH_ADD";
    case Operation::kCompareSwap: return "COMPARE_SWAP";
    case Operation::kRecv: return "RECV";
    case Operation::kRecvWriteImm: return "RECV (of a WRITE_WITH_IMM)";
  }
  return "unknown operation";
}

Status Completion::status() const {
  return ok() ? Status() : failure(*this, advice(channel, error));
}

// Which requests fail when a port goes down depends on the device, so the port is checked for several codes.
Status Completion::explain() const {
  const bool may_be_the_port =
      error == Errc::kLocalQueuePair || error == Errc::kRetryExceeded || error == Errc::kFlushed;
  if (channel == nullptr || !may_be_the_port) return status();
  const Status port = ask_port(core_of(*channel).adapter().device(), error);
  return port ? status() : failure(*this, port.error().context);
}

}  // namespace rdmacomm
