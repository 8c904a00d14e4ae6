// handshake.h - the messages of a connection: framing, types, and the contents this layer knows.
// Layer: connector. Uses: base.   Wire form: docs/wire_format.md "Handshake messages"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm {

inline constexpr std::uint32_t kHandshakeMagic = 0x4d434452;  ///< the bytes "RDCM" on the wire
inline constexpr std::uint16_t kHandshakeVersion = 1;
inline constexpr std::size_t kMessageHeaderBytes = 12;
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{1} << 20;
/// The longest OFFER, ANSWER or CHANNEL: an EndPointCard with as much of everything as it may have takes 161 KiB.
inline constexpr std::size_t kMaxOfferBytes = std::size_t{192} << 10;

/// What a message is. The numbers travel.
enum class MessageType : std::uint16_t {
  kHello = 1,      ///< who is there; the first message of each side
  kOffer = 2,      ///< the client's queue pairs and regions; opaque here
  kAnswer = 3,     ///< the server's; opaque here
  kBarrier = 4,    ///< "I have reached this tag"
  kReject = 5,     ///< "I end this, because": the last message of its sender
  kGoodbye = 6,    ///< "I end this in order": the last message of its sender
  kUser = 7,       ///< the application's bytes
  kHeartbeat = 8,  ///< "I live"; nothing is done with it
  kChannel = 9,    ///< about one more channel; opaque here
};
[[nodiscard]] const char* to_text(MessageType type) noexcept;  ///< "HELLO", "OFFER", ...
/// The longest payload that a message of this type may have. Never more than kMaxPayloadBytes.
[[nodiscard]] std::size_t max_payload_bytes(MessageType type) noexcept;

/// The first 12 bytes of each message: magic u32, version u16, type u16, length u32. This layout is the same
/// in every version, so that sides of different versions can at least say so. A value.
struct MessageHeader {
  std::uint16_t version = kHandshakeVersion;
  MessageType type = MessageType::kUser;
  std::uint32_t length = 0;  ///< bytes of payload that follow

  [[nodiscard]] std::array<std::byte, kMessageHeaderBytes> encode() const;
  /// Returns  kBadMessage: wrong magic (the context shows the bytes), unknown type, or a length beyond the
  ///          type's maximum (the context has both numbers); kVersionMismatch: the context names both versions
  [[nodiscard]] static Result<MessageHeader> decode(std::span<const std::byte, kMessageHeaderBytes> bytes);
};

/// One message. A value.
struct Message {
  MessageType type = MessageType::kUser;
  std::vector<std::byte> payload = {};
};

/// Header and payload as one byte string, ready to send.
/// kInvalidArgument: the payload is longer than max_payload_bytes(type); the context has both numbers.
[[nodiscard]] Result<std::vector<std::byte>> frame_message(MessageType type, std::span<const std::byte> payload);

/// Makes messages of a stream of bytes. Fails as soon as the bytes cannot become a message any more, and
/// keeps no more memory than has really arrived (plus 64 KiB), whatever length a header promises.
/// Threads: one at a time.
class MessageAssembler {
 public:
  /// Where the next bytes of the stream go: never empty, unless an error was returned before.
  [[nodiscard]] std::span<std::byte> room();
  /// Says that the first `count` bytes of room() are filled. Returns as MessageHeader::decode(); after an error
  /// the stream is of no more use.
  [[nodiscard]] Status filled(std::size_t count);
  /// The message, once it is complete; then the next one begins.
  [[nodiscard]] std::optional<Message> take();
  /// Whether some bytes of a message have arrived, and not all of them.
  [[nodiscard]] bool in_the_middle() const noexcept { return header_filled_ > 0; }
  /// Whether the message under way began with our magic: its sender speaks some version of this protocol.
  [[nodiscard]] bool magic_seen() const noexcept;
  /// Headers that promise more bytes than this are errors from now on (kBadMessage).
  void limit(std::size_t payload_bytes) noexcept { limit_ = payload_bytes; }

 private:
  Status header_filled(std::size_t count);

  std::size_t limit_ = kMaxPayloadBytes;
  std::array<std::byte, kMessageHeaderBytes> header_bytes_{};
  std::size_t header_filled_ = 0;
  std::optional<MessageHeader> header_;
  std::vector<std::byte> payload_;
  std::size_t payload_filled_ = 0;
};

/// The payload of kHello: who speaks. A value.
struct Hello {
  std::string node = {};  ///< host name; at most 255 bytes
  std::uint32_t pid = 0;
  std::uint64_t instance = 0;  ///< random: tells two sessions apart, even of one process
  std::uint32_t features = 0;  ///< offered optional features; none yet; unknown bits are ignored

  /// Of this host and process, with a new random instance.
  [[nodiscard]] static Hello of_this_process();
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, or bytes left over. Unprintable bytes of the node name become '?'.
  [[nodiscard]] static Result<Hello> decode(std::span<const std::byte> payload);
};

/// The payload of kReject: why the sender ends the connection. A value.
struct Reject {
  Errc code = Errc::kPeerRefused;
  std::string reason = {};  ///< one line; at most 2000 bytes are sent

  /// What to tell a peer of `error`. Codes of other categories than Errc become kPeerRefused.
  [[nodiscard]] static Reject of(const Error& error);
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, or bytes left over. Unprintable bytes of the reason become '?'.
  [[nodiscard]] static Result<Reject> decode(std::span<const std::byte> payload);
};

/// The payload of kBarrier. A value.
struct BarrierTag {
  std::string text = {};  ///< one line; at most 255 bytes are sent

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, or bytes left over. Unprintable bytes become '?'.
  [[nodiscard]] static Result<BarrierTag> decode(std::span<const std::byte> payload);
};

}  // namespace rdmacomm
