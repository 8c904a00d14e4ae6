// fake_verbs.h - a verbs::Api that transfers no data. It records every call, fails if the test requests it, and
// completes requests on command. For paths that a working device does not take.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "verbs/api.h"

namespace rdmacomm::testing {

/// One device of the fake. A test changes the attributes before it opens the device.
struct FakeDevice : ibv_device {
  ibv_device_attr attributes{};
  ibv_odp_caps odp{};
  std::vector<ibv_port_attr> ports;
  std::vector<ibv_gid_entry> gids;     // of every port
  std::vector<std::uint16_t> pkeys{};  // of every port, by set_pkeys()

  explicit FakeDevice(const char* name_, ibv_port_state state = IBV_PORT_ACTIVE) : ibv_device{} {
    std::strncpy(name, name_, sizeof(name) - 1);
    transport_type = IBV_TRANSPORT_IB;
    attributes.phys_port_cnt = 1;
    attributes.max_qp_wr = 1024;
    attributes.max_sge = 8;
    attributes.max_sge_rd = 2;
    attributes.max_cqe = 4096;
    attributes.max_qp = 100;
    attributes.max_pd = 50;
    attributes.max_qp_rd_atom = 16;
    attributes.max_qp_init_rd_atom = 8;
    attributes.max_mr_size = std::uint64_t{1} << 30;
    attributes.atomic_cap = IBV_ATOMIC_HCA;
    add_port(state);
    add_gid("\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", IBV_GID_TYPE_ROCE_V2);
  }

  void add_port(ibv_port_state state) {
    ibv_port_attr port{};
    port.state = state;
    port.active_mtu = IBV_MTU_4096;
    port.max_msg_sz = 1U << 30;
    port.link_layer = IBV_LINK_LAYER_ETHERNET;
    port.gid_tbl_len = static_cast<int>(gids.size());
    ports.push_back(port);
    attributes.phys_port_cnt = static_cast<std::uint8_t>(ports.size());
  }
  void add_gid(const char* sixteen_bytes, ibv_gid_type type) {
    ibv_gid_entry entry{};
    std::memcpy(entry.gid.raw, sixteen_bytes, sizeof(entry.gid.raw));
    entry.gid_type = type;
    gids.push_back(entry);
    for (ibv_port_attr& port : ports) port.gid_tbl_len = static_cast<int>(gids.size());
  }
  void set_pkeys(std::vector<std::uint16_t> table) {
    pkeys = std::move(table);
    for (ibv_port_attr& port : ports) port.pkey_tbl_len = static_cast<std::uint16_t>(pkeys.size());
  }
  void clear_gids() {
    gids.clear();
    for (ibv_port_attr& port : ports) port.gid_tbl_len = 0;
  }
};

/// The table of verbs and the state of the fake. One per program, because the table's entries have no argument to find
/// it by.
class FakeVerbs {
 public:
  /// The fate of posted requests.
  enum class Requests {
    kHold,      ///< nothing until complete_send(), complete_recv() or the move to ERR
    kComplete,  ///< sends succeed at once; receives are held
  };

  FakeVerbs() {
    devices.push_back(std::make_unique<FakeDevice>("fake0"));
    current() = this;
  }
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;
  ~FakeVerbs() { current() = nullptr; }

  [[nodiscard]] static const verbs::Api& api() {
    static const verbs::Api table = make_api();
    return table;
  }

  /// Makes the `nth` call of `verb` from now on fail with `number` (1: the next call). Later calls work again.
  void fail(const std::string& verb, int number, int nth = 1) { failures_[verb] = {number, nth}; }
  /// Number of calls of `verb`.
  [[nodiscard]] int calls(const std::string& verb) const {
    const auto found = calls_.find(verb);
    return found == calls_.end() ? 0 : found->second;
  }
  /// Handles that are not destroyed yet.
  [[nodiscard]] int live() const { return live_; }

