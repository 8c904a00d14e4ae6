#include "pipes/sender.h"

#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/wake_event.h"
#include "pipes/block_store.h"
#include "pipes/standard_streams.h"
#include "support/checksum.h"
#include "support/checksum_queue.h"
#include "support/program.h"
#include "support/progress.h"

namespace rdmacomm::pipes {
namespace {

// More blocks than a stream borrows, so that one can always be filled (see Outlet), and one more is on its way between
// the threads.
constexpr int kMoreBlocks = 2;
/// The first piece of input is small, so that the receiver soon has its first byte, also on a slow network. Until then
/// other senders can take the place.
constexpr std::size_t kFirstBytes = 4096;

class Sender {
 public:
  Sender(const SenderOptions& options, const Input& input, const WakeEvent& wake)
      : options_(options),
        input_(input),
        progress_({.out = std::cerr, .shown = options.flags.progress, .total = options.terms.size}),
        checksum_(options.terms.checksum),
        outlets_({.connection = options.flags.connection,
                  .modes = options.flags.modes,
                  .terms = options.terms,
                  .borrowed_blocks = options.terms.blocks,
                  .on_failure = options.flags.on_failure},
                 RDMADevice(),
                 {.over = [&](const Status& /*why*/) { over(wake); },
                  .say = [&](const std::string& line) { progress_.say(line); }}) {}

  Status run() {
    if (Status connected = outlets_.connect(options_.receivers); !connected.ok()) return connected;
    if (options_.flags.verbose)
      for (const std::string& who : outlets_.peers()) progress_.say("sending to " + who);
    const auto began = std::chrono::steady_clock::now();
    auto store = BlockStore::create(outlets_.device(), options_.terms.block_bytes,
                                    static_cast<std::size_t>(options_.terms.blocks + kMoreBlocks));
    if (!store) return give_up(store.error());
    set_store(*store);
    if (Status sent = send_all(); !sent.ok()) return give_up(sent);
    checksums_.drain();
    Status finished = outlets_.finish({.bytes = progress_.bytes(), .checksum = checksum_.value()});
    if (finished.ok() && options_.flags.stats) print_stats(began);
    return finished;
  }

 private:
  /// Nothing more can be sent. From the thread of a receiver.
  void over(const WakeEvent& wake) {
    wake.signal();
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (store_) store_->stop();
  }
  void set_store(std::shared_ptr<BlockStore> store) {
    const std::lock_guard lock(mutex_);
    store_ = std::move(store);
    if (over_) store_->stop();
  }

  /// Each block is read once, and sent to all receivers from the same memory. Its checksum is computed on another
  /// thread if there are enough CPUs.
  Status send_all() {
    for (;;) {
      const std::shared_ptr<const BufferSlice> block = store_->take();
      if (!block) return make_error(Errc::kStopped, "woken");
      const auto room =
          progress_.bytes() == 0 ? block->bytes().first(std::min(kFirstBytes, block->bytes().size())) : block->bytes();
      const auto got = input_.read(room);
      if (!got) return got.error();
      if (got->bytes > 0) {
        if (options_.terms.checksum) checksums_.add(checksum_, block->bytes().first(got->bytes), block);
        outlets_.push(block->first(static_cast<std::uint32_t>(got->bytes)), block);
        progress_.add(got->bytes);
      }
      if (got->end) return {};
    }
  }

  /// A failure of a receiver counts before a local error that it caused.
  Status give_up(const Status& why) {
    if (Status failed = outlets_.status(); !failed.ok() && why.code() == Errc::kStopped) return failed;
    outlets_.abort("the sender has failed: " + programs::reason_text(why));
    return why;
  }

  void print_stats(std::chrono::steady_clock::time_point began) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const programs::ProcessorTime used = programs::processor_time();
    progress_.say(
        programs::stats_text(progress_.bytes(), seconds, used.user_seconds, used.system_seconds, checksum_.value()));
  }

  const SenderOptions& options_;
  const Input& input_;
  programs::Progress progress_;
  programs::Checksum checksum_;
  programs::ChecksumQueue checksums_;
  std::mutex mutex_;
  bool over_ = false;
  std::shared_ptr<BlockStore> store_;
  Outlets outlets_;  // its threads use all members above
};

}  // namespace

Status run_sender(const SenderOptions& options) {
  if (Status open = check_open(options.input_fd, "standard input"); !open.ok()) return open;
  const auto wake = WakeEvent::create();
  if (!wake) return wake.error();
  const auto input = Input::open(options.input_fd, wake->fd());
  if (!input) return input.error();
  SenderOptions with_size = options;
  if (!with_size.terms.size) with_size.terms.size = input->size();
  return Sender(with_size, *input, *wake).run();
}

}  // namespace rdmacomm::pipes
