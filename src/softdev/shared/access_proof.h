// access_proof.h - two processes prove to each other that the kernel lets each one inspect the other.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// The local part of a mutual proof. It is made for one connection and used once.
///
/// Each process writes random numbers to its own memfd and sends the number of the descriptor to its peer. The peer
/// reads them through /proc/PID/fd/NUMBER. The kernel allows that to a process that may inspect the owner (ptrace(2),
/// PTRACE_MODE_READ): it has the same user and group, has at least the owner's capabilities, and is in a process
/// namespace that sees the owner. `dumpable`, user namespaces and security modules can also deny it. A peer that sends
/// the numbers back has proved that the kernel gave it access: docs/adr/0017.
///
/// The answer is masked with a number that only its sender, and processes that may inspect the sender, can read. So a
/// process between two others cannot forward the answer of one to the other as its own. It also learns nothing about
/// another file if it names that file's descriptor instead.
/// Threads: one at a time.
class AccessProof {
 public:
  using Number = std::array<std::uint64_t, 2>;

  /// Draws the numbers. Returns 0, or an errno value.
  [[nodiscard]] int create();
  /// The descriptor; the caller sends its number to the peer.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Reads the numbers that process `pid` has in its descriptor `number`. Returns 0, or an errno value. EPERM: the
  /// kernel denies access to `pid`, or the descriptor has no such numbers.
  [[nodiscard]] int read_peer(pid_t pid, int number);
  /// The answer to send to the peer. Call it only after read_peer() has succeeded.
  [[nodiscard]] Number answer() const noexcept { return masked(peer_.shown, own_.mask); }
  /// True if `answer` came from a process that could read the local numbers.
  [[nodiscard]] bool is_proven_by(const Number& answer) const noexcept {
    return answer == masked(own_.shown, peer_.mask);
  }

 private:
  struct Secrets {
    Number shown{};  ///< the peer sends this back, masked
    Number mask{};   ///< masks the answer that the owner of these numbers sends
  };
  [[nodiscard]] static Number masked(const Number& shown, const Number& mask) noexcept {
    return {shown[0] ^ mask[0], shown[1] ^ mask[1]};
  }

  UniqueFd file_;
  Secrets own_;
  Secrets peer_;
};

}  // namespace rdmacomm::softdev
