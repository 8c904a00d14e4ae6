// Programs that use the verbs wrongly, each with a correct twin, for check_test.py.
//
// usage: check_mistakes CASE bad|good
//
// A comment "// RULE" at the end of a line marks the place that the checker must name.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "scene.h"

namespace {

using scene::Memory;
using scene::number;
using scene::Pair;
using scene::Qp;

/// Lets a program that sleeps for ever end in order.
void end_soon(unsigned seconds = 1) {
  std::signal(SIGALRM, [](int) { _exit(0); });
  alarm(seconds);
}

void exchange(const Pair& pair, const Memory& from, const Memory& to) {
  NEED(pair.right.recv(to.slice(0, 64)) == 0);
  NEED(pair.left.send(from.slice(0, 64)) == 0);
  pair.left.finish();
  pair.right.finish();
}

void send_buffer_changed(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);  // send-buffer-changed
  if (bad) std::memcpy(memory.data, "new", 3);
  pair.left.finish();
  if (!bad) std::memcpy(memory.data, "new", 3);
  pair.right.finish();
}

void unsignaled_buffer_changed(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  for (std::uint32_t i = 0; i < 2; ++i) NEED(pair.right.recv(inbox.slice(i * 64, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64), bad ? 0 : IBV_SEND_INLINE) == 0);  // send-buffer-changed
  std::memcpy(memory.data, "new", 3);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  for (int i = 0; i < 2; ++i) pair.right.finish();
  NEED(inbox.data[0] == (bad ? inbox.data[0] : 'a') && inbox.data[64] == 'n');
}

void receive_buffer_changed(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 128)) == 0);  // receive-buffer-changed
  inbox.data[bad ? 100 : 200] = 'x';
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  pair.right.finish();
}

/// With --check=pages.
void receive_touched(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  std::memset(memory.data, 'm', scene::kBytes);
  NEED(pair.right.recv(inbox.slice(0, 8192)) == 0);
  const char early = static_cast<volatile char*>(inbox.data)[bad ? 4096 : 8192];  // buffer-touched
  NEED(pair.left.send(memory.slice(0, 8192)) == 0);
  pair.left.finish();
  pair.right.finish();
  NEED(early == 'a' && inbox.data[4096] == 'm' && inbox.data[8192] == 'a');
}

void send_touched(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 8192)) == 0);
  NEED(pair.left.send(memory.slice(0, 8192)) == 0);
  // Reading is allowed.
  const char read = static_cast<volatile char*>(memory.data)[0];
  static_cast<volatile char*>(memory.data)[bad ? 0 : 8192] = read;  // buffer-touched
  pair.left.finish();
  pair.right.finish();
}

void read_touched(bool bad) {
  const Pair pair;
  const Memory source(pair.device, scene::kAllAccess);
  const Memory target(pair.device);
  const Memory inbox(pair.device);
  std::memset(source.data, 's', scene::kBytes);
  NEED(pair.left.remote(IBV_WR_RDMA_READ, target.slice(0, 8192), number(source.data), source.mr->rkey) == 0);
  if (bad) static_cast<void>(static_cast<volatile char*>(target.data)[0]);  // buffer-touched
  // A fenced SEND of data that the READ brings is correct.
  NEED(pair.right.recv(inbox.slice(0, 12288)) == 0);
  NEED(pair.left.send(target.slice(4096, 8192), IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0);
  pair.left.finish();
  pair.left.finish();
  pair.right.finish();
  NEED(target.data[0] == 's' && inbox.data[0] == 's' && inbox.data[4095] == 's' && inbox.data[4096] == 'a');
}

void overlap(bool bad) {
  const Pair pair;
  const Memory source(pair.device, scene::kAllAccess);
  const Memory target(pair.device);
  const Memory memory(pair.device);
  NEED(pair.left.recv(target.slice(0, 128)) == 0);
  const ibv_sge slice = target.slice(bad ? 100 : 128, 64);
  NEED(pair.left.remote(IBV_WR_RDMA_READ, slice, number(source.data), source.mr->rkey) == 0);  // overlap
  pair.left.finish();
  NEED(pair.right.send(memory.slice(0, 64)) == 0);
  pair.right.finish();
  pair.left.finish();
}

void receive_posted_twice(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.right.recv(inbox.slice(bad ? 0 : 64, 64)) == 0);  // receive-posted-twice
  for (int i = 0; i < 2; ++i) {
    NEED(pair.left.send(memory.slice(0, 64)) == 0);
    pair.left.finish();
    pair.right.finish();
  }
}

