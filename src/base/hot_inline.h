// hot_inline.h - marking what runs once for each request.
// Layer: base.
#pragma once

/// A function of the data path, used in one file only: always part of its caller. The compiler's own measure is
/// size; here a call more is one in every message's latency.
#define RDMACOMM_HOT_INLINE [[gnu::always_inline]] inline
