#include "connector/handshake.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/printable.h"
#include "base/wire.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kPayloadStep = std::size_t{64} << 10;
constexpr std::size_t kMaxReasonBytes = 2000;
constexpr std::size_t kMaxTagBytes = 255;

std::string hex_and_text(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x ", static_cast<unsigned>(byte));
    hex += digits;
  }
  if (!hex.empty()) hex.pop_back();
  return hex + " \"" + printable({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, bytes.size()) + "\"";
}

Error no_message(std::span<const std::byte> bytes) {
  return make_error(Errc::kBadMessage, "bytes that are not an rdmacomm message: " + hex_and_text(bytes) +
                                           "; does another program use this port?");
}

bool can_be_magic(std::span<const std::byte> prefix) {
  for (std::size_t i = 0; i < std::min(prefix.size(), sizeof(kHandshakeMagic)); ++i) {
    if (prefix[i] != static_cast<std::byte>(kHandshakeMagic >> (8 * i))) return false;
  }
  return true;
}

Error wrong_payload(const char* what, std::size_t bytes) {
  return make_error(Errc::kBadMessage, std::string("a message ") + what + " of " + std::to_string(bytes) +
                                           " bytes with a layout that this version does not know");
}

Error too_long(const MessageHeader& header, std::size_t most) {
  return make_error(Errc::kBadMessage, std::string("a message ") + to_text(header.type) + " of " +
                                           std::to_string(header.length) + " bytes; at most " + std::to_string(most) +
                                           " are allowed");
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  // Must not block at an early boot without entropy. If two instances then start in one clock tick, their pids differ.
  if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number)) return number;
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
}

}  // namespace

const char* to_text(MessageType type) noexcept {
  switch (type) {
    case MessageType::kHello: return "HELLO";
    case MessageType::kOffer: return "OFFER";
    case MessageType::kAnswer: return "ANSWER";
    case MessageType::kBarrier: return "BARRIER";
    case MessageType::kReject: return "REJECT";
    case MessageType::kGoodbye: return "GOODBYE";
    case MessageType::kUser: return "USER";
    case MessageType::kHeartbeat: return "HEARTBEAT";
    case MessageType::kChannel: return "CHANNEL";
  }
  return "unknown";
}

std::size_t max_payload_bytes(MessageType type) noexcept {
  switch (type) {
    case MessageType::kHello: return 1024;
    case MessageType::kBarrier: return 2 + kMaxTagBytes;  // a text: its length, and the longest tag
    case MessageType::kReject: return 4096;
    case MessageType::kOffer:
    case MessageType::kAnswer:
    case MessageType::kChannel: return kMaxOfferBytes;
    case MessageType::kGoodbye:
    case MessageType::kHeartbeat: return 0;
    default: return kMaxPayloadBytes;
  }
}

