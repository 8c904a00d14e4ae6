// outlets.h - all receivers of one sender.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pipes/outlet.h"
#include "pipes/terms.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::pipes {

/// Whether the transfer continues when one receiver fails.
enum class OnFailure : std::uint8_t { kStop, kContinue };

/// How to connect to receivers, and the terms sent to them. A value.
struct OutletsOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  Terms terms = {};
  int borrowed_blocks = 4;  ///< for each receiver
  OnFailure on_failure = OnFailure::kStop;
};

/// Several receivers that get the same blocks. A resource.
/// Threads: abort() and status() from any; all others from one.
class Outlets {
 public:
  struct Callbacks {
    /// Nothing more can be sent to any receiver; the status tells why. From any thread; once.
    std::function<void(const Status&)> over = {};
    /// Reports that a receiver has failed while the others continue, or that one lets another sender go first. From any
    /// thread.
    std::function<void(const std::string&)> say = {};
    /// If set, receivers have no threads, and push() sends at once. It is the may_go_on of DirectOutlet.
    std::function<Status()> may_go_on = {};
  };
  /// device  nullptr: the device on the route to the first receiver
  Outlets(OutletsOptions options, RDMADevice device, Callbacks callbacks);
  Outlets(const Outlets&) = delete;
  Outlets& operator=(const Outlets&) = delete;
  ~Outlets();

  /// Connects to all of them.
  /// Returns  as ClientSession::connect and RDMAStream::open, or no more threads for this user; with kContinue only if
  ///          no receiver is left
  [[nodiscard]] Status connect(const std::vector<HostPort>& receivers);
  [[nodiscard]] RDMADevice device() const { return session_->device(); }
  /// The connected receivers, for messages.
  [[nodiscard]] std::vector<std::string> peers() const;

  /// Sends the slice to all receivers. `keep` owns the slice. Some receivers may have let another sender go first
  /// because this one sent nothing. The first push(), or finish() at the latest, connects to these again. They have
  /// missed nothing, and get this slice once they are connected.
  void push(const BufferSlice& slice, const std::shared_ptr<const void>& keep);
  /// Calls Outlet::look for all of them.
  void look();
  /// Waits until all have everything. Returns  the first failure, also with kContinue
  [[nodiscard]] Status finish(const Total& total);
  /// Sends all of them the reason why no more data will be sent.
  void abort(const std::string& reason);
  /// ok, or the first failure.
  [[nodiscard]] Status status();

 private:
  class Hooks;

  /// A receiver that has told this sender to let another one go first.
  struct GaveWay {
    const Outlet* outlet;
    HostPort receiver;
  };

  [[nodiscard]] Status connect_one(const HostPort& receiver);
  /// Returns  the receivers to connect to again
  [[nodiscard]] std::vector<HostPort> begin_to_send();
  void give(const std::function<void(Outlet&)>& to);
  void on_outlet_failure(const Outlet& outlet, const HostPort& receiver, const Status& why);
  void on_failure(const std::string& who, const Status& why);
  void on_disconnected();

  const OutletsOptions options_;
  const Callbacks callbacks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Outlet>> outlets_;
  std::size_t asked_ = 0;  // receivers
  std::size_t left_ = 0;   // number of receivers that have not failed
  bool over_ = false;
  bool sends_ = false;  // something was pushed, or everything is
  std::vector<GaveWay> gave_way_;
  Status failure_;  // the first one
  std::optional<ClientSession> session_;
};

}  // namespace rdmacomm::pipes
