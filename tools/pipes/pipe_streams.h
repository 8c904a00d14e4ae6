// pipe_streams.h - the streams of a pipe, as its terms require.
#pragma once

#include "pipes/terms.h"
#include "rdmacomm/config.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::pipes {

/// The stream options of the sender and the receiver, and their channel with the path settings of the flags.
[[nodiscard]] StreamOptions sender_stream(const Terms& terms, int borrowed_blocks);
[[nodiscard]] StreamOptions receiver_stream(const Terms& terms);
[[nodiscard]] ChannelConfig pipe_channel(const StreamOptions& stream, const AdapterConfig& flags);

}  // namespace rdmacomm::pipes
