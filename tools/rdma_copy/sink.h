// sink.h - the peer of a copy that writes files.
#pragma once

#include "rdma_copy/destination.h"
#include "rdma_copy/events.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/place.h"
#include "rdma_copy/work.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Writes the files that a source sends: into `destination` if that is a directory, else under that name. If an entry
/// cannot be written, reports it by events.failed, and to the source, and continues. Each file gets its name when it is
/// complete; until then the old file stays. If the copy ends early, unfinished files stay as NewFile leaves them.
///
/// If a sink cannot begin, or cannot continue (the disk is full, the source breaks the protocol), it aborts the stream.
/// reader  reads the same stream; the source's frames are next
/// counts  the written entries, also on failure
/// work    is informed when this waits for the source; the reader informs it as well
/// Returns  ok: everything was written except the failures in `counts`; or why the copy has ended
[[nodiscard]] Status run_sink(RDMAStream& stream, FrameReader& reader, const Place& place,
                              const Destination& destination, const CopyOptions& options, const Events& events,
                              Counts& counts, Work& work);

}  // namespace rdmacomm::copying
