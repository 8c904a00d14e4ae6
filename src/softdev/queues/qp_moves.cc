#include "softdev/queues/qp_moves.h"

#include <array>
#include <cerrno>

#include "softdev/common/device_limits.h"

namespace rdmacomm::softdev {
namespace {

/// A state transition, with its required and its optional attributes. Source: ibv_modify_qp(3).
struct Move {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int kRtrRequired =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsRequired =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kInitRequired = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
// This device refuses optional attributes of alternate paths, which it does not support.
constexpr int kRtsOptional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
// The attributes for acknowledgements, retries and READs exist for RC only.
constexpr int kOfRcAlone = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |
                           IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

constexpr std::array<Move, 10> kMoves = {{
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitRequired, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitRequired},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRtrRequired, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRtsRequired, kRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptional},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_AV | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX | kRtsOptional},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
}};

/// True if each value that `mask` names is in its range.
bool values_valid(const ibv_qp_attr& a, int mask) {
  const auto in_mask = [mask](int bit) { return (mask & bit) != 0; };
  if (in_mask(IBV_QP_PKEY_INDEX) && a.pkey_index != 0) return false;
  if (in_mask(IBV_QP_PATH_MTU) && (a.path_mtu < IBV_MTU_256 || a.path_mtu > IBV_MTU_4096)) return false;
  if (in_mask(IBV_QP_DEST_QPN) && a.dest_qp_num > 0xffffff) return false;
  if (in_mask(IBV_QP_MIN_RNR_TIMER) && a.min_rnr_timer > 31) return false;
  if (in_mask(IBV_QP_TIMEOUT) && a.timeout > 31) return false;
  if (in_mask(IBV_QP_RETRY_CNT) && a.retry_cnt > 7) return false;
  if (in_mask(IBV_QP_RNR_RETRY) && a.rnr_retry > 7) return false;
  if (in_mask(IBV_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > kMaxReadDepth) return false;
  return !in_mask(IBV_QP_MAX_DEST_RD_ATOMIC) || a.max_dest_rd_atomic <= kMaxReadDepth;
}

/// The attributes in `mask` that queue pairs of this kind have. Datagram queue pairs have a Q_Key instead of access
/// flags, and no attributes of a connection. An XRC queue pair has the attributes of its direction; source: the table
/// in Linux's drivers/infiniband/core/verbs.c.
int of_type(int mask, ibv_qp_type type) {
  constexpr int kOfDatagrams =
      IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_SQ_PSN | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
  if (type == IBV_QPT_RC) return mask;
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);
  if (type == IBV_QPT_XRC_RECV) return mask & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (type == IBV_QPT_UC) return mask & ~kOfRcAlone;
  return (mask & kOfDatagrams) | ((mask & IBV_QP_ACCESS_FLAGS) != 0 ? IBV_QP_QKEY : 0);
}

}  // namespace

int check_move(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes, int mask) {
  const int given = mask & ~IBV_QP_STATE;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) return EINVAL;
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return (given & ~IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
  for (const Move& move : kMoves) {
    if (move.from != from || move.to != to) continue;
    const int required = of_type(move.required, type);
    const int optional = of_type(move.optional, type);
    const bool complete = (given & required) == required;
    const bool nothing_else = (given & ~(required | optional)) == 0;
    return complete && nothing_else && values_valid(attributes, mask) ? 0 : EINVAL;
  }
  return EINVAL;
}

int without_ignored(int mask, ibv_qp_type type) {
  return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV ? of_type(mask, type) : mask;
}

}  // namespace rdmacomm::softdev
