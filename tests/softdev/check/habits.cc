// Correct programs with rare habits, for check_test.py: nothing may be reported, and they must work as without the
// checker.
//
// usage: check_habits CASE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "scene.h"

namespace {

using scene::Memory;
using scene::number;
using scene::Pair;
using scene::Qp;

/// Slices of several registrations: the parts of a message arrive where they belong.
void scattered_receive() {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory first(pair.device);
  const Memory second(pair.device);
  for (int i = 0; i < 100; ++i) memory.data[i] = static_cast<char>(i);
  ibv_sge slices[2]{first.slice(10, 30), second.slice(20, 100)};
  ibv_recv_wr wr{};
  ibv_recv_wr* refused = nullptr;
  wr.wr_id = 77;
  wr.sg_list = slices;
  wr.num_sge = 2;
  NEED(ibv_post_recv(pair.right.qp, &wr, &refused) == 0);
  NEED(pair.left.send(memory.slice(0, 100)) == 0);
  pair.left.finish();
  const ibv_wc wc = pair.right.next();
  NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77 && wc.byte_len == 100);
  NEED(std::memcmp(first.data + 10, memory.data, 30) == 0 && std::memcmp(second.data + 20, memory.data + 30, 70) == 0);
  NEED(first.data[40] == 'a' && second.data[19] == 'a' && second.data[90] == 'a');
}

/// A list of requests of which the device refuses one: bad_wr is the program's request.
void refused_in_a_list() {
  const Pair pair({.depth = 4});
  const Memory memory(pair.device);
  ibv_sge slice = memory.slice(0, 64);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  NEED(ibv_query_qp(pair.left.qp, &attributes, IBV_QP_CAP, &init) == 0);
  const std::uint32_t room = init.cap.max_send_wr;
  std::vector<ibv_send_wr> list(room + 2, Qp::request(IBV_WR_SEND, slice, IBV_SEND_SIGNALED));
  for (std::uint32_t i = 0; i <= room; ++i) list[i].next = &list[i + 1];
  ibv_send_wr* refused = nullptr;
  NEED(ibv_post_send(pair.left.qp, list.data(), &refused) == ENOMEM && refused == &list[room]);
  // Without a receive of the peer nothing completes, so the sends end with the move to RESET.
  attributes.qp_state = IBV_QPS_RESET;
  NEED(ibv_modify_qp(pair.left.qp, &attributes, IBV_QP_STATE) == 0);
}

/// ibv_wr_* and ibv_start_poll, with the numbers of the program.
void extended_calls() {
  const Pair pair;
  const Memory memory(pair.device, scene::kAllAccess);
  const Memory inbox(pair.device);
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 16;
  ibv_cq_ex* const cq = ibv_create_cq_ex(pair.device.context, &wanted);
  NEED(cq != nullptr);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.cap = {16, 16, 2, 2, 64};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pair.device.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
  Qp left(pair.device);
  NEED(ibv_destroy_qp(left.qp) == 0);
  left.qp = ibv_create_qp_ex(pair.device.context, &init);
  NEED(left.qp != nullptr);
  Qp right(pair.device);
  connect(left, right);
  NEED(right.recv(inbox.slice(0, 64)) == 0 && right.recv(inbox.slice(64, 64)) == 0);
  NEED(left.recv(inbox.slice(1024, 64), 99) == 0);
  ibv_qp_ex* const calls = ibv_qp_to_qp_ex(left.qp);
  ibv_wr_start(calls);
  for (std::uint64_t i = 0; i < 2; ++i) {
    calls->wr_id = 10 + i;
    calls->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(calls);
    if (i == 0) ibv_wr_set_sge(calls, memory.mr->lkey, number(memory.data), 64);
    if (i == 1) ibv_wr_set_inline_data(calls, memory.data + 64, 32);
  }
  calls->wr_id = 12;
  ibv_wr_rdma_read(calls, memory.mr->rkey, number(memory.data));
  ibv_wr_set_sge(calls, inbox.mr->lkey, number(inbox.data) + 2048, 64);
  NEED(calls->wr_id == 12 && ibv_wr_complete(calls) == 0);
  NEED(right.send(memory.slice(0, 48)) == 0);
  right.finish();
  right.finish();
  right.finish();
  std::uint64_t sum = 0;
  ibv_poll_cq_attr none{};
  for (int found = 0; found < 4;) {
    int error = ibv_start_poll(cq, &none);
    if (error == ENOENT) continue;
    for (; error == 0; error = ibv_next_poll(cq), ++found) {
      NEED(cq->status == IBV_WC_SUCCESS);
      sum += cq->wr_id;
    }
    ibv_end_poll(cq);
  }
  NEED(sum == 10 + 11 + 12 + 99);
  NEED(inbox.data[1024] == 'a' && std::memcmp(inbox.data + 2048, memory.data, 64) == 0);
  NEED(ibv_destroy_qp(left.qp) == 0);
  left.qp = nullptr;
  NEED(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

/// A child of fork() does not use the objects. It ends in order, and by exec().
void forks() {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 8192)) == 0);
  for (const bool by_exec : {false, true}) {
    const pid_t child = fork();
    if (child == 0 && by_exec) execlp("true", "true", nullptr);
    if (child == 0) std::exit(inbox.data[0] == 'a' ? 0 : 1);
    int status = 0;
    NEED(waitpid(child, &status, 0) == child && status == 0);
  }
  NEED(pair.left.send(memory.slice(0, 8192)) == 0);
  pair.left.finish();
  pair.right.finish();
}