void slice_deregistered(bool bad) {
  const Pair pair;
  const Memory inbox(pair.device);
  Memory memory(pair.device);
  const ibv_sge slice = memory.slice(0, 64);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  if (bad) {
    NEED(ibv_dereg_mr(memory.mr) == 0);
    memory.mr = nullptr;
  }
  NEED(pair.left.send(slice) == 0);  // slice-deregistered
  NEED(pair.left.next().status == (bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
  if (!bad) pair.right.finish();
}

void slice_outside(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(scene::kBytes - (bad ? 32 : 64), 64)) == 0);  // slice-outside
  NEED(pair.left.next().status == (bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
  if (!bad) pair.right.finish();
}

void unknown_key(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  ibv_sge slice = memory.slice(0, 64);
  if (bad) slice.lkey ^= 0x00ffff00;
  NEED(pair.left.send(slice) == 0);  // slice-outside
  NEED(pair.left.next().status == (bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
  if (!bad) pair.right.finish();
}

void receive_without_right(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device, bad ? 0 : IBV_ACCESS_LOCAL_WRITE);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);  // slice-outside
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  static_cast<void>(pair.left.next());
  static_cast<void>(pair.right.next());
}

void slice_of_another_domain(bool bad) {
  const Pair pair;
  ibv_pd* const other = ibv_alloc_pd(pair.device.context);
  const Memory memory(pair.device);
  scene::Block inbox;
  inbox.data = static_cast<char*>(std::malloc(64));
  inbox.mr = ibv_reg_mr(bad ? other : pair.device.pd, inbox.data, 64, scene::kLocalWrite);
  NEED(pair.right.recv({number(inbox.data), 64, inbox.mr->lkey}) == 0);  // slice-outside
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  NEED(pair.left.next().status == (bad ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS));
  NEED(pair.right.next().status == (bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
  NEED(ibv_dereg_mr(inbox.mr) == 0);
  inbox.mr = nullptr;
  NEED(ibv_dealloc_pd(other) == 0);
}

void rkey_deregistered(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  Memory target(pair.device, scene::kAllAccess);
  const std::uint32_t rkey = target.mr->rkey;
  if (bad) {
    NEED(ibv_dereg_mr(target.mr) == 0);
    target.mr = nullptr;
  }
  NEED(pair.left.remote(IBV_WR_RDMA_WRITE, memory.slice(0, 64), number(target.data), rkey) == 0);  // rkey-deregistered
  NEED(pair.left.next().status == (bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
}

void remote_access_refused(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory target(pair.device, IBV_ACCESS_REMOTE_READ);
  const ibv_wr_opcode operation = bad ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  const ibv_mr& mr = *target.mr;
  NEED(pair.left.remote(operation, memory.slice(0, 64), number(mr.addr), mr.rkey) == 0);  // remote-access-refused
  NEED(pair.left.next().status == (bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
}

void deregistered_in_flight(bool bad) {
  const Pair pair;
  const Memory inbox(pair.device);
  Memory memory(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  if (!bad) pair.left.finish();
  NEED(ibv_dereg_mr(memory.mr) == 0);  // deregistered-in-flight
  memory.mr = nullptr;
  if (bad) pair.left.finish();
  pair.right.finish();
}

void registered_memory_freed(bool bad) {
  const Pair pair;
  Memory target(pair.device, scene::kAllAccess);
  if (!bad) NEED(ibv_dereg_mr(target.mr) == 0);
  std::free(target.data);  // registered-memory-freed
  target.data = nullptr;
  if (bad) NEED(ibv_dereg_mr(target.mr) == 0);
  target.mr = nullptr;
}

void unmapped_memory_used(bool bad) {
  const Pair pair;
  scene::Block& block = pair.device.add_block();  // ends the registration after the queue pairs
  void* const mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  block.mr = ibv_reg_mr(pair.device.pd, mapped, 8192, scene::kLocalWrite);
  NEED(block.mr != nullptr);
  if (bad) NEED(munmap(mapped, 8192) == 0);
  NEED(pair.right.recv({number(mapped), 64, block.mr->lkey}) == 0);  // registered-memory-freed
}

void memory_freed_in_flight(bool bad) {
  const Pair pair;
  const Memory inbox(pair.device);
  Memory memory(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  if (!bad) pair.left.finish();
  std::free(memory.data);  // memory-freed-in-flight
  memory.data = nullptr;
  if (bad) pair.left.finish();
  pair.right.finish();
}

/// Registers the thread's stack around an address, and sends from a variable on it.
[[gnu::noinline]] void send_a_variable(const Pair& pair, ibv_mr* stack, bool bad) {
  char text[64];
  std::memset(text, 's', sizeof(text));
  NEED(pair.left.send({number(text), sizeof(text), stack->lkey}) == 0);  // stack-memory
  if (!bad) pair.left.finish();
}

void stack_memory(bool bad) {
  const Pair pair;
  const Memory inbox(pair.device);
  char top = 0;
  char* const begin = reinterpret_cast<char*>(number(&top) / 4096 * 4096 - 16384);
  ibv_mr* const stack = ibv_reg_mr(pair.device.pd, begin, 16384 + 4096, scene::kLocalWrite);
  NEED(stack != nullptr && pair.right.recv(inbox.slice(0, 64)) == 0);
  send_a_variable(pair, stack, bad);
  if (bad) pair.left.finish();
  pair.right.finish();
  NEED(ibv_dereg_mr(stack) == 0);
}

void sleep_unarmed(bool bad) {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  for (int i = 0; i < 2; ++i) {
    NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
    if (bad && i == 1) end_soon();
    if (!bad || i == 0) {
      NEED(pair.left.send(memory.slice(0, 64)) == 0);
      pair.left.finish();
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);  // sleep-unarmed
    ibv_ack_cq_events(cq, 1);
    if (!bad) NEED(ibv_req_notify_cq(cq, 0) == 0);
    pair.right.finish();
  }
}

void poll_unarmed(bool bad) {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  if (!bad) NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  ibv_wc wc{};
  NEED(ibv_poll_cq(pair.right.cq, 1, &wc) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  if (bad) end_soon();
  pollfd readable{pair.right.channel->fd, POLLIN, 0};
  NEED(poll(&readable, 1, -1) == 1);  // sleep-unarmed
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);
  ibv_ack_cq_events(cq, 1);
  pair.right.finish();
}

/// Another thread might arm the queue, so the report comes after a second.
void thread_sleeps_unarmed(bool bad) {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  if (!bad) NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  if (bad) end_soon(4);
  std::thread sleeper([&] {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);  // sleep-unarmed
    ibv_ack_cq_events(cq, 1);
  });
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  sleeper.join();
  pair.right.finish();
}

void sleep_without_poll(bool bad) {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.right.recv(inbox.slice(64, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  // The message is there already, so it raises no event.
  NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  if (bad) {
    end_soon(4);  // the checker waits for a second whether the event comes
  } else {
    pair.right.finish();
    ibv_wc wc{};
    NEED(ibv_poll_cq(pair.right.cq, 1, &wc) == 0);
    NEED(pair.left.send(memory.slice(0, 64)) == 0);
    pair.left.finish();
  }
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);  // sleep-without-poll
  ibv_ack_cq_events(cq, 1);
  pair.right.finish();
}

void events_unacknowledged(bool bad) {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  exchange(pair, memory, inbox);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);  // events-unacknowledged
  if (!bad) ibv_ack_cq_events(cq, 1);
}

/// Causes an asynchronous event at the right queue pair.
void async_event_unacknowledged(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 32)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  NEED(pair.left.next().status == IBV_WC_REM_INV_REQ_ERR);
  NEED(pair.right.next().status == IBV_WC_LOC_LEN_ERR);
  ibv_async_event event{};
  NEED(ibv_get_async_event(pair.device.context, &event) == 0);  // events-unacknowledged
  if (!bad) ibv_ack_async_event(&event);
}

void completion_queue_too_small(bool bad) {
  const Pair pair({.entries = bad ? 1 : 16, .depth = 300});
  const Memory memory(pair.device);
  const int room = pair.right.cq->cqe;
  const int receives = bad ? room + 1 : 16;
  for (int i = 0; i < receives; ++i)
    NEED(pair.right.recv(memory.slice(static_cast<std::size_t>(i) * 16, 16)) == 0);  // completion-queue-too-small
}

void capacity(bool bad) {
  const scene::Device device;
  const Qp qp(device, {.entries = bad ? 16 : 64, .depth = 32});  // completion-queue-too-small
}

void too_long_for_inline(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  NEED(ibv_query_qp(pair.left.qp, &attributes, IBV_QP_CAP, &init) == 0);
  const std::uint32_t bytes = init.cap.max_inline_data + (bad ? 1 : 0);
  NEED(pair.right.recv(inbox.slice(0, bytes)) == 0);
  const int error = pair.left.send(memory.slice(0, bytes), IBV_SEND_SIGNALED | IBV_SEND_INLINE);  // inline
  NEED((error == 0) == !bad);
  if (bad) return;
  memory.data[0] = 'x';
  pair.left.finish();
  pair.right.finish();
}

void too_many_slices(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  NEED(ibv_query_qp(pair.left.qp, &attributes, IBV_QP_CAP, &init) == 0);
  NEED(pair.right.recv(inbox.slice(0, 4096)) == 0);
  const std::uint32_t count = init.cap.max_send_sge + (bad ? 1 : 0);
  const auto slices = std::make_unique<ibv_sge[]>(count);
  for (std::uint32_t i = 0; i < count; ++i) slices[i] = memory.slice(i * 8, 8);
  ibv_send_wr wr = Qp::request(IBV_WR_SEND, slices[0], IBV_SEND_SIGNALED);
  wr.num_sge = static_cast<int>(count);
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair.left.qp, &wr, &refused);  // request-memory
  NEED((error == 0) == !bad && (!bad || refused == &wr));
  if (bad) return;
  pair.left.finish();
  pair.right.finish();
}

/// With --check=wr-ids.
void wr_id_reused(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64), 7) == 0);
  NEED(pair.right.recv(inbox.slice(64, 64), bad ? 7 : 8) == 0);  // wr-id-reused
  for (int i = 0; i < 2; ++i) {
    NEED(pair.left.send(memory.slice(0, 64)) == 0);
    pair.left.finish();
    NEED(pair.right.next().wr_id == (bad || i == 0 ? 7U : 8U));
  }
}

void wr_id_freed(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  void* const about_it = std::malloc(100);
  NEED(pair.right.recv(inbox.slice(0, 64), number(about_it)) == 0);  // wr-id-freed
  if (bad) std::free(about_it);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  NEED(pair.right.next().wr_id == number(about_it));
  if (!bad) std::free(about_it);
}

void send_too_early(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  const Qp early(pair.device);
  early.to_init();
  const Qp& sender = bad ? early : pair.left;
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED((sender.send(memory.slice(0, 64)) == 0) == !bad);  // wrong-state
  if (bad) return;
  pair.left.finish();
  pair.right.finish();
}

void receive_too_early(bool bad) {
  const scene::Device device;
  const Memory inbox(device);
  const Qp qp(device);
  if (!bad) qp.to_init();
  NEED((qp.recv(inbox.slice(0, 64)) == 0) == !bad);  // wrong-state
}

void destroyed_in_use(bool bad) {
  Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  if (!bad) pair.left.finish();
  NEED(ibv_destroy_qp(pair.left.qp) == 0);  // destroyed-in-use
  pair.left.qp = nullptr;
}

/// With --check=ends.
void destroyed_with_receives(bool bad) {
  Pair pair;
  const Memory inbox(pair.device);
  if (bad) NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(ibv_destroy_qp(pair.right.qp) == 0);  // destroyed-in-use
  pair.right.qp = nullptr;
}

void destroy_refused(bool bad) {
  Pair pair;
  if (!bad) {
    NEED(ibv_destroy_qp(pair.left.qp) == 0);
    pair.left.qp = nullptr;
  }
  const int error = ibv_destroy_cq(pair.left.cq);  // destroy-refused
  NEED((error != 0) == bad);
  if (!bad) pair.left.cq = nullptr;
}

void leak(bool bad) {
  const Pair pair;
  char* const memory = static_cast<char*>(std::malloc(4096));
  ibv_mr* const mr = ibv_reg_mr(pair.device.pd, memory, 4096, scene::kLocalWrite);  // leak
  NEED(mr != nullptr);
  if (bad) std::exit(0);
  NEED(ibv_dereg_mr(mr) == 0);
  std::free(memory);
}

const std::map<std::string, void (*)(bool bad)> kCases{
    {"send_buffer_changed", send_buffer_changed},
    {"unsignaled_buffer_changed", unsignaled_buffer_changed},
    {"receive_buffer_changed", receive_buffer_changed},
    {"receive_touched", receive_touched},
    {"send_touched", send_touched},
    {"read_touched", read_touched},
    {"overlap", overlap},
    {"receive_posted_twice", receive_posted_twice},
    {"slice_deregistered", slice_deregistered},
    {"slice_outside", slice_outside},
    {"unknown_key", unknown_key},
    {"receive_without_right", receive_without_right},
    {"slice_of_another_domain", slice_of_another_domain},
    {"rkey_deregistered", rkey_deregistered},
    {"remote_access_refused", remote_access_refused},
    {"deregistered_in_flight", deregistered_in_flight},
    {"registered_memory_freed", registered_memory_freed},
    {"unmapped_memory_used", unmapped_memory_used},
    {"memory_freed_in_flight", memory_freed_in_flight},
    {"stack_memory", stack_memory},
    {"sleep_unarmed", sleep_unarmed},
    {"poll_unarmed", poll_unarmed},
    {"thread_sleeps_unarmed", thread_sleeps_unarmed},
    {"sleep_without_poll", sleep_without_poll},
    {"events_unacknowledged", events_unacknowledged},
    {"async_event_unacknowledged", async_event_unacknowledged},
    {"completion_queue_too_small", completion_queue_too_small},
    {"capacity", capacity},
    {"too_long_for_inline", too_long_for_inline},
    {"too_many_slices", too_many_slices},
    {"wr_id_reused", wr_id_reused},
    {"wr_id_freed", wr_id_freed},
    {"send_too_early", send_too_early},
    {"receive_too_early", receive_too_early},
    {"destroyed_in_use", destroyed_in_use},
    {"destroyed_with_receives", destroyed_with_receives},
    {"destroy_refused", destroy_refused},
    {"leak", leak},
};

}  // namespace

int main(int count, char** words) {
  const auto found = count == 3 ? kCases.find(words[1]) : kCases.end();
  if (found == kCases.end()) {
    for (const auto& [name, function] : kCases) std::puts(name.c_str());
    return 2;
  }
  found->second(std::strcmp(words[2], "bad") == 0);
  return 0;
}
