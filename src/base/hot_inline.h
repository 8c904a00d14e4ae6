// hot_inline.h - marks functions that run once for each request.
// Layer: base.
#pragma once

/// For a function of the data path that is used in one file only: it is always inlined. The compiler decides by size,
/// but here one more call adds to the latency of every message.
#define RDMACOMM_HOT_INLINE [[gnu::always_inline]] inline