/// One thread sleeps and takes events; another one arms and polls.
void thread_for_events() {
  const Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  constexpr int kMessages = 3;
  NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  std::thread sleeper([&] {
    for (int i = 0; i < kMessages; ++i) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);
      ibv_ack_cq_events(cq, 1);
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
    NEED(pair.left.send(memory.slice(0, 64)) == 0);
    pair.left.finish();
    pair.right.finish();
    if (i + 1 < kMessages) NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  }
  sleeper.join();
}

/// Looks the functions up in a handle.
void looked_up() {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW);
  auto* const alloc = reinterpret_cast<decltype(ibv_alloc_pd)*>(dlvsym(library, "ibv_alloc_pd", "IBVERBS_1.1"));
  auto* const dealloc = reinterpret_cast<decltype(ibv_dealloc_pd)*>(dlsym(library, "ibv_dealloc_pd"));
  const scene::Device device;
  ibv_pd* const pd = alloc(device.context);
  NEED(pd != nullptr && dealloc(pd) == 0);
  dlclose(library);
}

/// A handler of its own for bad accesses, which must still be called. With --check=pages.
void own_fault_handler() {
  static char* bad_page = nullptr;
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.right.recv(inbox.slice(0, 8192)) == 0);
  struct sigaction own {};
  own.sa_handler = [](int) { _exit(bad_page == nullptr ? 1 : 42); };
  NEED(sigaction(SIGSEGV, &own, nullptr) == 0);
  bad_page = reinterpret_cast<char*>(16);
  *static_cast<volatile char*>(bad_page) = 1;
}

