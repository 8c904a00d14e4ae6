// objects.h - the objects of the verbs that the program has, with the places that made them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "softdev/check/stacks.h"

namespace rdmacomm::softdev::check {

enum class ObjectKind { kContext, kPd, kMr, kMw, kDm, kXrcd, kTd, kChannel, kCq, kSrq, kQp, kAh };

/// "queue pair", "registration", ...
[[nodiscard]] const char* name_of(ObjectKind kind) noexcept;

struct Context;
struct Request;

/// Counts the objects and requests that were recorded so far.
[[nodiscard]] std::uint64_t recorded() noexcept;
/// The number of a new one, from 1.
[[nodiscard]] std::uint64_t count_record() noexcept;

/// An object. Made when the call that makes it has succeeded, and kept until the call that ends it has succeeded.
struct Object {
  Object(ObjectKind its_kind, const void* its_address, ibv_context* its_context)
      : kind(its_kind), address(its_address), context(its_context) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  /// "queue pair 0x00012a (RC)", "completion queue with 64 entries", ...
  [[nodiscard]] virtual std::string describe() const;

  const ObjectKind kind;
  const void* const address;  ///< of the structure that the program has
  ibv_context* const context;
  const std::uint64_t born = count_record();
  StackId created = 0;
  unsigned references = 1;                      ///< ibv_open_qp may return the same pointer again
  std::vector<const void*> uses;                ///< the objects that must exist longer
  bool is_of_parent = false;                    ///< made before a fork()
  std::vector<ibv_async_event> unacknowledged;  ///< asynchronous events of a queue or queue pair
  StackId last_event = 0;                       ///< the call that has returned the last of them
};

/// Counts of events that must be acknowledged.
struct EventCounts {
  std::uint64_t got = 0;
  std::uint64_t acknowledged = 0;
  StackId last_got = 0;
  [[nodiscard]] std::uint64_t waiting() const noexcept { return got > acknowledged ? got - acknowledged : 0; }
};

/// A context, with the functions that its tables had before the checker replaced them.
struct Context : Object {
  explicit Context(ibv_context* opened) : Object(ObjectKind::kContext, opened, opened), ops(opened->ops) {}
  [[nodiscard]] std::string describe() const override;

  ibv_context_ops ops;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_srq_ex) create_srq_ex = nullptr;
  decltype(verbs_context::open_qp) open_qp = nullptr;
  decltype(verbs_context::open_xrcd) open_xrcd = nullptr;
  decltype(verbs_context::close_xrcd) close_xrcd = nullptr;
  decltype(verbs_context::alloc_dm) alloc_dm = nullptr;
  decltype(verbs_context::free_dm) free_dm = nullptr;
  decltype(verbs_context::reg_dm_mr) reg_dm_mr = nullptr;
  decltype(verbs_context::alloc_null_mr) alloc_null_mr = nullptr;
  decltype(verbs_context::alloc_td) alloc_td = nullptr;
  decltype(verbs_context::dealloc_td) dealloc_td = nullptr;
  decltype(verbs_context::alloc_parent_domain) alloc_parent_domain = nullptr;
};

struct Mr : Object {
  explicit Mr(ibv_mr* mr) : Object(ObjectKind::kMr, mr, mr->context), lkey(mr->lkey), rkey(mr->rkey) {}
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool is_for_peers() const noexcept {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  }

  std::uint32_t lkey;
  std::uint32_t rkey;
  std::uint64_t begin = 0;   ///< address in this process
  std::uint64_t length = 0;  ///< bytes
  std::uint64_t offset = 0;  ///< added to an address of a request, modulo 2^64, it gives the address in this process
  unsigned access = 0;
  bool is_memory = true;        ///< false: of a device, without contents, or not certainly mapped
  bool is_unmapped = false;     ///< munmap() has removed some of it
  std::uint64_t in_flight = 0;  ///< slices of requests
  StackId deregistered = 0;     ///< not 0: only a record
};

struct Channel : Object {
  explicit Channel(ibv_comp_channel* channel)
      : Object(ObjectKind::kChannel, channel, channel->context), verbs(channel) {}
  ibv_comp_channel* const verbs;
};

struct Cq : Object {
  explicit Cq(ibv_cq* cq) : Object(ObjectKind::kCq, cq, cq->context), verbs(cq) {}
  [[nodiscard]] std::string describe() const override;

  ibv_cq* const verbs;
  std::mutex polling;             ///< completions are processed in the order of the device
  std::uint64_t outstanding = 0;  ///< requests whose completions may come to this queue
  bool is_told_small = false;
  bool is_armed = false;
  bool is_solicited = false;                   ///< armed for solicited completions only
  bool was_armed = false;                      ///< ever
  std::atomic<bool> is_empty_since_arm{true};  ///< a poll after the last arm found the end of the queue
  EventCounts events;
  std::deque<ibv_wc> peeked;  ///< polled by the checker, not yet by the program
  bool is_extended = false;
  bool has_lengths = true;  ///< false: a completion does not tell how many bytes were received
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
  decltype(ibv_cq_ex::end_poll) end_poll = nullptr;
  std::thread::id thread;  ///< of the first call that uses it
  bool has_several_threads = false;
};