std::array<std::byte, kMessageHeaderBytes> MessageHeader::encode() const {
  WireWriter writer;
  writer.put(kHandshakeMagic);
  writer.put(version);
  writer.put(static_cast<std::uint16_t>(type));
  writer.put(length);
  std::array<std::byte, kMessageHeaderBytes> bytes{};
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

Result<MessageHeader> MessageHeader::decode(std::span<const std::byte, kMessageHeaderBytes> bytes) {
  WireReader reader(bytes);
  if (reader.get<std::uint32_t>() != kHandshakeMagic) return no_message(bytes);
  MessageHeader header;
  header.version = reader.get<std::uint16_t>();
  if (header.version != kHandshakeVersion) {
    return make_error(Errc::kVersionMismatch, "a message of handshake version " + std::to_string(header.version) +
                                                  "; version " + std::to_string(kHandshakeVersion) +
                                                  " was expected; update the older program");
  }
  const auto type = reader.get<std::uint16_t>();
  if (type < static_cast<unsigned>(MessageType::kHello) || type > static_cast<unsigned>(MessageType::kChannel)) {
    return make_error(Errc::kBadMessage,
                      "a message of type " + std::to_string(type) + ", which this version does not know");
  }
  header.type = static_cast<MessageType>(type);
  header.length = reader.get<std::uint32_t>();
  if (header.length > max_payload_bytes(header.type)) return too_long(header, max_payload_bytes(header.type));
  return header;
}

Result<std::vector<std::byte>> frame_message(MessageType type, std::span<const std::byte> payload) {
  if (payload.size() > max_payload_bytes(type)) {
    return make_error(Errc::kInvalidArgument, std::string("cannot send a message ") + to_text(type) + " of " +
                                                  std::to_string(payload.size()) + " bytes: at most " +
                                                  std::to_string(max_payload_bytes(type)) + " fit into one");
  }
  const auto header = MessageHeader{.type = type, .length = static_cast<std::uint32_t>(payload.size())}.encode();
  std::vector<std::byte> frame;
  frame.reserve(header.size() + payload.size());
  frame.insert(frame.end(), header.begin(), header.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

std::span<std::byte> MessageAssembler::room() {
  if (!header_) return std::span(header_bytes_).subspan(header_filled_);
  if (payload_filled_ == payload_.size()) {
    payload_.resize(std::min<std::size_t>(header_->length, payload_.size() + kPayloadStep));
  }
  return std::span(payload_).subspan(payload_filled_);
}

Status MessageAssembler::filled(std::size_t count) {
  if (!header_) return header_filled(count);
  payload_filled_ += count;
  return {};
}

Status MessageAssembler::header_filled(std::size_t count) {
  header_filled_ += count;
  const auto so_far = std::span(header_bytes_).first(header_filled_);
  // Checked before all 12 bytes have arrived, so that a client that sends "GET /" and waits is detected at once, not at
  // a deadline.
  if (!can_be_magic(so_far)) return no_message(so_far);
  if (header_filled_ < kMessageHeaderBytes) return {};
  auto header = MessageHeader::decode(header_bytes_);
  if (!header) return header.status();
  if (header->length > limit_) return too_long(*header, limit_);
  header_ = *header;
  return {};
}

bool MessageAssembler::magic_seen() const noexcept {
  return header_filled_ >= sizeof(kHandshakeMagic) && can_be_magic(header_bytes_);
}

std::optional<Message> MessageAssembler::take() {
  if (!header_ || payload_filled_ < header_->length) return {};
  Message message{header_->type, std::move(payload_)};
  MessageAssembler next;
  next.limit(limit_);
  *this = std::move(next);
  return message;
}

Hello Hello::of_this_process() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return {.node = name, .pid = static_cast<std::uint32_t>(getpid()), .instance = random_number()};
}

std::vector<std::byte> Hello::encode() const {
  WireWriter writer;
  writer.put_text(std::string_view(node).substr(0, 255));
  writer.put(pid);
  writer.put(instance);
  writer.put(features);
  return writer.take();
}

Result<Hello> Hello::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  Hello hello;
  hello.node = printable(reader.get_text(), 255);
  hello.pid = reader.get<std::uint32_t>();
  hello.instance = reader.get<std::uint64_t>();
  hello.features = reader.get<std::uint32_t>();
  if (!reader.ok() || reader.remaining() > 0) return wrong_payload("HELLO", payload.size());
  return hello;
}

Reject Reject::of(const Error& error) {
  const bool ours = error.code.category() == errc_category() && error.code.value() != 0;
  if (ours) return {static_cast<Errc>(error.code.value()), error.reason()};
  return {Errc::kPeerRefused, error.message()};  // the code is not sent, because it is the system's; its text is
}

std::vector<std::byte> Reject::encode() const {
  WireWriter writer;
  writer.put(static_cast<std::uint16_t>(code));
  writer.put_text(printable(reason, kMaxReasonBytes));
  return writer.take();
}

Result<Reject> Reject::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  Reject reject;
  const auto code = reader.get<std::uint16_t>();
  reject.reason = printable(reader.get_text(), kMaxReasonBytes);
  if (!reader.ok() || reader.remaining() > 0) return wrong_payload("REJECT", payload.size());
  const bool known = code > static_cast<unsigned>(Errc::kOk) && code <= static_cast<unsigned>(kMaxErrc);
  reject.code = known ? static_cast<Errc>(code) : Errc::kPeerRefused;
  return reject;
}

std::vector<std::byte> BarrierTag::encode() const {
  WireWriter writer;
  writer.put_text(printable(text, kMaxTagBytes));
  return writer.take();
}

Result<BarrierTag> BarrierTag::decode(std::span<const std::byte> payload) {
  WireReader reader(payload);
  BarrierTag tag{.text = printable(reader.get_text(), kMaxTagBytes)};
  if (!reader.ok() || reader.remaining() > 0) return wrong_payload("BARRIER", payload.size());
  return tag;
}

}  // namespace rdmacomm
