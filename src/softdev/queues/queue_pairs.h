// queue_pairs.h - the queue pairs of a context by number, and the allocation of numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/tcp/tcp_owner.h"

namespace rdmacomm::softdev {

class SoftQp;

/// The queue pairs of a context by number, and the allocation of numbers.
/// Threads: any.
class QueuePairs final : public TcpOwners {
 public:
  QueuePairs();
  ~QueuePairs() override;

  /// The secret of a queue pair of any context of this process, see QpTcp::secret(). No value, too: none has the number.
  [[nodiscard]] static std::optional<TcpSecret> secret_of(std::uint32_t qpn);

  /// Takes a number that no other queue pair on this host has.
  /// with_port  other hosts must be able to reach it
  /// listener   valid if a new block of numbers was taken: the caller must serve it
  /// Returns  0 and errno on failure; EADDRINUSE: other processes have all numbers.
  [[nodiscard]] std::uint32_t take_number(bool with_port, UniqueFd& listener);
  [[nodiscard]] UniqueFd take_port(std::uint32_t qpn) override;
  void insert(const std::shared_ptr<SoftQp>& qp);
  /// Removes the queue pair, and keeps it alive for the caller.
  [[nodiscard]] std::shared_ptr<SoftQp> remove(std::uint32_t qpn);
  [[nodiscard]] std::shared_ptr<SoftQp> find(std::uint32_t qpn);
  [[nodiscard]] std::shared_ptr<TcpOwner> tcp_owner(std::uint32_t qpn) override;
  [[nodiscard]] std::vector<std::shared_ptr<TcpOwner>> tcp_owners() override;
  /// True if the number belongs to this context, in use or not.
  [[nodiscard]] bool owns(std::uint32_t qpn);
  /// True if other processes of this host find the number by the name of its block. If false, another user has taken
  /// the name, and they find it by its port only.
  [[nodiscard]] bool has_name(std::uint32_t qpn);
  [[nodiscard]] std::vector<std::shared_ptr<SoftQp>> all();

 private:
  struct Block {
    std::uint32_t number;
    UniqueFd port;
    std::uint64_t host;  ///< the host of the port: device_guid()
    bool has_name;
  };
  enum class Reach : std::uint8_t { kNameAndPort, kName, kPort };
  bool take_block_locked(Reach reach, UniqueFd& listener);
  bool take_any_block_locked(bool with_port, UniqueFd& listener);

  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<SoftQp>> by_number_;
  std::vector<Block> blocks_;
  std::uint32_t next_ = 0;  // counts through all numbers of all blocks, so that numbers are reused as late as possible
};

}  // namespace rdmacomm::softdev
