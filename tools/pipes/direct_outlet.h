// direct_outlet.h - an outlet without a thread, for a program that only passes data on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pipes/outlet.h"

namespace rdmacomm::pipes {

/// push() returns when the block is sent. A separate thread would cost two more thread switches for each block.
/// Threads: abort() on the same thread as all other functions, too; push(), join() and look() call `failed` on it.
class DirectOutlet final : public Outlet {
 public:
  /// may_go_on  ok, or the reason to send no more. Called repeatedly while the receiver takes no data
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
  std::optional<Status> outcome_;  // set when it has ended
};

}  // namespace rdmacomm::pipes
