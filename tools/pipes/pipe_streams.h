// pipe_streams.h - the streams of a pipe, by its terms.
#pragma once

#include "pipes/terms.h"
#include "rdmacomm/config.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::pipes {

/// The streams of both sides, and their channel with what the flags say of the way.
[[nodiscard]] StreamOptions sender_stream(const Terms& terms, int borrowed_blocks);
[[nodiscard]] StreamOptions receiver_stream(const Terms& terms);
[[nodiscard]] ChannelConfig pipe_channel(const StreamOptions& stream, const AdapterConfig& flags);

}  // namespace rdmacomm::pipes
