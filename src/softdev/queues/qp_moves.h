// qp_moves.h - the state transitions of a queue pair, and the attributes that each of them requires and allows.
#pragma once

#include <infiniband/verbs.h>

namespace rdmacomm::softdev {

/// Checks if ibv_modify_qp may move a queue pair of this kind from one state to another (or the same) with these
/// attributes. `mask` names the given attributes. Returns 0, or EINVAL. Source: ibv_modify_qp(3).
[[nodiscard]] int check_move(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes,
                             int mask);

/// Removes the attributes of the direction that an XRC queue pair does not have. Programs name them nevertheless
/// (perftest does), and the kernel removes them. Source: modify_qp_mask() in Linux's
/// drivers/infiniband/core/uverbs_cmd.c.
[[nodiscard]] int without_ignored(int mask, ibv_qp_type type);

}  // namespace rdmacomm::softdev
