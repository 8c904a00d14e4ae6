// registrations.h - registrations and their memory, and mistakes with their ends.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "softdev/check/object_calls.h"
#include "softdev/check/objects.h"

namespace rdmacomm::softdev::check {

/// The arguments of a call that registers.
struct Registered {
  ibv_pd* pd = nullptr;
  const void* used = nullptr;  ///< an object that must be ended later
  std::uint64_t begin = 0;     ///< address in this process
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  unsigned access = 0;
  bool is_memory = true;
};

/// A registration of memory of the process. iova: the address that requests use.
[[nodiscard]] Registered of_memory(ibv_pd* pd, void* address, std::size_t length, int access, std::uint64_t iova);
[[nodiscard]] inline Registered of_memory(ibv_pd* pd, void* address, std::size_t length, int access) {
  return of_memory(pd, address, length, access, reinterpret_cast<std::uint64_t>(address));
}

/// Records a registration that a call has made; nullptr: the call has failed. Returns `made`.
ibv_mr* record_registration(ibv_mr* made, const Registered& registered);

/// Reports requests in flight that use a registration. Before the call that ends or changes it.
void check_deregistration(ibv_mr* mr);

/// After ibv_rereg_mr.
void change_registration(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);

/// Calls a function that ends a registration. The record stays for a while, to recognize its keys.
template <typename Call>
int end_registration(ibv_mr* mr, const Call& call) {
  const StackId where = capture_stack();
  return end_queue<Mr>(mr, "ibv_dereg_mr", call, [&](Mr& ended) {
    ended.deregistered = where;
    objects().remember(ended);
  });
}

/// True if some memory of [begin, end) may be registered. For calls that free memory: most of them need no lock.
[[nodiscard]] bool may_be_registered(std::uint64_t begin, std::uint64_t end) noexcept;

/// The memory was freed or unmapped.
/// how          "free()", "munmap()", ...
/// born         objects and requests that were recorded later have other memory at the same address
/// is_unmapped  it is no longer in the address space
/// Threads: the caller holds a Locked.
void note_freed(std::uint64_t begin, std::uint64_t length, const char* how, bool is_unmapped, std::uint64_t born,
                StackId where);

}  // namespace rdmacomm::softdev::check
