// Cancels threads in verbs, as a program in C does, and prints the names of the verbs. If a thread does not end, or ends
// in another way, this program ends with an exit status other than 0.
//
// A thread that waits for an event ends while it waits. A thread in another verb finishes the verb first. So its objects
// are complete, and it leaves no lock locked.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace {

void check(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::exit(1);
}

/// A queue pair that is connected to itself, and what it needs.
struct Scene {
  ibv_context* context;
  ibv_pd* domain;
  ibv_comp_channel* channel;
  ibv_cq* queue;
  ibv_qp* pair;
  ibv_mr* region;
  rdma_event_channel* connections;
  std::array<char, 4096> memory{};

  Scene() {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    check(count > 0, "ibv_get_device_list");
    context = ibv_open_device(devices[0]);
    check(context != nullptr, "ibv_open_device");
    ibv_free_device_list(devices);
    domain = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    queue = ibv_create_cq(context, 64, nullptr, channel, 0);
    region = ibv_reg_mr(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    pair = create_pair();
    check(pair != nullptr && region != nullptr, "ibv_create_qp");
    connections = rdma_create_event_channel();
    check(connections != nullptr, "rdma_create_event_channel");
    connect();
  }
  [[nodiscard]] ibv_qp* create_pair() const {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue;
    attributes.cap = {.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attributes.qp_type = IBV_QPT_RC;
    return ibv_create_qp(domain, &attributes);
  }
  void connect() const {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    check(ibv_modify_qp(pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = pair->qp_num;
    to.ah_attr.is_global = 1;
    to.ah_attr.port_num = 1;
    check(ibv_query_gid(context, 1, 0, &to.ah_attr.grh.dgid) == 0, "ibv_query_gid");
    check(ibv_modify_qp(pair, &to,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "RTR");
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = 7;
    check(ibv_modify_qp(pair, &to,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "RTS");
  }
  void transfer() {
    const auto address = reinterpret_cast<std::uint64_t>(memory.data());
    ibv_sge part{address, 8, region->lkey};
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {address + 64, region->rkey};
    ibv_send_wr* bad = nullptr;
    check(ibv_req_notify_cq(queue, 0) == 0 && ibv_post_send(pair, &request, &bad) == 0, "ibv_post_send");
    ibv_wc completion{};
    int got = 0;
    while (got == 0) got = ibv_poll_cq(queue, 1, &completion);
    check(got == 1 && completion.status == IBV_WC_SUCCESS, "ibv_poll_cq");
  }
};

/// Runs `work` in a thread, and cancels the thread once it has begun.
void cancel_in(const std::string& name, const std::function<void()>& work, bool again_and_again) {
  struct Run {
    const std::function<void()>& work;
    bool again_and_again;
    std::atomic<int> begun{0};
  } run{work, again_and_again};
  pthread_t thread{};
  const auto body = [](void* argument) -> void* {
    auto& of = *static_cast<Run*>(argument);
    do {
      ++of.begun;
      of.work();
      pthread_testcancel();
    } while (of.again_and_again);
    return nullptr;
  };
  check(pthread_create(&thread, nullptr, body, &run) == 0, "pthread_create");
  while (run.begun < (again_and_again ? 3 : 1)) sched_yield();
  void* result = nullptr;
  check(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0, "pthread_join");
  if (result != PTHREAD_CANCELED) {
    std::printf("%s: the thread was not cancelled\n", name.c_str());
    std::exit(1);
  }
}

}  // namespace

int main() {
  Scene scene;
  struct Kind {
    std::string name;
    std::function<void()> work;
    bool waits = false;
  };
  const Kind kinds[] = {
      {"ibv_get_cq_event",
       [&] {
         ibv_cq* queue = nullptr;
         void* of = nullptr;
         (void)ibv_get_cq_event(scene.channel, &queue, &of);
       },
       true},
      {"ibv_get_async_event",
       [&] {
         ibv_async_event event{};
         (void)ibv_get_async_event(scene.context, &event);
       },
       true},
      {"rdma_get_cm_event",
       [&] {
         rdma_cm_event* event = nullptr;
         (void)rdma_get_cm_event(scene.connections, &event);
       },
       true},
      {"ibv_post_send", [&] { scene.transfer(); }},
      {"ibv_reg_mr",
       [&] {
         ibv_mr* const region = ibv_reg_mr(scene.domain, scene.memory.data(), 64, 0);
         check(region != nullptr && ibv_dereg_mr(region) == 0, "ibv_reg_mr");
       }},
      {"ibv_create_qp",
       [&] {
         ibv_qp* const pair = scene.create_pair();
         check(pair != nullptr && ibv_destroy_qp(pair) == 0, "ibv_create_qp");
       }},
      {"ibv_create_cq",
       [&] {
         ibv_comp_channel* const channel = ibv_create_comp_channel(scene.context);
         ibv_cq* const queue = ibv_create_cq(scene.context, 8, nullptr, channel, 0);
         check(queue != nullptr && ibv_destroy_cq(queue) == 0 && ibv_destroy_comp_channel(channel) == 0,
               "ibv_create_cq");
       }},
      {"ibv_open_device",
       [&] {
         ibv_context* const again = ibv_open_device(scene.context->device);
         check(again != nullptr && ibv_close_device(again) == 0, "ibv_open_device");
       }},
      {"rdma_create_id",
       [&] {
         rdma_cm_id* id = nullptr;
         check(rdma_create_id(scene.connections, &id, nullptr, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0,
               "rdma_create_id");
       }},
      {"malloc", [] { std::free(std::malloc(std::size_t{3} << 20)); }},
  };
  for (const Kind& kind : kinds) {
    for (int i = 0; i < 20; ++i) cancel_in(kind.name, kind.work, !kind.waits);
    std::printf("%s\n", kind.name.c_str());
  }
  scene.transfer();
  return 0;
}
