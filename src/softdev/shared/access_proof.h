// access_proof.h - two processes prove to each other that the kernel lets each of them look into the other.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// One end's part of a mutual proof, made for one connection and used once.
///
/// Each end writes random numbers to a memfd of its own and names the descriptor. The peer reads them through
/// /proc/PID/fd/NUMBER, which the kernel allows to those who may inspect the process (ptrace(2), PTRACE_MODE_READ):
/// the same user and group, no capability less, in a process namespace that sees it, not kept out by `dumpable`, user
/// namespaces or a security module. Whoever sends the numbers back has been let in by the kernel: docs/adr/0017.
///
/// What is sent is masked with a number that only the other end and its inspectors know. So a process that stands between two
/// others cannot pass the answer of one off as its own to the other, and learns nothing of a file that it named instead.
/// Threads: one at a time.
class AccessProof {
 public:
  using Number = std::array<std::uint64_t, 2>;

  /// Draws the numbers. 0, or an errno value.
  [[nodiscard]] int create();
  /// The descriptor that the peer must be told.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Reads the numbers that process `pid` has in its descriptor `number`. 0, or an errno value; EPERM: the kernel does not
  /// let this process in, or there are no such numbers.
  [[nodiscard]] int read_peer(pid_t pid, int number);
  /// To be sent to the peer. Only after read_peer() has succeeded, as the next one.
  [[nodiscard]] Number answer() const noexcept { return masked(peer_.shown, own_.mask); }
  /// Whether `answer` came from a process that could read the numbers of this end.
  [[nodiscard]] bool is_proven_by(const Number& answer) const noexcept {
    return answer == masked(own_.shown, peer_.mask);
  }

 private:
  struct Secrets {
    Number shown{};  ///< what the peer sends back
    Number mask{};   ///< what hides what this end sends back
  };
  [[nodiscard]] static Number masked(const Number& shown, const Number& mask) noexcept {
    return {shown[0] ^ mask[0], shown[1] ^ mask[1]};
  }

  UniqueFd file_;
  Secrets own_;
  Secrets peer_;
};

}  // namespace rdmacomm::softdev
