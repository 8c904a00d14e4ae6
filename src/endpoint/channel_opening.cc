#include "endpoint/channel_opening.h"

namespace rdmacomm {

// The inbox -----------------------------------------------------------------------------------------------------------

Result<ChannelMessage> ChannelInbox::next(Connector& connector, const std::string& name, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::deque<ChannelMessage>& mine = messages_[name];
    if (!mine.empty()) {
      ChannelMessage message = std::move(mine.front());
      mine.pop_front();
      --count_;
      return message;
    }
    if (!turn_.taken()) {
      if (Status read = read_one(lock, connector, deadline); !read) return read.error();
    } else if (!turn_.follow(lock, deadline)) {
      return make_error(Errc::kTimeout, connector.peer_text() + " did not answer in time");
    }
  }
}

/// If it fails, the other waiting threads fail by themselves.
Status ChannelInbox::read_one(std::unique_lock<std::mutex>& lock, Connector& connector, Deadline deadline) {
  const auto payload = turn_.lead(lock, [&] { return connector.receive_message(MessageType::kChannel, deadline); });
  if (!payload) return payload.status();
  auto message = ChannelMessage::decode(*payload);
  if (!message) return make_error(message.code(), connector.peer_text() + " sent " + message.error().context);
  if (count_ == kMax)
    return make_error(Errc::kBadMessage, connector.peer_text() + " sent more than " + std::to_string(kMax) +
                                             " unexpected messages about channels");
  ++count_;
  messages_[message->name].push_back(std::move(*message));
  return {};
}

// The opening ---------------------------------------------------------------------------------------------------------

Status ChannelOpening::send(ChannelMessage::Step step, EndPointDescription description) {
  const ChannelMessage message{.name = name_, .step = step, .description = std::move(description)};
  return connector_.send_message(MessageType::kChannel, message.encode(), deadline_);
}

void ChannelOpening::refuse(const Error& why) {
  if (over_) return;
  over_ = true;
  const ChannelMessage message{.name = name_, .step = ChannelMessage::Step::kRefused, .refusal = Reject::of(why)};
  // If this message is lost, the peer notices at its deadline.
  (void)connector_.send_message(MessageType::kChannel, message.encode(), Deadline::after(std::chrono::seconds(1)));
}

Result<EndPointDescription> ChannelOpening::receive(ChannelMessage::Step step) {
  auto message = inbox_.next(connector_, name_, deadline_);
  if (!message) return message.error();
  if (message->step == step) return std::move(message->description);
  over_ = message->step == ChannelMessage::Step::kRefused;
  if (over_) {
    return make_error(Errc::kPeerRefused, connector_.peer_text() + " refuses: " + message->refusal.reason);
  }
  return make_error(Errc::kBadMessage, connector_.peer_text() + " sent a message about a channel at the wrong time");
}

}  // namespace rdmacomm
