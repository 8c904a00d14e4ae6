#include "endpoint/channel_message.h"

#include "base/check_name.h"
#include "base/wire.h"

namespace rdmacomm {
namespace {

Error bad_channel_message(const std::string& why) {
  return make_error(Errc::kBadMessage, "a malformed message about a channel: " + why);
}

}  // namespace

std::vector<std::byte> ChannelMessage::encode() const {
  WireWriter writer;
  writer.put_text(name);
  writer.put(static_cast<std::uint8_t>(step));
  if (step == Step::kRefused) writer.put_bytes(refusal.encode());
  if (step == Step::kOffer || step == Step::kAnswer) writer.put_bytes(description.encode());
  return writer.take();
}

Result<ChannelMessage> ChannelMessage::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  ChannelMessage message;
  message.name = reader.get_text();
  const auto step = reader.get<std::uint8_t>();
  if (!reader.ok()) return bad_channel_message("it is incomplete");
  if (!check_name("channel", message.name)) return bad_channel_message("its channel name is not valid");
  if (step < 1 || step > 4) return bad_channel_message("its kind " + std::to_string(step) + " is unknown");
  message.step = static_cast<Step>(step);
  const auto rest = reader.take(reader.remaining());
  if (message.step == Step::kReady) {
    if (!rest.empty()) return bad_channel_message("it has " + std::to_string(rest.size()) + " extra bytes at its end");
    return message;
  }
  if (message.step == Step::kRefused) {
    auto refusal = Reject::decode(rest);
    if (!refusal) return refusal.error();
    message.refusal = std::move(*refusal);
    return message;
  }
  auto description = EndPointDescription::decode(rest);
  if (!description) return description.error();
  if (description->channel(message.name) == nullptr) return bad_channel_message("its queue pair is missing");
  message.description = std::move(*description);
  return message;
}

}  // namespace rdmacomm
