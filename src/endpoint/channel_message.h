// channel_message.h - a message about one more channel. Private to the endpoint layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "connector/handshake.h"
#include "endpoint/endpoint_card.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The payload of kChannel. A value. The numbers travel.
struct ChannelMessage {
  enum class Step : std::uint8_t {
    kOffer = 1,    ///< `card`: the sender's end of the channel
    kAnswer = 2,   ///< `card`: the other end, which is connected
    kReady = 3,    ///< so is the first
    kRefused = 4,  ///< `refusal`: why the sender has no such channel
  };

  std::string name = {};  ///< of the channel
  Step step = Step::kReady;
  EndPointCard card = {};
  Reject refusal = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, bytes left over, an improper name or an unknown step; the context says which
  [[nodiscard]] static Result<ChannelMessage> decode(std::span<const std::byte> payload);
};

}  // namespace rdmacomm
