// mail.h - the messages between nodes beside the traffic, sent by EndPoint::send_message().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mesh_comm_service/node_result.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// The count of messages in one direction, as one peer sees it. A value.
struct Tally {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t corrupt = 0;    ///< messages that differed from the sent ones
  std::string difference = {};  ///< description of the first of them
};

/// The numbers are sent on the wire.
enum class MailKind : std::uint16_t {
  kReady = 1,     ///< the sender is connected to all other nodes
  kFinished = 2,  ///< everything from the sender to the receiver is complete: `tally`
  kChecked = 3,   ///< everything has arrived at the sender: `tally`; 0 messages if it does not count them
  kResult = 4,    ///< the sender's figures, for the collecting node: `result`
  kOver = 5,      ///< from the collecting node: it has all results, so end
  kStop = 6,      ///< --on-failure=stop: node `rank` is lost, because of `text`
};

/// One message. A value.
struct Mail {
  MailKind kind = MailKind::kReady;
  Tally tally = {};
  std::uint32_t rank = 0;
  std::string text = {};
  NodeResult result = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: not of this version, truncated, or out of range. Text is made safe for terminals.
  [[nodiscard]] static Result<Mail> decode(std::span<const std::byte> bytes);
};
/// An otherwise empty Mail of that kind. (GCC 12 warns of temporaries `{.kind = ...}`, because it takes their strings
/// for uninitialized.)
[[nodiscard]] inline Mail mail_of(MailKind kind) {
  Mail mail;
  mail.kind = kind;
  return mail;
}

}  // namespace rdmacomm::mesh
