// direct_outlet.h - an outlet without a thread: for who has nothing else to do with what it passes on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pipes/outlet.h"

namespace rdmacomm::pipes {

/// push() returns when the block is sent. A thread would be two more changes between threads for each block.
/// Threads: abort() from the one of all functions, too; `failed` is called on it, by push(), join() and look().
class DirectOutlet final : public Outlet {
 public:
  /// may_go_on  ok, or why nothing is to be sent any more. Asked now and then while the receiver takes nothing
  DirectOutlet(EndPoint endpoint, RDMAStream stream, Failed failed, std::function<Status()> may_go_on);
  ~DirectOutlet() override;

  void push(const BufferSlice& slice, std::shared_ptr<const void> keep) override;
  void finish(const Total& total) override { total_ = total; }
  void abort(const std::string& reason) override;
  [[nodiscard]] Status join() override;
  void look() override;

 private:
  [[nodiscard]] Status send(const BufferSlice& slice, const std::shared_ptr<const void>& keep);
  void end(Status outcome);

  const std::function<Status()> may_go_on_;
  std::optional<Total> total_;
  std::optional<Status> outcome_;  // when it has ended
};

}  // namespace rdmacomm::pipes
