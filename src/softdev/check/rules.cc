#include "softdev/check/rules.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace rdmacomm::softdev::check {
namespace {

constexpr std::size_t kRules = static_cast<std::size_t>(Rule::kContextLeak) + 1;

/// In the order of Rule. Sections are those of the InfiniBand Architecture Specification, volume 1.
constexpr std::array<RuleText, kRules> kTexts{{
    {"send-buffer-changed",
     "ibv_post_send(3): the buffers of a request may be used again only after its completion was polled. Requests "
     "without IBV_SEND_INLINE read them at any time before."},
    {"receive-buffer-changed",
     "ibv_post_recv(3): the buffers of a receive may be used again only after its completion was polled."},
    {"buffer-touched",
     "ibv_post_send(3), ibv_post_recv(3): a buffer belongs to the device from the post to the poll that returns the "
     "completion."},
    {"overlap",
     "ibv_post_send(3), ibv_post_recv(3): a buffer may be used again only after its request was completed. Two "
     "requests in flight may share bytes only if both read them."},
    {"receive-posted-twice",
     "ibv_post_recv(3): a buffer may be used again only after its receive was completed. The next message would "
     "overwrite this one."},
    {"slice-deregistered",
     "ibv_dereg_mr(3): a key must not be used after it. The request completes with IBV_WC_LOC_PROT_ERR, or uses other "
     "memory if the key was given out again."},
    {"slice-outside",
     "ibv_reg_mr(3): a slice must lie inside the registration of its lkey. Receives, READs and atomics need "
     "IBV_ACCESS_LOCAL_WRITE. The request completes with IBV_WC_LOC_PROT_ERR."},
    {"rkey-deregistered",
     "ibv_dereg_mr(3): a key must not be used after it. The request completes with IBV_WC_REM_ACCESS_ERR, or reaches "
     "other memory if the key was given out again."},
    {"remote-access-refused",
     "ibv_reg_mr(3), ibv_modify_qp(3): remote access must lie inside a registration or window whose access flags, and "
     "those of the queue pair, allow it. The peer must not have deregistered it."},
    {"deregistered-in-flight",
     "ibv_dereg_mr(3): no request in flight may use the registration. Such requests fail, and a peer may still write "
     "to the memory."},
    {"registered-memory-freed",
     "ibv_reg_mr(3): memory must stay allocated until ibv_dereg_mr. Peers with the rkey still reach it, whatever lies "
     "there then."},
    {"memory-freed-in-flight",
     "ibv_post_send(3), ibv_post_recv(3): the buffers of a request must exist until its completion was polled."},
    {"stack-memory",
     "ibv_post_send(3): the buffers of a request must exist until its completion was polled. Without IBV_SEND_INLINE, "
     "the data is not copied by the post."},
    {"sleep-unarmed",
     "ibv_req_notify_cq(3): each call requests one event. ibv_get_cq_event(3) returns only events that were "
     "requested."},
    {"sleep-without-poll",
     "ibv_req_notify_cq(3): completions that arrived before the call raise no event. Arm, then poll until the queue is "
     "empty, then sleep."},
    {"events-unacknowledged",
     "ibv_get_cq_event(3), ibv_get_async_event(3): each event must be acknowledged. Destroying its object waits for "
     "that."},
    {"completion-queue-too-small",
     "ibv_create_cq(3): the queue must have room for all completions that can wait in it, or it overruns and its queue "
     "pairs fail (IBA 11.6.3.1, affiliated error)."},
    {"inline",
     "ibv_post_send(3): IBV_SEND_INLINE is for SEND and WRITE, with at most the max_inline_data that ibv_create_qp has "
     "returned. The post fails."},
    {"request-memory",
     "ibv_post_send(3), ibv_post_recv(3): a request has at most the max_send_sge or max_recv_sge slices that "
     "ibv_create_qp has returned. The post fails, and bad_wr tells from which request on."},
    {"wr-id-reused",
     "ibv_poll_cq(3): a completion names its request by wr_id only. Equal numbers cannot be told apart."},
    {"wr-id-freed",
     "ibv_poll_cq(3): the completion returns wr_id. This one is the address of memory that was freed since the post."},
    {"wrong-state",
     "ibv_modify_qp(3), IBA 10.3.1: sends need state RTS (or SQD), receives at least INIT. The request is not posted: "
     "the call fails, and no completion comes."},
    {"destroyed-in-use",
     "ibv_destroy_qp(3): requests in flight are dropped without a completion, and may never have reached the peer. "
     "Poll their completions first."},
    {"destroy-refused",
     "ibv_destroy_cq(3), ibv_dealloc_pd(3), ...: an object that others use is not destroyed (EBUSY)."},
    {"leak", "ibv_create_qp(3), ibv_reg_mr(3), ...: each object needs the call that ends it."},
    {"context-leak", "ibv_open_device(3): each context needs ibv_close_device."},
}};

}  // namespace

const RuleText& text_of(Rule rule) noexcept {
  return kTexts[static_cast<std::size_t>(rule)];
}

bool is_rule(std::string_view name) noexcept {
  return std::any_of(kTexts.begin(), kTexts.end(), [&](const RuleText& each) { return each.name == name; });
}

}  // namespace rdmacomm::softdev::check
