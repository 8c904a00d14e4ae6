// sink.h - the side of a copy that writes files.
#pragma once

#include "rdma_copy/destination.h"
#include "rdma_copy/events.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/place.h"
#include "rdma_copy/work.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Writes what a source sends: into `destination` where that is a directory, else under that name. What cannot be
/// written is said by events.failed, and to the source, and all else goes on. Each file gets its name when it is whole;
/// what was there until then stays. Files that were begun when the copy ends early stay as NewFile leaves them.
///
/// A sink that cannot begin, or cannot go on (the disk is full, the source breaks the rules) aborts the stream.
/// reader  of the same stream, where the source's frames come next
/// counts  what was written, also where it fails
/// work    is told when this waits for the source; the reader tells it as well
/// Returns  ok: all was written, but for failures in `counts`; or why the copy has ended
[[nodiscard]] Status run_sink(RDMAStream& stream, FrameReader& reader, const Place& place,
                              const Destination& destination, const CopyOptions& options, const Events& events,
                              Counts& counts, Work& work);

}  // namespace rdmacomm::copying