/// Frees the memory of posted receives after the queue pairs, and before the shared receive queue.
void shared_receives_end_last() {
  const Pair pair;
  ibv_srq_init_attr wanted{};
  wanted.attr = {16, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pair.device.pd, &wanted);
  NEED(srq != nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = pair.left.cq;
  init.srq = srq;
  init.cap = {4, 0, 1, 0, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const receiver = ibv_create_qp(pair.device.pd, &init);
  NEED(receiver != nullptr);
  auto* const data = static_cast<char*>(std::malloc(64));
  ibv_mr* const mr = ibv_reg_mr(pair.device.pd, data, 64, IBV_ACCESS_LOCAL_WRITE);
  ibv_sge slice{number(data), 64, mr->lkey};
  ibv_recv_wr wr{};
  ibv_recv_wr* refused = nullptr;
  wr.sg_list = &slice;
  wr.num_sge = 1;
  NEED(ibv_post_srq_recv(srq, &wr, &refused) == 0);
  NEED(ibv_destroy_qp(receiver) == 0 && ibv_dereg_mr(mr) == 0);
  std::free(data);
  NEED(ibv_destroy_srq(srq) == 0);
}

/// A child frees its copies of registered memory.
void child_frees() {
  const Pair pair;
  auto* const data = static_cast<char*>(std::malloc(64));
  ibv_mr* const mr = ibv_reg_mr(pair.device.pd, data, 64, IBV_ACCESS_LOCAL_WRITE);
  NEED(pair.right.recv({number(data), 64, mr->lkey}) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::free(data);
    std::exit(0);
  }
  int status = -1;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  const Memory memory(pair.device);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  pair.left.finish();
  pair.right.finish();
  NEED(ibv_dereg_mr(mr) == 0);
  std::free(data);
}

/// A signal handler forks, whatever it has interrupted.
void handler_forks() {
  static std::atomic<int> forks = 0;
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  struct sigaction action {};
  action.sa_handler = [](int) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    ++forks;
  };
  action.sa_flags = SA_RESTART;
  NEED(sigaction(SIGUSR1, &action, nullptr) == 0);
  constexpr int kForks = 20;
  std::thread signals([target = pthread_self()] {
    for (int sent = 0; sent < kForks; ++sent) {
      pthread_kill(target, SIGUSR1);
      while (forks <= sent) std::this_thread::yield();
    }
  });
  while (forks < kForks) {
    NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
    NEED(pair.left.send(memory.slice(0, 64)) == 0);
    pair.left.finish();
    pair.right.finish();
  }
  signals.join();
}

/// Another thread acknowledges an event while the queue is destroyed, which waits for that.
void acknowledged_late() {
  Pair pair({.with_channel = true});
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(ibv_req_notify_cq(pair.right.cq, 0) == 0);
  NEED(pair.right.recv(inbox.slice(0, 64)) == 0);
  NEED(pair.left.send(memory.slice(0, 64)) == 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  NEED(ibv_get_cq_event(pair.right.channel, &cq, &context) == 0);
  pair.left.finish();
  pair.right.finish();
  NEED(ibv_destroy_qp(pair.right.qp) == 0);
  pair.right.qp = nullptr;
  std::thread other([cq] {
    for (int i = 0; i < 100'000; ++i) std::this_thread::yield();
    ibv_ack_cq_events(cq, 1);
  });
  NEED(ibv_destroy_cq(cq) == 0);
  pair.right.cq = nullptr;
  other.join();
}

/// A thread with little more stack than it must have.
void small_stack() {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  struct Arguments {
    const Pair& pair;
    const Memory& memory;
    const Memory& inbox;
  } arguments{pair, memory, inbox};
  pthread_attr_t attributes;
  pthread_t thread{};
  NEED(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 48 << 10) == 0);
  const auto run = [](void* given) -> void* {
    const auto& [device_pair, from, to] = *static_cast<Arguments*>(given);
    NEED(device_pair.right.recv(to.slice(0, 8192)) == 0);
    NEED(device_pair.left.send(from.slice(0, 8192)) == 0);
    device_pair.left.finish();
    device_pair.right.finish();
    return nullptr;
  };
  NEED(pthread_create(&thread, &attributes, run, &arguments) == 0);
  NEED(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

const std::map<std::string, void (*)()> kCases{
    {"scattered_receive", scattered_receive},
    {"refused_in_a_list", refused_in_a_list},
    {"extended_calls", extended_calls},
    {"forks", forks},
    {"thread_for_events", thread_for_events},
    {"looked_up", looked_up},
    {"own_fault_handler", own_fault_handler},
    {"shared_receives_end_last", shared_receives_end_last},
    {"child_frees", child_frees},
    {"handler_forks", handler_forks},
    {"acknowledged_late", acknowledged_late},
    {"small_stack", small_stack},
};

}  // namespace

int main(int count, char** words) {
  const auto found = count == 2 ? kCases.find(words[1]) : kCases.end();
  if (found == kCases.end()) {
    for (const auto& [name, function] : kCases) std::puts(name.c_str());
    return 2;
  }
  found->second();
  return 0;
}
