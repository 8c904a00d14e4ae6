// sanitizer.h - whether this is compiled for a sanitizer. GCC defines macros for it, clang answers __has_feature().
// Layer: base.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define RDMACOMM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RDMACOMM_THREAD_SANITIZER 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define RDMACOMM_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RDMACOMM_ADDRESS_SANITIZER 1
#endif
#endif
