// source.h - the side of a copy that reads files.
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

/// Sends everything at `paths`, and hears what has become of it. What cannot be read is said by events.failed, as is
/// what the sink could not write, and all else goes on.
///
/// stream  on which a sink is at the other end; it is finished then, or aborted by whoever calls this
/// counts  what was sent, also where it fails
/// work    is told when this waits for the sink
/// Returns  ok: all was sent, but for failures in `counts`; or why the copy has ended
[[nodiscard]] Status run_source(RDMAStream& stream, const Place& place, const std::vector<std::string>& paths,
                                const CopyOptions& options, const Events& events, Counts& counts, Work& work);

}  // namespace rdmacomm::copying
