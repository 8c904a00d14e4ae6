// handshake.h - the messages of a connection: framing, types, and the payloads that this layer defines.
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
/// The longest OFFER, ANSWER or CHANNEL. An EndPointDescription with the maximum of everything takes 161 KiB.
inline constexpr std::size_t kMaxOfferBytes = std::size_t{192} << 10;

/// The type of a message. The numbers are sent on the wire.
enum class MessageType : std::uint16_t {
  kHello = 1,      ///< identifies the sender; the first message in each direction
  kOffer = 2,      ///< the client's queue pairs and regions; opaque here
  kAnswer = 3,     ///< the server's; opaque here
  kBarrier = 4,    ///< "I have reached this tag"
  kReject = 5,     ///< "I end the connection, because": the sender's last message
  kGoodbye = 6,    ///< "I end the connection in order": the sender's last message
  kUser = 7,       ///< the application's bytes
  kHeartbeat = 8,  ///< the sender is alive; the receiver ignores its content
  kChannel = 9,    ///< for one more channel; opaque here
};
[[nodiscard]] const char* to_text(MessageType type) noexcept;  ///< "HELLO", "OFFER", ...
/// The longest payload that a message of this type may have. Never more than kMaxPayloadBytes.
[[nodiscard]] std::size_t max_payload_bytes(MessageType type) noexcept;

/// The first 12 bytes of each message: magic u32, version u16, type u16, length u32. This layout is the same in every
/// version, so that peers of different versions can report the mismatch. A value.
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

/// Assembles messages from a stream of bytes. Fails as soon as the bytes cannot become a message, and uses at most
/// 64 KiB more memory than the bytes that have arrived, whatever length a header states.
/// Threads: one at a time.
class MessageAssembler {
 public:
  /// Where to store the next bytes of the stream. Never empty, except after an error.
  [[nodiscard]] std::span<std::byte> room();
  /// The first `count` bytes of room() are filled. Returns as MessageHeader::decode(); after an error the stream cannot
  /// be used any more.
  [[nodiscard]] Status filled(std::size_t count);
  /// The message, once it is complete. After that the next message begins.
  [[nodiscard]] std::optional<Message> take();
  /// Whether a message has arrived in part.
  [[nodiscard]] bool in_the_middle() const noexcept { return header_filled_ > 0; }
  /// Whether the current message began with our magic: its sender uses some version of this protocol.
  [[nodiscard]] bool magic_seen() const noexcept;
  /// From now on a header with a longer payload is an error (kBadMessage).
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

/// The payload of kHello: identifies the sender. A value.
struct Hello {
  std::string node = {};  ///< host name; at most 255 bytes
  std::uint32_t pid = 0;
  std::uint64_t instance = 0;  ///< random: distinguishes two sessions, even of one process
  std::uint32_t features = 0;  ///< optional features that are offered; none yet; unknown bits are ignored

  /// A Hello for this host and process, with a new random instance.
  [[nodiscard]] static Hello of_this_process();
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, or bytes left over. Unprintable bytes of the node name become '?'.
  [[nodiscard]] static Result<Hello> decode(std::span<const std::byte> payload);
};

/// The payload of kReject: why the sender ends the connection. A value.
struct Reject {
  Errc code = Errc::kPeerRefused;
  std::string reason = {};  ///< one line; at most 2000 bytes are sent

  /// The Reject to send for `error`. Codes of other categories than Errc become kPeerRefused.
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