/// The requests of a send or receive queue that are in flight, in the order of their posts.
struct Queue {
  std::deque<Request*> requests;
  std::uint64_t signaled = 0;  ///< how many of them ask for a completion
};

struct Srq : Object {
  explicit Srq(ibv_srq* srq) : Object(ObjectKind::kSrq, srq, srq->context), verbs(srq) {}
  ibv_srq* const verbs;
  std::mutex posting;
  Queue receives;
  std::set<const Cq*> queues;  ///< to which its receives may complete
  bool is_xrc = false;
  std::uint32_t max_sge = 0;
};

/// A request between ibv_wr_start and ibv_wr_complete.
struct Built {
  ibv_send_wr wr{};
  std::vector<ibv_sge> slices;
  std::uint64_t id = 0;  ///< for the device
  std::uint64_t inline_bytes = 0;
};

struct Qp : Object {
  explicit Qp(ibv_qp* qp) : Object(ObjectKind::kQp, qp, qp->context), verbs(qp), type(qp->qp_type) {}
  [[nodiscard]] std::string describe() const override;

  ibv_qp* const verbs;
  const ibv_qp_type type;
  ibv_qp_state state = IBV_QPS_RESET;
  bool is_opened = false;  ///< by ibv_open_qp: its state is known to another process
  bool signals_all = false;
  ibv_qp_cap capacity{};
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  std::uint32_t peer_qpn = 0;  ///< 0: not connected
  std::mutex sending;          ///< requests are recorded in the order of the device
  std::mutex receiving;
  Queue sends;
  Queue receives;
  std::unique_ptr<ibv_qp_ex> calls;  ///< the functions of its ibv_qp_ex before the checker replaced them
  std::vector<Built> built;
};

/// All objects of the process.
/// Threads: the caller holds a Locked. An object that a call uses exists until the call has returned, because destroying
/// it meanwhile is an error of the program.
class Objects {
 public:
  /// Takes an object in, and returns it. An object with this address that was not taken out is replaced.
  template <typename Type>
  Type& add(std::unique_ptr<Type> object) {
    Type& added = *object;
    insert(std::move(object));
    return added;
  }
  [[nodiscard]] Object* find(const void* address) const;
  template <typename Type>
  [[nodiscard]] Type* find_as(const void* address) const {
    return dynamic_cast<Type*>(find(address));
  }
  [[nodiscard]] std::shared_ptr<Object> take(const void* address);
  /// Takes an object in again that take() has taken out.
  void put_back(std::shared_ptr<Object> object) { insert(std::move(object)); }

  /// The registration that has an lkey, also one that was deregistered.
  [[nodiscard]] std::shared_ptr<Mr> by_lkey(const ibv_context* context, std::uint32_t lkey) const;
  /// The registration of this process that has an rkey, also one that was deregistered.
  [[nodiscard]] std::shared_ptr<Mr> by_rkey(std::uint32_t rkey) const;
  /// An object that must be ended before the one at this address; nullptr: none.
  [[nodiscard]] const Object* user_of(const void* address) const;
  /// Remembers a registration that was deregistered: the last 4096.
  void remember(const Mr& mr);
  /// Registrations get new keys by ibv_rereg_mr.
  void rekey(Mr& mr, std::uint32_t lkey, std::uint32_t rkey);

  /// The completion channel with a descriptor; nullptr: none.
  [[nodiscard]] ibv_comp_channel* channel_of(int fd) const;
  /// The number of completion channels. Threads: any.
  [[nodiscard]] unsigned channels() const noexcept { return channels_.load(std::memory_order_relaxed); }

  [[nodiscard]] const std::unordered_map<const void*, std::shared_ptr<Object>>& all() const noexcept { return all_; }

 private:
  struct Key {
    const ibv_context* context;
    std::uint32_t key;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<const void*>()(key.context) * 31 + key.key * 0x9e3779b97f4a7c15ULL;
    }
  };

  void insert(std::shared_ptr<Object> object);

  std::unordered_map<const void*, std::shared_ptr<Object>> all_;
  std::unordered_map<Key, std::shared_ptr<Mr>, KeyHash> by_lkey_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Mr>> by_rkey_;
  std::deque<std::shared_ptr<Mr>> deregistered_;
  std::atomic<unsigned> channels_{0};
};

/// The objects of this process. Never destroyed.
[[nodiscard]] Objects& objects();

/// "0x7f12..."
[[nodiscard]] std::string hexadecimal(std::uint64_t number);

}  // namespace rdmacomm::softdev::check
