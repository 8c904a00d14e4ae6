// source.h - the peer of a copy that reads files.
#pragma once

#include <string>
#include <vector>

#include "rdma_copy/events.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/place.h"
#include "rdma_copy/work.h"
#include "rdmacomm/result.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::copying {

/// Sends everything at `paths`, and receives the sink's answers. If an entry cannot be read or written, reports it by
/// events.failed, and continues.
///
/// stream  connected to a sink. After success it is finished; after an error the caller aborts it
/// counts  the sent entries, also on failure
/// work    is informed when this waits for the sink
/// Returns  ok: everything was sent except the failures in `counts`; or why the copy has ended
[[nodiscard]] Status run_source(RDMAStream& stream, const Place& place, const std::vector<std::string>& paths,
                                const CopyOptions& options, const Events& events, Counts& counts, Work& work);

}  // namespace rdmacomm::copying
