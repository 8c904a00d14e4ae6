#include "contract/device_traits.h"

#include <cstdlib>

#include "rdmacomm/result.h"
#include "rdmacomm/softdev.h"

namespace rdmacomm::contract {
namespace {

// Source: drivers/infiniband/sw/rxe/rxe.h (RXE_VENDOR_ID) of the kernel.
constexpr std::uint32_t kRxeVendor = 0xffffff;

constexpr std::array kTraits = {
    TraitRow{Trait::kAcknowledges,
             "acknowledges",
             "A SEND or WRITE that completes with kOk has been taken by the peer's device",
             "iWARP completes it once the bytes are with TCP; what the peer refuses ends the connection (RFC 5040)",
             {true, true, false, true, true}},
    TraitRow{Trait::kReceiverNotReadyWaits,
             "receiver not ready waits",
             "A SEND that finds no posted receive is tried again, rnr_retry times",
             "iWARP has no such answer: the connection ends (RFC 5041)",
             {true, true, false, true, true}},
    TraitRow{Trait::kPathPerQueuePair,
             "path per queue pair",
             "Connects by modify_qp; path MTU, timeout and retries belong to the queue pair",
             "An iWARP queue pair lives on a TCP connection, which rdma_cm makes and TCP's timers guard",
             {true, true, false, true, true}},
    TraitRow{Trait::kCarriesImmediateData,
             "carries immediate data",
             "SEND and WRITE with 32 bits of immediate data",
             "RFC 5040 has none (RFC 7306 adds it, siw does not); libsiw refuses the request with -EINVAL",
             {true, true, false, true, true}},
    TraitRow{Trait::kTakesEmptyReceives,
             "takes empty receives",
             "A receive may have no slice at all",
             "libsiw (rdma-core, providers/siw/siw.c, push_recv_wqe) wants one to six",
             {true, true, false, true, true}},
    TraitRow{Trait::kTakesEmptySlices,
             "takes empty slices",
             "A slice of no bytes may be among the slices of a request",
             "siw of Linux 6.1 follows a null pointer there: a kernel oops in siw_tx_hdt",
             {true, true, false, true, true}},
    TraitRow{Trait::kChecksReads,
             "checks READs",
             "A READ of memory that was not registered for remote read is refused",
             "siw of Linux 6.1 answers it: whoever knows the key reads",
             {true, true, false, true, true}},
    TraitRow{Trait::kQueriesState,
             "queries state",
             "query_qp says which state the queue pair is in",
             "siw_query_qp of Linux 6.1 leaves the field out",
             {true, true, false, true, true}},
    TraitRow{Trait::kQueriesSrq,
             "queries shared receive queues",
             "query_srq says how deep a shared receive queue is, and its limit",
             "libsiw has no such call: EOPNOTSUPP",
             {true, true, false, true, true}},
    TraitRow{Trait::kFailsByItself,
             "fails by itself",
             "A send request that fails here moves the queue pair to ERR, and all that is outstanding is flushed",
             "siw stops sending; the rest waits until the connection ends or the program moves the queue pair",
             {true, true, false, true, true}},
    TraitRow{Trait::kFlushesSendsPostedInError,
             "flushes sends posted in ERR",
             "A send request that is posted to a queue pair in ERR completes as flushed",
             "siw looks at what user space posted only while it is connected (siw_post_send)",
             {true, true, false, true, true}},
    TraitRow{Trait::kFlushesReceivesPostedInError,
             "flushes receives posted in ERR",
             "A receive that is posted to a queue pair in ERR completes as flushed",
             "rxe of Linux 6.1 and siw keep it without a word",
             {true, false, false, true, true}},
    TraitRow{Trait::kGivesUpAtRetryCount7,
             "gives up at retry_count 7",
             "retry_count 7 means seven repeats; a peer that is gone is noticed",
             "rxe takes 7 for ever, as rnr_retry does",
             {true, false, true, true, true}},
    TraitRow{Trait::kTellsTheResponder,
             "tells the responder",
             "A peer that breaks a rule raises an asynchronous event at the queue pair that it addressed",
             "rxe moves the queue pair to ERR and raises none; with siw, rdma_cm says that the connection has ended",
             {true, false, false, true, true}},
    TraitRow{Trait::kWakesForSolicited,
             "wakes for solicited",
             "A solicited message wakes a completion queue that is armed for solicited completions only",
             "siw of Linux 6.1 compares with a flag of the receive, which nobody sets (siw_rqe_complete)",
             {true, true, false, true, true}},
    TraitRow{Trait::kKeepsTheWiderArming,
             "keeps the wider arming",
             "Arming for solicited completions leaves a queue that is armed for all of them as it is",
             "siw takes the later arming for the valid one (siw_req_notify_cq)",
             {true, true, false, true, true}},
    TraitRow{Trait::kFlushesAreSolicited,
             "flushes are solicited",
             "A flushed receive wakes a completion queue that is armed for solicited completions only",
             "An unsuccessful completion is a solicited event; not so with siw",
             {true, true, false, true, true}},
    TraitRow{Trait::kTellsOfCommunication,
             "tells of communication",
             "A message that reaches a queue pair in RTR raises the event COMM_EST",
             "rxe raises none, neither does soft0; on iWARP rdma_cm has such an event, and nobody is ever in RTR",
             {false, false, false, true, false}},
    TraitRow{Trait::kTellsOfPortState,
             "tells of the port's state",
             "The events PORT_ERR and PORT_ACTIVE when the network interface goes down and comes up",
             "soft0's port is up while any interface of the host is, the loopback one too: "
             "tests/softdev/host/port_events_test.cc",
             {false, true, true, true, false}},
    TraitRow{Trait::kGoesByRdmaLink,
             "goes by `rdma link`",
             "`rdma link delete` takes the device away, and `rdma link add` brings it back",
             "soft0 has no driver in the kernel: it is never removed; a card goes with its driver or its slot",
             {false, true, true, false, false}},
    TraitRow{Trait::kServesForTheStopped,
             "serves for the stopped",
             "The memory of a process that is stopped (SIGSTOP) is still written to and read from",
             "Devices do that without the process; by TCP, soft0 does it in a thread of the target's process",
             {true, true, true, true, false}},
};

/// On iWARP a request is complete when TCP has accepted it. If the peer ends the connection before that, the request is
/// flushed. If it was sent in part, it fails together with the queue pair (siw_qp_sq_process).
constexpr Codes kEndsWithConnection(Errc::kOk, Errc::kFlushed, Errc::kLocalQueuePair);
constexpr Codes kEndsWithConnectionOrNever(Errc::kOk, Errc::kFlushed, Errc::kLocalQueuePair, kNeverTold);

constexpr std::array kFaults = {
    FaultRow{Fault::kLocalKey,
             "wrong local key",
             "A send request with an lkey that is wrong, or out of bounds",
             "rxe says it in different words in different versions of the kernel",
             {Codes(Errc::kLocalProtection), Codes(Errc::kLocalProtection, Errc::kLocalQueuePair, Errc::kFlushed),
              Codes(Errc::kLocalProtection, Errc::kLocalQueuePair), Codes(Errc::kLocalProtection),
              Codes(Errc::kLocalProtection)}},
    FaultRow{Fault::kRemoteAccess,
             "remote access refused",
             "A request that the peer's registration or queue pair does not allow",
             "On iWARP the connection ends: a READ with it, and a WRITE was complete before, or is cut off",
             {Codes(Errc::kRemoteAccess), Codes(Errc::kRemoteAccess), kEndsWithConnection, Codes(Errc::kRemoteAccess),
              Codes(Errc::kRemoteAccess)}},
    FaultRow{Fault::kNoReceive,
             "no receive posted",
             "A SEND, when the peer posts no receive for it",
             "On iWARP the connection ends; the SEND was complete before, or is cut off",
             {Codes(Errc::kRnrRetryExceeded), Codes(Errc::kRnrRetryExceeded), kEndsWithConnection,
              Codes(Errc::kRnrRetryExceeded), Codes(Errc::kRnrRetryExceeded)}},
    FaultRow{Fault::kPeerGone,
             "peer gone",
             "A request to a queue pair that is not there any more",
             "On iWARP the connection ends: a request was complete before, is flushed with it, is never taken, or "
             "fails with the queue pair where TCP refuses it (siw_qp_sq_process)",
             {Codes(Errc::kRetryExceeded), Codes(Errc::kRetryExceeded), kEndsWithConnectionOrNever,
              Codes(Errc::kRetryExceeded), Codes(Errc::kRetryExceeded)}},
    FaultRow{Fault::kLinkDown,
             "link down",
             "A request while the network interface under the device is down",
             "rxe finds at once that it cannot send; siw ends its connections; soft0 goes by memory, or by the "
             "loopback interface",
             {Codes(), Codes(Errc::kLocalQueuePair, Errc::kRetryExceeded), Codes(Errc::kFlushed, kNeverTold),
              Codes(Errc::kRetryExceeded, Errc::kFlushed), Codes()}},
    FaultRow{Fault::kSentTooMuch,
             "sent too much",
             "A SEND that is longer than the peer's receive: at the sender",
             "rxe answers with another syndrome (NAK remote operational error); on iWARP the SEND was complete "
             "before, or is cut off",
             {Codes(Errc::kRemoteInvalidRequest), Codes(Errc::kRemoteOperation), kEndsWithConnection,
              Codes(Errc::kRemoteInvalidRequest), Codes(Errc::kRemoteInvalidRequest)}},
    FaultRow{Fault::kReceivedTooMuch,
             "received too much",
             "The same at the receiver",
             "rxe completes it as a queue pair operation error",
             {Codes(Errc::kLocalLength), Codes(Errc::kLocalQueuePair), Codes(Errc::kLocalLength, Errc::kFlushed),
              Codes(Errc::kLocalLength), Codes(Errc::kLocalLength)}},
    FaultRow{Fault::kSentToLostMemory,
             "sent to lost memory",
             "A SEND into a receive whose memory was given up: at the sender",
             "On iWARP it was complete before, or is cut off",
             {Codes(Errc::kRemoteOperation), Codes(Errc::kRemoteOperation), kEndsWithConnection,
              Codes(Errc::kRemoteOperation), Codes(Errc::kRemoteOperation)}},
    FaultRow{Fault::kReceivedIntoLostMemory,
             "received into lost memory",
             "The same at the receiver",
             "",
             {Codes(Errc::kLocalProtection), Codes(Errc::kLocalProtection, Errc::kLocalQueuePair),
              Codes(Errc::kCompletionFailed, Errc::kLocalProtection, Errc::kFlushed), Codes(Errc::kLocalProtection),
              Codes(Errc::kLocalProtection)}},
};

template <typename Rows, typename Id>
constexpr const auto& row_of(const Rows& rows, Id id) {
  return rows[static_cast<std::size_t>(id)];
}

template <typename Rows>
constexpr bool in_order(const Rows& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::size_t>(rows[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order(kTraits) && in_order(kFaults));

std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::kOk: return "kOk";
    case Errc::kLocalLength: return "kLocalLength";
    case Errc::kLocalProtection: return "kLocalProtection";
    case Errc::kLocalQueuePair: return "kLocalQueuePair";
    case Errc::kRemoteAccess: return "kRemoteAccess";
    case Errc::kRemoteInvalidRequest: return "kRemoteInvalidRequest";
    case Errc::kRemoteOperation: return "kRemoteOperation";
    case Errc::kRnrRetryExceeded: return "kRnrRetryExceeded";
    case Errc::kRetryExceeded: return "kRetryExceeded";
    case Errc::kFlushed: return "kFlushed";
    case Errc::kCompletionFailed: return "kCompletionFailed";
    case kNeverTold: return "no completion";
    default: return "no completion code";
  }
}

}  // namespace

std::string_view to_text(DeviceKind kind) {
  constexpr std::array<std::string_view, kDeviceKinds> kNames = {"soft0", "rxe", "iWARP (siw)", "hardware",
                                                                 "soft0 by TCP"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view rdma_link_type(DeviceKind kind) {
  return kind == DeviceKind::kRxe ? "rxe" : kind == DeviceKind::kIwarp ? "siw" : "";
}

DeviceKind kind_of(bool is_soft0, ibv_transport_type transport, const ibv_device_attr& attributes) {
  if (is_soft0) {
    const char* const wire = std::getenv(softdev::kTcpVariable);
    return wire != nullptr && std::string_view(wire) == "tcp" ? DeviceKind::kSoft0Tcp : DeviceKind::kSoft0;
  }
  if (transport == IBV_TRANSPORT_IWARP) return DeviceKind::kIwarp;
  return attributes.vendor_id == kRxeVendor ? DeviceKind::kRxe : DeviceKind::kHardware;
}

std::string Codes::to_text() const {
  std::string text;
  for (int code = 0; code < 64; ++code) {
    if (!contains(static_cast<Errc>(code))) continue;
    text += (text.empty() ? "" : " or ") + std::string(name_of(static_cast<Errc>(code)));
  }
  return text.empty() ? "does not happen" : text;
}

std::span<const TraitRow> trait_rows() {
  return kTraits;
}
std::span<const FaultRow> fault_rows() {
  return kFaults;
}

bool has(DeviceKind kind, Trait trait) {
  return row_of(kTraits, trait).values[static_cast<std::size_t>(kind)];
}
Codes codes_of(DeviceKind kind, Fault fault) {
  return row_of(kFaults, fault).values[static_cast<std::size_t>(kind)];
}

}  // namespace rdmacomm::contract
