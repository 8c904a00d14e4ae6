// The public functions of EndPoint, without poll() and wait(), which are in endpoint_poll.cc.
#include "rdmacomm/endpoint.h"

#include <chrono>

#include "endpoint/endpoint_core.h"

namespace rdmacomm {

RDMAChannel& EndPoint::channel(std::string_view name) const {
  if (RDMAChannel* const found = object().channel(name)) return *found;
  std::string there;
  for (const RDMAChannel* each : object().channels()) there += (there.empty() ? "" : ", ") + each->name();
  const std::string what =
      "EndPoint::channel(): no channel has the name '" + std::string(name) + "'; the channels are: " + there;
  detail::die_of_misuse(what.c_str(), nullptr);
}

RDMAChannel* EndPoint::find_channel(std::string_view name) const noexcept {
  return object().channel(name);
}

std::vector<RDMAChannel*> EndPoint::channels() const {
  const auto all = object().channels();
  return {all.begin(), all.end()};
}

Result<RDMAChannel*> EndPoint::open_channel(const ChannelConfig& config, Deadline deadline) const {
  auto opened = object().open_channel(config, deadline);
  if (!opened) return std::move(opened).error();
  return *opened;
}

Result<RemoteRegion> EndPoint::remote_region(std::string_view name) const {
  return object().remote_region(name);
}

std::span<const std::byte> EndPoint::peer_private_data() const {
  return object().peer_private_data();
}

const std::string& EndPoint::peer_address() const {
  return object().connector().peer_address();
}

std::string EndPoint::peer() const {
  return object().peer();
}

const HcaConfig& EndPoint::config() const {
  return object().config();
}

RDMADevice EndPoint::device() const {
  return object().device();
}

ReceivePool EndPoint::receive_pool() const {
  return object().receive_pool();
}

Context& EndPoint::own_context() const {
  return object().context();
}

Status EndPoint::sync_with_peer(std::string_view tag, Deadline deadline) const {
  return object().sync_with_peer(tag, deadline);
}

Status EndPoint::send_message(std::span<const std::byte> message, Deadline deadline) const {
  return object().send_message(message, deadline);
}

Result<std::vector<std::byte>> EndPoint::receive_message(Deadline deadline) const {
  return object().receive_message(deadline);
}

int EndPoint::messages_fd() const {
  return object().connector().watched().fd;
}

int EndPoint::fd() const {
  return object().fd();
}

Status EndPoint::watch(int descriptor, std::uint32_t events, std::function<void(std::uint32_t)> function) const {
  return object().watch(descriptor, events, std::move(function));
}

void EndPoint::unwatch(int descriptor) const noexcept {
  object().unwatch(descriptor);
}

WaitCounts EndPoint::wait_counts() const {
  return object().wait_counts();
}

WaitCounts EndPoint::wait_counts(const RDMAChannel& channel) const {
  return object().wait_counts(core_of(channel));
}

bool EndPoint::alive() const {
  return object().alive();
}

Status EndPoint::status() const {
  return object().status();
}

bool EndPoint::check_alive(std::chrono::milliseconds silent_after) const {
  object().keep_alive(std::chrono::steady_clock::now(), silent_after);
  return object().alive();
}

void EndPoint::stop() const noexcept {
  object().stop();
}

void EndPoint::abort(const Error& reason) const {
  object().fail(reason.code ? reason : make_error(Errc::kAborted, reason.context));
}

Status EndPoint::close() const {
  return object().close();
}

}  // namespace rdmacomm
