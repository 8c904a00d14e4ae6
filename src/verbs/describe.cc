#include "verbs/describe.h"

#include <arpa/inet.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace rdmacomm::verbs {
namespace {

template <std::size_t N>
std::string name_at(const std::array<const char*, N>& names, unsigned index, const char* kind) {
  if (index < N && names[index] != nullptr) return names[index];
  return std::string(kind) + " " + std::to_string(index);
}

}  // namespace

std::string to_text(ibv_qp_state state) {
  static constexpr std::array<const char*, 7> kNames = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return name_at(kNames, state, "state");
}

std::string to_text(ibv_port_state state) {
  static constexpr std::array<const char*, 6> kNames = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  return name_at(kNames, state, "state");
}

std::string to_text(ibv_mtu mtu) {
  return std::to_string(mtu_bytes(mtu));
}

std::string link_layer_text(std::uint8_t link_layer) {
  static constexpr std::array<const char*, 3> kNames = {"unspecified", "InfiniBand", "Ethernet"};
  return name_at(kNames, link_layer, "link layer");
}

std::string gid_type_text(std::uint32_t gid_type) {
  static constexpr std::array<const char*, 3> kNames = {"IB", "RoCE v1", "RoCE v2"};
  return name_at(kNames, gid_type, "GID type");
}

std::string to_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

std::string pkey_text(std::uint16_t pkey) {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%04x", pkey);
  return text;
}

bool mtu_from_bytes(std::uint32_t bytes, ibv_mtu& mtu) noexcept {
  for (const ibv_mtu candidate : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (mtu_bytes(candidate) != bytes) continue;
    mtu = candidate;
    return true;
  }
  return false;
}

std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0;
}

Errc errc_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return Errc::kOk;
    case IBV_WC_LOC_LEN_ERR: return Errc::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR: return Errc::kLocalQueuePair;
    case IBV_WC_LOC_PROT_ERR: return Errc::kLocalProtection;
    case IBV_WC_LOC_ACCESS_ERR: return Errc::kLocalProtection;
    case IBV_WC_WR_FLUSH_ERR: return Errc::kFlushed;
    case IBV_WC_REM_INV_REQ_ERR: return Errc::kRemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR: return Errc::kRemoteAccess;
    case IBV_WC_REM_OP_ERR: return Errc::kRemoteOperation;
    case IBV_WC_REM_ABORT_ERR: return Errc::kRemoteOperation;
    case IBV_WC_RETRY_EXC_ERR: return Errc::kRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR: return Errc::kRnrRetryExceeded;
    default: return Errc::kCompletionFailed;
  }
}

std::string_view completion_advice(Errc code) noexcept {
  switch (code) {
    case Errc::kLocalLength:
      return "a message was longer than the receive buffer posted for it, or than the port's largest message; "
             "post larger receives or send less at a time";
    case Errc::kLocalProtection:
      return "a local slice is not registered any more, or was registered without local write; "
             "keep the RDMABuffer until its requests have completed";
    case Errc::kLocalQueuePair: return "the local device refused the request; check lengths and slice counts";
    case Errc::kFlushed:
      return "the connection has ended, or the queue pair had failed before; then the first completion that is not "
             "flushed "
             "has the cause";
    case Errc::kRemoteInvalidRequest:
      return "the peer's receive buffer is too short for the message, or the operation is not enabled there";
    case Errc::kRemoteAccess:
      return "the rkey is wrong or stale, the range leaves the peer's region, or the region was registered "
             "without this kind of remote access; compare the RemoteRegion with the peer's RDMABuffer";
    case Errc::kRemoteOperation: return "the peer's device could not carry the request out; look at its completions";
    case Errc::kRetryExceeded:
      return "the peer did not answer: its process or host is gone, its queue pair is in error, or no packets "
             "pass (GID type, MTU, VLAN, firewall; soft0 between hosts: TCP ports 61440 to 65535, both ways)";
    case Errc::kRnrRetryExceeded:
      return "the peer posted no receive buffer in time; post receives before the sender sends, or raise "
             "rnr_retry (7 waits for ever)";
    case Errc::kCompletionFailed: return "see the vendor error";
    default: return {};
  }
}

}  // namespace rdmacomm::verbs
