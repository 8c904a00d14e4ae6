// fault_words.h - the words of the fault language, and their meanings.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "softdev/common/newer_numbers.h"
#include "softdev/faults/fault_plan.h"

namespace rdmacomm::softdev {

/// A word and its meaning.
template <typename Meaning>
struct FaultWord {
  std::string_view word;
  Meaning meaning;
};

inline constexpr FaultWord<FaultAction> kActionWords[] = {
    {"fail", FaultAction::kFail},       {"rnr", FaultAction::kNotReady}, {"delay", FaultAction::kDelay},
    {"slow", FaultAction::kSlow},       {"lose", FaultAction::kLose},    {"reorder", FaultAction::kReorder},
    {"link", FaultAction::kLink},       {"event", FaultAction::kEvent},  {"device", FaultAction::kDeviceFatal},
    {"overrun", FaultAction::kOverrun}, {"die", FaultAction::kDie},      {"freeze", FaultAction::kFreeze},
    {"refuse", FaultAction::kRefuse},
};

inline constexpr FaultWord<ibv_wc_status> kStatusWords[] = {
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
};

inline constexpr FaultWord<ibv_event_type> kEventWords[] = {
    {"PORT_ERR", IBV_EVENT_PORT_ERR},
    {"PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},
    {"GID_CHANGE", IBV_EVENT_GID_CHANGE},
    {"LID_CHANGE", IBV_EVENT_LID_CHANGE},
    {"PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
    {"SM_CHANGE", IBV_EVENT_SM_CHANGE},
    {"CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
    {"COMM_EST", IBV_EVENT_COMM_EST},
    {"SQ_DRAINED", IBV_EVENT_SQ_DRAINED},
    {"PATH_MIG", IBV_EVENT_PATH_MIG},
    {"PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},
};

inline constexpr FaultWord<FaultCall> kCallWords[] = {
    {"open_device", FaultCall::kOpenDevice}, {"alloc_pd", FaultCall::kAllocPd},
    {"reg_mr", FaultCall::kRegMr},           {"create_comp_channel", FaultCall::kCreateCompChannel},
    {"create_cq", FaultCall::kCreateCq},     {"create_qp", FaultCall::kCreateQp},
    {"modify_qp", FaultCall::kModifyQp},     {"create_srq", FaultCall::kCreateSrq},
    {"create_ah", FaultCall::kCreateAh},     {"alloc_mw", FaultCall::kAllocMw},
    {"query_port", FaultCall::kQueryPort},
};

inline constexpr FaultWord<int> kErrorWords[] = {
    {"ENOMEM", ENOMEM}, {"EINVAL", EINVAL}, {"EIO", EIO},       {"EAGAIN", EAGAIN},         {"EPERM", EPERM},
    {"EACCES", EACCES}, {"ENOSPC", ENOSPC}, {"EBUSY", EBUSY},   {"EMFILE", EMFILE},         {"ENFILE", ENFILE},
    {"EFAULT", EFAULT}, {"ENODEV", ENODEV}, {"ENOENT", ENOENT}, {"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT},
};

inline constexpr FaultWord<ibv_wr_opcode> kOpcodeWords[] = {
    {"SEND", IBV_WR_SEND},
    {"SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM},
    {"SEND_WITH_INV", IBV_WR_SEND_WITH_INV},
    {"WRITE", IBV_WR_RDMA_WRITE},
    {"WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"READ", IBV_WR_RDMA_READ},
    {"COMPARE_SWAP", IBV_WR_ATOMIC_CMP_AND_SWP},
    {"FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD},
    {"ATOMIC_WRITE", kWrAtomicWrite},
    {"FLUSH", kWrFlush},
    {"BIND_MW", IBV_WR_BIND_MW},
    {"LOCAL_INV", IBV_WR_LOCAL_INV},
};

inline constexpr FaultWord<std::uint8_t> kTransportWords[] = {
    {"RC", kOnRc}, {"UC", kOnUc}, {"UD", kOnUd}, {"XRC", kOnXrc}};

/// The units of times, in microseconds. The largest unit first.
inline constexpr FaultWord<std::uint64_t> kTimeWords[] = {{"s", 1'000'000}, {"ms", 1000}, {"us", 1}};

/// The word of a meaning; empty: it has none.
template <typename Meaning, std::size_t kCount>
[[nodiscard]] constexpr std::string_view word_of(const FaultWord<Meaning> (&words)[kCount], Meaning meaning) noexcept {
  for (const FaultWord<Meaning>& one : words) {
    if (one.meaning == meaning) return one.word;
  }
  return {};
}

/// The meaning of a word; nullptr: it has none.
template <typename Meaning, std::size_t kCount>
[[nodiscard]] constexpr const Meaning* meaning_of(const FaultWord<Meaning> (&words)[kCount],
                                                  std::string_view word) noexcept {
  for (const FaultWord<Meaning>& one : words) {
    if (one.word == word) return &one.meaning;
  }
  return nullptr;
}

/// All words, for an error text: "a, b, c".
template <typename Meaning, std::size_t kCount>
[[nodiscard]] std::string list_of(const FaultWord<Meaning> (&words)[kCount]) {
  std::string list;
  for (const FaultWord<Meaning>& one : words) list += (list.empty() ? "" : ", ") + std::string(one.word);
  return list;
}

}  // namespace rdmacomm::softdev
