// cm_linker.h - queue pairs connected by rdma_cm: what iWARP needs, and RoCE and InfiniBand can do as well.
#pragma once

#include <memory>

#include "contract/pair_linker.h"

namespace rdmacomm::contract {

[[nodiscard]] std::unique_ptr<PairLinker> make_cm_linker();

}  // namespace rdmacomm::contract
