#include "pipes/pipe_streams.h"

#include "support/connection_flags.h"

namespace rdmacomm::pipes {

StreamOptions sender_stream(const Terms& terms, int borrowed_blocks) {
  return {.block_bytes = terms.block_bytes, .write_blocks = 0, .read_blocks = 0, .borrowed_blocks = borrowed_blocks};
}

StreamOptions receiver_stream(const Terms& terms) {
  return {.block_bytes = terms.block_bytes, .write_blocks = 0, .read_blocks = terms.blocks, .borrowed_blocks = 0};
}

ChannelConfig pipe_channel(const StreamOptions& stream, const AdapterConfig& flags) {
  return programs::with_flags(stream.channel(kChannel), flags);
}

}  // namespace rdmacomm::pipes
