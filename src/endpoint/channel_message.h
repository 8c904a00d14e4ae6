// channel_message.h - a message about one more channel. Private to the endpoint layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "connector/handshake.h"
#include "endpoint/endpoint_description.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The payload of kChannel. A value. The numbers are part of the wire format.
struct ChannelMessage {
  enum class Step : std::uint8_t {
    kOffer = 1,    ///< `description`: the sender's end of the channel
    kAnswer = 2,   ///< `description`: the end of the answering process, which is connected
    kReady = 3,    ///< the offering process has connected its end, too
    kRefused = 4,  ///< `refusal`: the reason why the sender does not open the channel
  };

  std::string name = {};  ///< of the channel
  Step step = Step::kReady;
  EndPointDescription description = {};
  Reject refusal = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, bytes left over, an improper name or an unknown step; the context says which
  [[nodiscard]] static Result<ChannelMessage> decode(std::span<const std::byte> payload);
};

}  // namespace rdmacomm