  /// Completes the oldest held request. An unsignaled request that succeeds makes no completion.
  void complete_send(ibv_wc_status status = IBV_WC_SUCCESS) { complete_oldest(sends_, status, IBV_WC_SEND); }
  void complete_recv(std::uint32_t bytes, unsigned wc_flags = 0, std::uint32_t network_immediate = 0,
                     ibv_wc_opcode opcode = IBV_WC_RECV) {
    complete_oldest(recvs_, IBV_WC_SUCCESS, opcode);
    completions.back().byte_len = bytes;
    completions.back().wc_flags = wc_flags;
    completions.back().imm_data = network_immediate;
  }
  /// Completes the oldest receive of the shared queues, as a message to that queue pair.
  void complete_shared_recv(std::uint32_t qpn, std::uint32_t bytes) {
    shared_recvs_.front().qpn = qpn;
    complete_oldest(shared_recvs_, IBV_WC_SUCCESS, IBV_WC_RECV);
    completions.back().byte_len = bytes;
  }
  /// Makes the next get_async_event() return this event.
  void raise_async(const ibv_context* context, const ibv_async_event& event) {
    async_events_.push_back(event);
    (void)eventfd_write(context->async_fd, 1);
  }
  /// Makes a completion channel's descriptor readable, as a completion on an armed queue does.
  void raise_event(const ibv_cq* cq) const { (void)eventfd_write(cq->channel->fd, 1); }

  // Set by tests.
  std::vector<std::unique_ptr<FakeDevice>> devices;
  Requests requests = Requests::kHold;
  std::uint32_t max_inline = 256;       ///< create_qp refuses more
  bool shrinks_inline = false;          ///< create_qp grants half of the requested inline size
  bool names_refused_requests = true;   ///< post_srq_recv sets bad_wr; false: a careless driver
  bool refuses_posts_in_error = false;  ///< against the man page, as a broken device might
  bool poll_fails = false;              ///< poll_cq returns -1

  // Read by tests.
  struct Transition {
    ibv_qp_attr attributes;
    int mask;
  };
  struct Post {
    ibv_send_wr wr;
    std::vector<ibv_sge> slices;
  };
  std::vector<Transition> transitions;
  std::vector<Post> posts;                ///< accepted send requests, since the start
  std::vector<std::uint64_t> recv_ids;    ///< wr_id of accepted receives, since the start
  std::vector<int> post_lengths;          ///< requests of each call of post_send
  std::vector<int> shared_recv_lengths;   ///< receives of each call of post_srq_recv
  std::vector<std::uint32_t> srq_limits;  ///< of each modify_srq
  std::deque<ibv_wc> completions;         ///< poll_cq returns these next
  std::atomic<std::uint64_t> polls{0};    ///< calls of poll_cq
  std::vector<int> registered_access;     ///< of each reg_mr
  std::vector<int> completion_depths;     ///< of each create_cq
  unsigned acknowledged_events = 0;
  std::vector<ibv_async_event> acknowledged_async;
  int armed = 0;

  /// Drops all requests as if they had never been posted: they will not complete.
  void forget_requests() {
    sends_.clear();
    recvs_.clear();
  }

 private:
  struct Failure {
    int number = 0;
    int nth = 0;
  };
  struct Held {
    std::uint64_t id;
    std::uint32_t qpn;
    bool signaled;
  };

  static FakeVerbs*& current() {
    static FakeVerbs* fake = nullptr;
    return fake;
  }
  static FakeVerbs& self() { return *current(); }

  // Counts the call. Returns the error number that it must fail with, or 0.
  int enter(const std::string& verb) {
    ++calls_[verb];
    const auto found = failures_.find(verb);
    if (found == failures_.end() || --found->second.nth != 0) return 0;
    errno = found->second.number;
    return found->second.number;
  }
  // For verbs that report errors by NULL: returns a zeroed T, or nullptr with errno set.
  template <typename T>
  T* make(const std::string& verb) {
    if (enter(verb) != 0) return nullptr;
    ++live_;
    return new T();
  }
  template <typename T>
  int release(const std::string& verb, T* handle) {
    if (const int number = enter(verb); number != 0) return number;
    --live_;
    delete handle;
    return 0;
  }

