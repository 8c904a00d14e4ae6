// requests.h - the requests that were posted and whose completions were not polled yet.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softdev/check/copies.h"
#include "softdev/check/memory.h"
#include "softdev/check/objects.h"
#include "softdev/check/ranges.h"
#include "softdev/check/report.h"
#include "softdev/check/stacks.h"

namespace rdmacomm::softdev::check {

/// A slice of a request.
struct Slice {
  ibv_sge given;
  std::uint64_t address = 0;  ///< in this process; 0: unknown
  std::shared_ptr<Mr> mr;     ///< nullptr: unknown
  bool is_told = false;       ///< its key was reported
};

struct Request {
  const std::uint64_t born = count_record();
  std::uint64_t id = 0;     ///< the wr_id that the device has
  std::uint64_t wr_id = 0;  ///< the wr_id of the program
  Object* owner = nullptr;  ///< queue pair or shared receive queue
  Queue* queue = nullptr;
  Cq* cq = nullptr;  ///< nullptr: depends on the message
  bool is_receive = false;
  bool is_signaled = false;
  bool is_inline = false;
  bool is_fenced = false;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  StackId posted = 0;
  std::vector<Slice> slices;
  int slice_count = 0;  ///< as given; `slices` has one too many at most
  std::uint64_t inline_bytes = 0;
  std::optional<std::uint64_t> hash;  ///< of these bytes when the request was posted
  bool is_alone = true;               ///< no other request in flight had some of its bytes, with one of the two writing
  bool is_protected = false;          ///< by pages.h
  std::optional<Copy> copy;           ///< the memory that the device uses
  StackId wr_id_freed = 0;            ///< wr_id was the address of memory that was freed here
  std::thread::id thread;
  std::uint64_t stack_low = 0;  ///< the stack of the thread that posted: [low, high)
  std::uint64_t stack_high = 0;

  /// True if the device writes the slices.
  [[nodiscard]] bool writes() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  /// The program's bytes that the checker can read.
  [[nodiscard]] std::vector<Bytes> readable() const;
  /// "SEND with wr_id 7, 64 bytes at 0x7f..."
  [[nodiscard]] std::string describe() const;
};

/// All requests in flight.
/// Threads: the caller holds a Locked.
class Requests {
 public:
  /// A number for the device that no other request has.
  [[nodiscard]] std::uint64_t draw_id() noexcept { return kMark | ++last_; }

  /// Takes a request in. All its members are set.
  Request& add(std::unique_ptr<Request> request);
  /// Takes a request out, without looking at its memory.
  void remove(Request& request);
  /// Takes out all requests of a queue.
  void remove_all(Queue& queue);

  /// nullptr: the number is none of a request in flight.
  [[nodiscard]] Request* find(std::uint64_t id);

  /// Calls a function with each request in flight that has some of these bytes.
  template <typename Function>
  void for_each_in(std::uint64_t address, std::uint64_t length, const Function& function) const {
    ranges_.for_each(address, length, [&](std::uint64_t, const Ranges::Range& range) { return function(range); });
  }
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::unique_ptr<Request>>& all() const noexcept { return all_; }

  /// free() of a block: marks the requests whose wr_id is its address, and that were recorded before `born`.
  void mark_wr_id_freed(std::uint64_t address, std::uint64_t born, StackId where);

 private:
  /// Distinguishes the numbers of requests from numbers of the program, for requests that the checker does not see.
  static constexpr std::uint64_t kMark = 0xc4ecULL << 48;

  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Request>> all_;
  std::set<std::pair<std::uint64_t, Request*>> by_wr_id_;
  Ranges ranges_;
};

[[nodiscard]] Requests& requests();

/// False if no request in flight has this wr_id. True may be wrong: different numbers share a count.
/// Threads: any.
[[nodiscard]] bool is_wr_id(std::uint64_t wr_id) noexcept;

/// Opens the pages of its buffers, if they are protected.
/// Threads: the caller holds a Locked.
void unprotect(Request& request);

/// Adds the request and its queue to a report, with their stacks.
Report& tell_request(Report& report, const Request& request, const char* label = "request");

}  // namespace rdmacomm::softdev::check
