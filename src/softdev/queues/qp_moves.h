// qp_moves.h - the moves of a queue pair from state to state, and the attributes that each of them needs and allows.
#pragma once

#include <infiniband/verbs.h>

namespace rdmacomm::softdev {

/// Whether ibv_modify_qp may take a queue pair of this kind from one state to another (or leave it there) with these attributes, of
/// which `mask` names those that are given. 0, or EINVAL. Source: ibv_modify_qp(3).
[[nodiscard]] int check_move(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes,
                             int mask);

/// A mask without the attributes of the direction that an XRC queue pair does not have: programs name them all the same
/// (perftest does), and the kernel takes them out. Source: modify_qp_mask() in Linux's drivers/infiniband/core/uverbs_cmd.c.
[[nodiscard]] int without_ignored(int mask, ibv_qp_type type);

}  // namespace rdmacomm::softdev
