// cm_linker.h - connects queue pairs by rdma_cm. iWARP needs it; RoCE and InfiniBand can use it as well.
#pragma once

#include <memory>

#include "contract/pair_linker.h"

namespace rdmacomm::contract {

[[nodiscard]] std::unique_ptr<PairLinker> make_cm_linker();

}  // namespace rdmacomm::contract
