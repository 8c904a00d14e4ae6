// Requests with swapped or unnamed numbers, and calls whose result is ignored or taken for an error code.
//
// UNNAMED_ID: PostOptions
// UNNAMED_NUMBERS: post_write
// BRACED_NUMBERS: (ByName|PostOptions)
// NESTED_BRACES: (ByName|PostOptions|explicit)
// IMMEDIATE_OF_A_RECEIVE: (immediate|RecvOptions)
// UNNAMED_OPERANDS: (ByName|CompareSwap)
// LONG_IMMEDIATE: (Immediate|PostOptions|convert)
// FRACTION_AS_IMMEDIATE: (Immediate|PostOptions|convert)
// KEPT_TEMPORARY: (deleted|SliceView|convert)
// KEPT_TEMPORARY_LIST: (SliceView|convert)
// UNNAMED_REQUEST: (ByName|SendRequest)
// DERIVED_CHANNEL: (private|inaccessible)
// BARE_CODE: error_code
// DROPPED: (nodiscard|unused-result|unused-value)
// DROPPED_POLL: (nodiscard|unused-result|unused-value)
#include <vector>

#include "rdmacomm/rdmacomm.h"

using namespace rdmacomm;

#ifdef DERIVED_CHANNEL
class Channel : public RDMAChannel {};
Channel channel;
#endif

Status post(RDMAChannel& channel, const BufferSlice& slice, const RemoteRegion& region) {
  if (Outcome posted = channel.post_write(slice, region, {.id = 7, .immediate = 42}); !posted) return posted;
#ifdef UNNAMED_ID
  if (!channel.post_write(slice, region, 7)) return {};
#endif
#ifdef UNNAMED_NUMBERS
  if (!channel.post_write(slice, region, 42, 7)) return {};
#endif
#ifdef BRACED_NUMBERS
  if (!channel.post_write(slice, region, {42, 7})) return {};
#endif
#ifdef LONG_IMMEDIATE
  const std::uint64_t id = 7;
  if (!channel.post_write(slice, region, {.immediate = id})) return {};
#endif
#ifdef FRACTION_AS_IMMEDIATE
  if (!channel.post_write(slice, region, {.immediate = 1.5})) return {};
#endif
#ifdef NESTED_BRACES
  if (!channel.post_write(slice, region, {{}, 42, 7})) return {};
#endif
  if (!channel.post_recv(slice, {.id = 7})) return {};
#ifdef IMMEDIATE_OF_A_RECEIVE
  if (!channel.post_recv(slice, {.immediate = 42})) return {};
#endif
  const SendRequest request{.operation = Operation::kWrite, .local = slice, .remote = region};
  if (!channel.post_chain({&request, 1})) return {};
#ifdef KEPT_TEMPORARY
  const SendRequest kept{.local = slice.first(1)};
  if (!channel.post_chain({&kept, 1})) return {};
#endif
#ifdef KEPT_TEMPORARY_LIST
  const SendRequest kept{.local = std::vector<BufferSlice>{slice}};
  if (!channel.post_chain({&kept, 1})) return {};
#endif
#ifdef UNNAMED_REQUEST
  const SendRequest unnamed{Operation::kWrite};
  if (!channel.post_chain({&unnamed, 1})) return {};
#endif
  if (!channel.post_compare_swap(slice, region, {.expected = 1, .desired = 2})) return {};
#ifdef UNNAMED_OPERANDS
  if (!channel.post_compare_swap(slice, region, {1, 2})) return {};
#endif
#ifdef BARE_CODE
  const std::error_code failed = channel.post_send(slice);
  if (failed) return {};
#endif
#ifdef DROPPED
  channel.post_send(slice);
#endif
  Completion batch[4];
  for (const Completion& each : channel.poll(batch)) {
    if (!each.ok()) return each.status();
  }
#ifdef DROPPED_POLL
  channel.poll(batch);
#endif
  return {};
}
