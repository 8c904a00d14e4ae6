#include "mesh_comm_service/mail.h"

#include "base/printable.h"
#include "connector/handshake.h"
#include "mesh_comm_service/cluster.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::uint32_t kMailMagic = 0x4d534d52;  // the bytes "RMSM"
constexpr std::uint16_t kMailVersion = 1;
constexpr std::size_t kMaxTextBytes = 1000;

Error bad_mail(const std::string& why) {
  return make_error(Errc::kBadMessage, "a message of another node " + why);
}

}  // namespace

std::vector<std::byte> Mail::encode() const {
  WireWriter writer;
  writer.put(kMailMagic);
  writer.put(kMailVersion);
  writer.put(static_cast<std::uint16_t>(kind));
  writer.put(tally.messages);
  writer.put(tally.bytes);
  writer.put(tally.corrupt);
  writer.put_text(std::string_view(tally.difference).substr(0, kMaxTextBytes));
  writer.put(rank);
  writer.put_text(std::string_view(text).substr(0, kMaxTextBytes));
  if (kind == MailKind::kResult) result.encode(writer);
  return writer.take();
}

Result<Mail> Mail::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto kind = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMailMagic || version != kMailVersion)
    return bad_mail("is not a message of this release");
  if (kind < 1 || kind > static_cast<std::uint16_t>(MailKind::kStop))
    return bad_mail("has the unknown kind " + std::to_string(kind));
  Mail mail;
  mail.kind = static_cast<MailKind>(kind);
  mail.tally.messages = reader.get<std::uint64_t>();
  mail.tally.bytes = reader.get<std::uint64_t>();
  mail.tally.corrupt = reader.get<std::uint64_t>();
  mail.tally.difference = printable(reader.get_text(), kMaxTextBytes);
  mail.rank = reader.get<std::uint32_t>();
  mail.text = printable(reader.get_text(), kMaxTextBytes);
  if (!reader.ok()) return bad_mail("ends too early");
  if (mail.rank >= kMaxNodes) return bad_mail("is about node " + std::to_string(mail.rank));
  if (mail.kind == MailKind::kResult) {
    auto result = NodeResult::decode(reader);
    if (!result) return result.error();
    mail.result = std::move(*result);
  }
  if (reader.remaining() > 0) return bad_mail("has " + std::to_string(reader.remaining()) + " bytes too many");
  return mail;
}

}  // namespace rdmacomm::mesh
