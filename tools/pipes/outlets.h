// outlets.h - all receivers that one sender sends to.
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

/// What becomes of the others when one receiver fails.
enum class OnFailure : std::uint8_t { kStop, kContinue };

/// How receivers are reached, and what they are told. A value.
struct OutletsOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  Terms terms = {};
  int borrowed_blocks = 4;  ///< of each receiver
  OnFailure on_failure = OnFailure::kStop;
};

/// Several receivers that get the same blocks. A resource.
/// Threads: abort() and status() from any; all others from one.
class Outlets {
 public:
  struct Callbacks {
    /// Nothing more can be sent to anybody, and why. From any thread; once.
    std::function<void(const Status&)> over = {};
    /// A receiver has failed, and it goes on with the others; or one lets another sender go first. From any thread.
    std::function<void(const std::string&)> say = {};
    /// Where there is one, receivers have no threads, but get what is pushed at once: as DirectOutlet wants it.
    std::function<Status()> may_go_on = {};
  };
  /// device  nullptr: the one on the route to the first receiver
  Outlets(OutletsOptions options, RDMADevice device, Callbacks callbacks);
  Outlets(const Outlets&) = delete;
  Outlets& operator=(const Outlets&) = delete;
  ~Outlets();

  /// Connects to all of them.
  /// Returns  as ClientSession::connect and RDMAStream::open, or no more threads for this user; with kContinue only
  ///          where none is left
  [[nodiscard]] Status connect(const std::vector<HostPort>& receivers);
  [[nodiscard]] RDMADevice device() const { return session_->device(); }
  /// Those that it is connected to, for messages.
  [[nodiscard]] std::vector<std::string> peers() const;

  /// To all of them. `keep` owns the slice. The first time, and at the latest in finish(), it then connects again to
  /// those that have let another sender go first because nothing came: they have got nothing of this one, and get this
  /// when they are connected.
  void push(const BufferSlice& slice, const std::shared_ptr<const void>& keep);
  /// As Outlet::look, of all of them.
  void look();
  /// Waits until all have everything. Returns  what has failed first, also with kContinue
  [[nodiscard]] Status finish(const Total& total);
  /// Tells all of them why nothing more comes.
  void abort(const std::string& reason);
  /// ok, or what has failed first.
  [[nodiscard]] Status status();

 private:
  class Hooks;

  /// A receiver that has told this sender to give way to another one.
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
  std::size_t left_ = 0;   // of those, that have not failed
  bool over_ = false;
  bool sends_ = false;  // something was pushed, or all is
  std::vector<GaveWay> gave_way_;
  Status failure_;  // the first one
  std::optional<ClientSession> session_;
};

}  // namespace rdmacomm::pipes