  void complete_oldest(std::deque<Held>& held, ibv_wc_status status, ibv_wc_opcode opcode) {
    const Held request = held.front();
    held.pop_front();
    if (status == IBV_WC_SUCCESS && !request.signaled) return;
    ibv_wc wc{};
    wc.wr_id = request.id;
    wc.qp_num = request.qpn;
    wc.status = status;
    // After an error a device leaves the other fields undefined. The fake sets them to misleading values.
    wc.opcode = status == IBV_WC_SUCCESS ? opcode : IBV_WC_RECV_RDMA_WITH_IMM;
    wc.wc_flags = status == IBV_WC_SUCCESS ? 0 : IBV_WC_WITH_IMM;
    wc.byte_len = status == IBV_WC_SUCCESS ? 0 : 0xdead;
    wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x42;
    completions.push_back(wc);
  }
  void flush() {
    while (!sends_.empty()) complete_oldest(sends_, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
    while (!recvs_.empty()) complete_oldest(recvs_, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
  }

  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    FakeVerbs& fake = self();
    int length = 0;
    for (; wr != nullptr; wr = wr->next, ++length) {
      *bad = wr;
      if (const int number = fake.enter("post_send"); number != 0) return number;
      if (qp->state == IBV_QPS_ERR && fake.refuses_posts_in_error) return EINVAL;
      fake.posts.push_back({*wr, {wr->sg_list, wr->sg_list + wr->num_sge}});
      fake.sends_.push_back({wr->wr_id, qp->qp_num, (wr->send_flags & IBV_SEND_SIGNALED) != 0});
      if (qp->state == IBV_QPS_ERR)
        fake.flush();
      else if (fake.requests == Requests::kComplete)
        fake.complete_send();
    }
    fake.post_lengths.push_back(length);
    return 0;
  }
  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    FakeVerbs& fake = self();
    *bad = wr;
    if (const int number = fake.enter("post_recv"); number != 0) return number;
    fake.recv_ids.push_back(wr->wr_id);
    fake.recvs_.push_back({wr->wr_id, qp->qp_num, true});
    return 0;
  }
  static int post_srq_recv(ibv_srq* /*srq*/, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    FakeVerbs& fake = self();
    int length = 0;
    for (; wr != nullptr; wr = wr->next, ++length) {
      if (fake.names_refused_requests) *bad = wr;
      if (const int number = fake.enter("post_srq_recv"); number != 0) return number;
      fake.shared_recvs_.push_back({wr->wr_id, 0, true});
    }
    fake.shared_recv_lengths.push_back(length);
    return 0;
  }
  static int poll_cq(ibv_cq* /*cq*/, int count, ibv_wc* wcs) {
    FakeVerbs& fake = self();
    fake.polls.fetch_add(1, std::memory_order_relaxed);
    if (fake.poll_fails) return -1;
    int taken = 0;
    for (; taken < count && !fake.completions.empty(); ++taken) {
      wcs[taken] = fake.completions.front();
      fake.completions.pop_front();
    }
    return taken;
  }
  static int req_notify_cq(ibv_cq* /*cq*/, int /*solicited_only*/) {
    if (const int number = self().enter("req_notify_cq"); number != 0) return number;
    ++self().armed;
    return 0;
  }

