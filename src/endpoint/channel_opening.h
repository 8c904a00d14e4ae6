// channel_opening.h - the exchange of messages that opens one more channel. Private to the endpoint layer.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "base/turn.h"
#include "connector/connector.h"
#include "endpoint/channel_message.h"
#include "endpoint/endpoint_description.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Received messages about channels, for threads that open different channels at the same time. Each thread gets the
/// messages for its channel, whichever thread has read them.
/// Threads: any.
class ChannelInbox {
 public:
  /// Waits for the next message about channel `name`.
  /// Returns  as Connector::receive_message; kBadMessage also: more than kMax messages are stored that no thread takes
  [[nodiscard]] Result<ChannelMessage> next(Connector& connector, const std::string& name, Deadline deadline);
  static constexpr std::size_t kMax = 1024;

 private:
  Status read_one(std::unique_lock<std::mutex>& lock, Connector& connector, Deadline deadline);

  std::mutex mutex_;  // guards the members below
  Turn<> turn_;
  std::size_t count_ = 0;
  std::map<std::string, std::deque<ChannelMessage>> messages_;
};

/// The exchange about one channel.
class ChannelOpening {
 public:
  ChannelOpening(Connector& connector, ChannelInbox& inbox, std::string name, Deadline deadline)
      : connector_(connector),
        inbox_(inbox),
        name_(std::move(name)),

        deadline_(deadline) {}

  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  [[nodiscard]] Status send(ChannelMessage::Step step, EndPointDescription description = {});
  /// Tells the peer why the channel is not opened, unless the peer has refused it.
  void refuse(const Error& why);
  /// The description in the next message of the peer about the channel.
  /// Returns  kPeerRefused: the peer refuses, and gives a reason; kBadMessage: it is at another step; or as
  ///          ChannelInbox::next
  [[nodiscard]] Result<EndPointDescription> receive(ChannelMessage::Step step);

 private:
  Connector& connector_;
  ChannelInbox& inbox_;
  const std::string name_;
  const Deadline deadline_;
  bool over_ = false;  // the peer has refused
};

}  // namespace rdmacomm
