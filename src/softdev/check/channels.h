// channels.h - the rules for sleeping until a completion comes, and for events.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "softdev/check/objects.h"

namespace rdmacomm::softdev::check {

/// A call has used a completion queue: remembers whether several threads do.
/// Threads: the caller holds a Locked.
void note_thread(Cq& cq);

/// The program is about to sleep until an event of this channel comes. Reports a sleep that ends by luck only:
/// - No queue of the channel is armed, no event waits, and requests are in flight.
/// - A completion waits in an armed queue, and arrived before the call that armed it.
/// Such a completion is looked for by a poll of the checker, whose result the program gets at its next poll.
/// is_late  false: reports the first of them only if the same thread makes all calls for the queues of the channel.
///          true: the sleep has lasted for a second
/// Returns  true if another thread may still arm a queue. With `--check=sleeps`, the caller calls again after a second
/// Threads: the caller holds no Locked.
[[nodiscard]] bool check_sleep(ibv_comp_channel* channel, bool is_late);

/// Reports events of an object that were not acknowledged when it is destroyed. Returns their number.
/// Threads: the caller holds a Locked.
std::uint64_t check_events(const Object& object, const EventCounts& counts);

/// An asynchronous event that the program has taken, and one that it acknowledges.
/// Threads: the caller holds a Locked.
void note_async_event(const ibv_async_event& event, ibv_context* context, StackId where);
void forget_async_event(const ibv_async_event& event);

/// Reports the events of a queue or queue pair that were not acknowledged, before the program destroys it. Returns them:
/// the caller acknowledges them, because destroying would wait for that.
/// Threads: the caller holds a Locked.
[[nodiscard]] std::vector<ibv_async_event> take_async_events(Object& object);

/// The checker has acknowledged the events of a queue or queue pair, which is then destroyed. The program may still
/// acknowledge them.
/// Threads: the caller holds a Locked.
void note_acknowledged(const void* address);
[[nodiscard]] bool was_acknowledged(const void* address);
/// The same for an asynchronous event that the program acknowledges.
[[nodiscard]] bool was_acknowledged(const ibv_async_event& event);

/// A poll of the queue has failed, because the queue has overrun. So its queue pairs are in ERR.
/// Threads: the caller holds a Locked.
void note_overrun(const Cq& cq);

}  // namespace rdmacomm::softdev::check