  static ibv_device** get_device_list(int* count) {
    FakeVerbs& fake = self();
    *count = 0;
    if (fake.enter("get_device_list") != 0) return nullptr;
    auto** list = new ibv_device*[fake.devices.size() + 1]();
    for (std::size_t i = 0; i < fake.devices.size(); ++i) list[i] = fake.devices[i].get();
    *count = static_cast<int>(fake.devices.size());
    return list;
  }
  static ibv_context* open_device(ibv_device* device) {
    auto* context = self().make<ibv_context>("open_device");
    if (context == nullptr) return nullptr;
    context->device = device;
    context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);  // blocking, as in libibverbs
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.post_srq_recv = post_srq_recv;
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    return context;
  }
  static FakeDevice& device_of(ibv_context* context) { return *static_cast<FakeDevice*>(context->device); }
  static int query_device(ibv_context* context, ibv_device_attr* attributes) {
    *attributes = device_of(context).attributes;
    return self().enter("query_device");
  }
  static int query_device_ex(ibv_context* context, ibv_device_attr_ex* attributes) {
    *attributes = {};
    attributes->orig_attr = device_of(context).attributes;
    attributes->odp_caps = device_of(context).odp;
    return self().enter("query_device_ex");
  }
  static int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
    if (const int number = self().enter("query_port"); number != 0) return number;
    const auto& ports = device_of(context).ports;
    if (port < 1 || port > ports.size()) return EINVAL;
    *attributes = ports[port - 1U];
    return 0;
  }
  static int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
    if (const int number = self().enter("query_gid_entry"); number != 0) return number;
    const auto& gids = device_of(context).gids;
    if (index >= gids.size()) return EINVAL;
    *entry = gids[index];
    entry->gid_index = index;
    entry->port_num = port;
    return 0;
  }
  static int query_pkey(ibv_context* context, std::uint8_t /*port*/, int index, __be16* pkey) {
    if (self().enter("query_pkey") != 0) return -1;
    *pkey = htobe16(device_of(context).pkeys.at(static_cast<std::size_t>(index)));
    return 0;
  }

  static ibv_pd* alloc_pd(ibv_context* context) {
    auto* pd = self().make<ibv_pd>("alloc_pd");
    if (pd != nullptr) pd->context = context;
    return pd;
  }
  static ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
    auto* mr = self().make<ibv_mr>("reg_mr");
    if (mr == nullptr) return nullptr;
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->lkey = 0x100;
    mr->rkey = 0x200;
    self().registered_access.push_back(access);
    return mr;
  }
  static ibv_comp_channel* create_comp_channel(ibv_context* context) {
    auto* channel = self().make<ibv_comp_channel>("create_comp_channel");
    if (channel == nullptr) return nullptr;
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);  // blocking, as in libibverbs
    return channel;
  }
  static int destroy_comp_channel(ibv_comp_channel* channel) {
    close(channel->fd);
    return self().release("destroy_comp_channel", channel);
  }
  static ibv_cq* create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int) {
    auto* cq = self().make<ibv_cq>("create_cq");
    if (cq == nullptr) return nullptr;
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = cq_context;
    cq->cqe = depth;
    self().completion_depths.push_back(depth);
    return cq;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    eventfd_t count = 0;
    *cq = nullptr;
    *cq_context = nullptr;
    return self().enter("get_cq_event") == 0 ? eventfd_read(channel->fd, &count) : -1;
  }
  static void ack_cq_events(ibv_cq* /*cq*/, unsigned count) {
    self().enter("ack_cq_events");
    self().acknowledged_events += count;
  }

  static int get_async_event(ibv_context* context, ibv_async_event* event) {
    eventfd_t count = 0;
    if (self().enter("get_async_event") != 0 || eventfd_read(context->async_fd, &count) != 0) return -1;
    *event = self().async_events_.front();
    self().async_events_.pop_front();
    return 0;
  }

  static ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* /*attributes*/) {
    auto* srq = self().make<ibv_srq>("create_srq");
    if (srq == nullptr) return nullptr;
    srq->context = pd->context;
    srq->pd = pd;
    return srq;
  }
  static int modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* attributes, int /*mask*/) {
    if (const int number = self().enter("modify_srq"); number != 0) return number;
    self().srq_limits.push_back(attributes->srq_limit);
    return 0;
  }

  static ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    FakeVerbs& fake = self();
    if (attributes->cap.max_inline_data > fake.max_inline) {
      fake.enter("create_qp");
      errno = EINVAL;
      return nullptr;
    }
    auto* qp = fake.make<ibv_qp>("create_qp");
    if (qp == nullptr) return nullptr;
    if (fake.shrinks_inline) attributes->cap.max_inline_data /= 2;
    qp->context = pd->context;
    qp->pd = pd;
    qp->send_cq = attributes->send_cq;
    qp->recv_cq = attributes->recv_cq;
    qp->srq = attributes->srq;
    qp->qp_type = attributes->qp_type;
    qp->qp_num = ++fake.last_qpn_;
    qp->state = IBV_QPS_RESET;
    return qp;
  }
  static int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    FakeVerbs& fake = self();
    if (const int number = fake.enter("modify_qp"); number != 0) return number;
    fake.transitions.push_back({*attributes, mask});
    if ((mask & IBV_QP_STATE) != 0) qp->state = attributes->qp_state;
    if (qp->state == IBV_QPS_ERR) fake.flush();
    return 0;
  }
  static int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* /*init*/) {
    attributes->qp_state = qp->state;
    return self().enter("query_qp");
  }

  static verbs::Api make_api() {
    verbs::Api table{};
    table.name = "fake";
    table.get_device_list = get_device_list;
    table.free_device_list = [](ibv_device** list) { delete[] list; };
    table.open_device = open_device;
    table.close_device = [](ibv_context* context) {
      close(context->async_fd);
      return self().release("close_device", context);
    };
    table.query_device = query_device;
    table.query_device_ex = query_device_ex;
    table.query_port = query_port;
    table.query_gid_entry = query_gid_entry;
    table.query_pkey = query_pkey;
    table.alloc_pd = alloc_pd;
    table.dealloc_pd = [](ibv_pd* pd) { return self().release("dealloc_pd", pd); };
    table.reg_mr = reg_mr;
    table.dereg_mr = [](ibv_mr* mr) { return self().release("dereg_mr", mr); };
    table.create_comp_channel = create_comp_channel;
    table.destroy_comp_channel = destroy_comp_channel;
    table.create_cq = create_cq;
    table.destroy_cq = [](ibv_cq* cq) { return self().release("destroy_cq", cq); };
    table.resize_cq = [](ibv_cq* cq, int depth) {
      const int number = self().enter("resize_cq");
      if (number == 0) cq->cqe = depth;
      return number;
    };
    table.get_cq_event = get_cq_event;
    table.ack_cq_events = ack_cq_events;
    table.create_srq = create_srq;
    table.modify_srq = modify_srq;
    table.destroy_srq = [](ibv_srq* srq) { return self().release("destroy_srq", srq); };
    table.create_qp = create_qp;
    table.modify_qp = modify_qp;
    table.query_qp = query_qp;
    table.destroy_qp = [](ibv_qp* qp) { return self().release("destroy_qp", qp); };
    table.get_async_event = get_async_event;
    table.ack_async_event = [](ibv_async_event* event) { self().acknowledged_async.push_back(*event); };
    table.allocate_memory = [](ibv_context*, std::size_t length, bool) -> void* {
      if (self().enter("allocate_memory") != 0) return nullptr;
      ++self().live_;
      return std::calloc(1, length);
    };
    table.free_memory = [](ibv_context*, void* address, std::size_t, bool) {
      self().enter("free_memory");
      --self().live_;
      std::free(address);
    };
    return table;
  }

  std::map<std::string, int> calls_;
  std::map<std::string, Failure> failures_;
  std::deque<Held> sends_;
  std::deque<Held> recvs_;
  std::deque<Held> shared_recvs_;
  std::deque<ibv_async_event> async_events_;
  std::uint32_t last_qpn_ = 0x10;
  int live_ = 0;
};

}  // namespace rdmacomm::testing
