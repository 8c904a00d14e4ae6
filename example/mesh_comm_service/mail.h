// mail.h - what nodes tell each other beside the traffic, by EndPoint::send_message().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mesh_comm_service/node_result.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// What one side knows of the messages of one stream. A value.
struct Tally {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t corrupt = 0;    ///< messages that were not what was sent
  std::string difference = {};  ///< in the first of them
};

/// The numbers travel.
enum class MailKind : std::uint16_t {
  kReady = 1,     ///< I am connected with all nodes that are there
  kFinished = 2,  ///< all that I send you is complete: `tally`
  kChecked = 3,   ///< all of it is here: `tally`; 0 messages where this side does not count them
  kResult = 4,    ///< my figures, to the node that collects them: `result`
  kOver = 5,      ///< from that node: all have told theirs, leave
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
  /// kBadMessage: no mail of this version, truncated, or out of range. Text is made harmless for terminals.
  [[nodiscard]] static Result<Mail> decode(std::span<const std::byte> bytes);
};
/// One of that kind, to be filled. (GCC 12 warns of temporaries `{.kind = ...}`, whose other strings it takes for
/// uninitialized.)
[[nodiscard]] inline Mail mail_of(MailKind kind) {
  Mail mail;
  mail.kind = kind;
  return mail;
}

}  // namespace rdmacomm::mesh
