// syscall(): programs that hook the C library's functions for memory, such as UCX, make the system calls by this one.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "softdev/preload/memory/raw_memory.h"
#include "softdev/preload/memory/replaced.h"

// Other architectures have other calls. There, these programs get ordinary memory.
#ifdef __x86_64__

namespace own = rdmacomm::softdev::own;

extern "C" {

[[gnu::visibility("hidden")]] long rdmacomm_failed_call(long result) noexcept {
  errno = static_cast<int>(-result);
  return -1;
}

/// The calls that concern memory; all others stay in the assembly below.
[[gnu::visibility("hidden")]] long rdmacomm_call_for_memory(long call, std::uintptr_t first, long second, long third,
                                                            long fourth, long fifth, long sixth) noexcept {
  void* const address = own::pointer(first);
  const auto length = static_cast<std::size_t>(second);
  switch (call) {
    case SYS_mmap:
      return static_cast<long>(own::number(own::map(address, length, static_cast<int>(third), static_cast<int>(fourth),
                                                    static_cast<int>(fifth), sixth)));
    case SYS_munmap: return own::unmap(address, length);
    case SYS_madvise: return own::advise(address, length, static_cast<int>(third));
    default:
      return static_cast<long>(
          own::number(own::remap(address, length, static_cast<std::size_t>(third), static_cast<int>(fourth),
                                 own::pointer(static_cast<std::uintptr_t>(fifth)))));
  }
}
}

// It has no stack frame of its own: a call such as vfork returns twice, and the child may change the stack below.
// Source of the registers: syscall(2), and the System V ABI for x86-64.
asm(R"(
  .text
  .globl syscall
  .type syscall, @function
syscall:
  endbr64
  cmpl $9, %edi
  je 1f
  cmpl $11, %edi
  je 1f
  cmpl $25, %edi
  je 1f
  cmpl $28, %edi
  je 1f
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 2f
  ret
1:
  jmp rdmacomm_call_for_memory
2:
  movq %rax, %rdi
  jmp rdmacomm_failed_call
  .size syscall, .-syscall
)");
static_assert(SYS_mmap == 9 && SYS_munmap == 11 && SYS_mremap == 25 && SYS_madvise == 28);

#endif
