#include "contract/pair_linker.h"

#include <sys/socket.h>

#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "contract/cm_linker.h"
#include "contract/test_device.h"
#include "verbs/call.h"

namespace rdmacomm::contract {
namespace {

Status send_bytes(int line, std::span<const std::byte> bytes) {
  return verbs::from_minus_one(static_cast<int>(::send(line, bytes.data(), bytes.size(), MSG_NOSIGNAL)),
                               "write to the other end's line");
}

Status receive_bytes(int line, std::span<std::byte> bytes) {
  const ssize_t got = ::recv(line, bytes.data(), bytes.size(), MSG_WAITALL);
  if (got == static_cast<ssize_t>(bytes.size())) return {};
  return make_error(Errc::kPeerLost, "the other end of the line is gone");
}

/// Links by modify_qp: the two ends send each other their addresses.
class ModifyLinker final : public PairLinker {
 public:
  Result<std::unique_ptr<Link>> link(const LinkEnd& end, Role /*role*/, int line) override {
    auto remote = exchange_addresses(end.address, line);
    if (!remote) return remote.error();
    if (Status status = end.move(*remote); !status.ok()) return status.error();
    if (Status status = synchronize(line); !status.ok()) return status.error();
    return std::make_unique<Link>();
  }
};

/// The state changes of a bare queue pair, as AdapterCore does them for its own.
Status move_bare(DeviceCore& device, ibv_qp* qp, const AdapterConfig& config, const QpPath& path) {
  for (const QpTransition& transition : {QpTransition::to_rtr(config, path), QpTransition::to_rts(config, path)}) {
    ibv_qp_attr attributes = transition.attributes;
    Status status =
        verbs::from_value(device.api().modify_qp(qp, &attributes, transition.mask), "move " + transition.to_text());
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

std::unique_ptr<PairLinker> PairLinker::create() {
  if (links_by_cm()) return make_cm_linker();
  return std::make_unique<ModifyLinker>();
}

Result<PairLinker::Both> PairLinker::link_both(const LinkEnd& active, const LinkEnd& passive) {
  int lines[2];
  const Status made = verbs::from_minus_one(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines), "make a line");
  if (!made.ok()) return made.error();
  const UniqueFd own(lines[0]);
  UniqueFd other(lines[1]);
  std::optional<Result<std::unique_ptr<Link>>> there;
  std::thread linking([&] {
    there.emplace(link(passive, Role::kPassive, other.get()));
    other.reset();  // so that the main thread does not wait forever
  });
  auto here = link(active, Role::kActive, own.get());
  if (!here) ::shutdown(own.get(), SHUT_RDWR);
  linking.join();
  // The broken socket pair is the consequence, not the cause.
  if (!*there && (here.has_value() || here.code() == Errc::kPeerLost)) return there->error();
  if (!here) return here.error();
  return Both{std::move(*here), std::move(**there)};
}

LinkEnd link_end(AdapterCore& adapter, const std::string& ip) {
  return {adapter.device(), adapter.qp(), adapter.address(),
          adapter.config(), ip,           [&adapter](const QpAddress& remote) { return adapter.connect(remote); }};
}

LinkEnd link_end(DeviceCore& device, ibv_qp* qp, const GidEntry& gid, const AdapterConfig& config,
                 const std::string& ip) {
  QpAddress own;
  own.qpn = qp->qp_num;
  own.lid = device.lid();
  own.link_layer = device.link_layer();
  own.gid_type = static_cast<std::uint8_t>(gid.type);
  own.gid = gid.gid;
  own.mtu_bytes = std::min(config.mtu_bytes, device.limits().mtu_bytes);
  own.max_read_depth = 1;
  const AdapterConfig fitted = config.fitted(device.limits());
  const auto move = [&device, qp, own, fitted, index = gid.index](const QpAddress& remote) {
    return move_bare(device, qp, fitted, {.local = own, .remote = remote, .gid_index = index, .port = device.port()});
  };
  return {device, qp, own, fitted, ip, move};
}

Result<QpAddress> exchange_addresses(const QpAddress& mine, int line) {
  if (Status status = send_bytes(line, mine.encode()); !status.ok()) return status.error();
  std::array<std::byte, QpAddress::kWireBytes> theirs{};  // both ends are this program
  if (Status status = receive_bytes(line, theirs); !status.ok()) return status.error();
  return QpAddress::decode(theirs);
}

Status synchronize(int line) {
  std::array<std::byte, 1> byte{};
  if (Status status = send_bytes(line, byte); !status.ok()) return status;
  return receive_bytes(line, byte);
}

}  // namespace rdmacomm::contract
