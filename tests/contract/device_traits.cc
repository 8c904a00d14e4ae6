#include "contract/device_traits.h"

#include <cstdlib>

#include "rdmacomm/result.h"
#include "rdmacomm/softdev.h"

namespace rdmacomm::contract {
namespace {

// Source: drivers/infiniband/sw/rxe/rxe.h (RXE_VENDOR_ID) of the kernel.
constexpr std::uint32_t kSoftwareVendor = 0xffffff;
constexpr std::uint32_t kRxePart = 0;
constexpr std::uint32_t kSoft0Part = 1;  // the library's own soft0 is known without it; softdev-run's is not

constexpr std::array kTraits = {
    TraitRow{
        Trait::kAcknowledges,
        "acknowledges requests",
        "If a SEND or WRITE completes with kOk, the peer's device has accepted it",
        "iWARP completes a request when TCP has accepted its bytes. If the peer refuses it later, the connection ends "
        "(RFC 5040)",
        {true, true, false, true, true}},
    TraitRow{Trait::kReceiverNotReadyWaits,
             "retries without a receive",
             "If the peer has posted no receive, a SEND is retried, at most rnr_retry times",
             "iWARP has no reply \"receiver not ready\": the connection ends (RFC 5041)",
             {true, true, false, true, true}},
    TraitRow{Trait::kPathPerQueuePair,
             "path per queue pair",
             "modify_qp connects a queue pair, and sets its path MTU, timeout and retries",
             "An iWARP queue pair uses a TCP connection, which rdma_cm sets up. TCP decides on retries and timeouts",
             {true, true, false, true, true}},
    TraitRow{
        Trait::kCarriesImmediateData,
        "carries immediate data",
        "SEND and WRITE can have 32 bits of immediate data",
        "RFC 5040 has no immediate data. RFC 7306 adds it, but siw does not implement that; libsiw refuses the request "
        "with -EINVAL",
        {true, true, false, true, true}},
    TraitRow{Trait::kTakesEmptyReceives,
             "accepts empty receives",
             "A receive may have no slices",
             "libsiw requires one to six slices (rdma-core, providers/siw/siw.c, push_recv_wqe)",
             {true, true, false, true, true}},
    TraitRow{Trait::kTakesEmptySlices,
             "accepts empty slices",
             "A slice of a request may have no bytes",
             "siw of Linux 6.1 dereferences a null pointer in this case: a kernel oops in siw_tx_hdt",
             {true, true, false, true, true}},
    TraitRow{Trait::kChecksReads,
             "checks READs",
             "A READ of memory that was not registered for remote read is refused",
             "siw of Linux 6.1 executes it: any peer that knows the key can read",
             {true, true, false, true, true}},
    TraitRow{Trait::kQueriesState,
             "reports the state",
             "query_qp returns the state of the queue pair",
             "siw_query_qp of Linux 6.1 does not set the field",
             {true, true, false, true, true}},
    TraitRow{Trait::kQueriesSrq,
             "reports shared receive queues",
             "query_srq returns the depth and the limit of a shared receive queue",
             "libsiw has no such call: EOPNOTSUPP",
             {true, true, false, true, true}},
    TraitRow{
        Trait::kMovesItselfToError,
        "moves itself to ERR",
        "If a send request fails locally, the device moves the queue pair to ERR and flushes all outstanding requests",
        "siw stops sending. The other requests wait until the connection ends or the program moves the queue pair to "
        "ERR",
        {true, true, false, true, true}},
    TraitRow{Trait::kFlushesSendsPostedInError,
             "flushes sends posted in ERR",
             "A send request that is posted to a queue pair in ERR completes as flushed",
             "siw reads requests that user space has posted only while it is connected (siw_post_send)",
             {true, true, false, true, true}},
    TraitRow{Trait::kFlushesReceivesPostedInError,
             "flushes receives posted in ERR",
             "A receive that is posted to a queue pair in ERR completes as flushed",
             "rxe of Linux 6.1 and siw keep the receive, and never complete it",
             {true, false, false, true, true}},
    TraitRow{Trait::kGivesUpAtRetryCount7,
             "gives up at retry_count 7",
             "retry_count 7 means seven retries, so the loss of a peer is noticed",
             "For rxe, 7 means retries without end, as it does in rnr_retry",
             {true, false, true, true, true}},
    TraitRow{
        Trait::kReportsToTheResponder,
        "reports errors to the responder",
        "An invalid request raises an asynchronous event at the queue pair that receives it",
        "rxe moves the queue pair to ERR without an event. With siw, rdma_cm reports that the connection has ended",
        {true, false, false, true, true}},
    TraitRow{Trait::kWakesForSolicited,
             "wakes for solicited messages",
             "A solicited message wakes a completion queue that is armed for solicited completions only",
             "siw of Linux 6.1 checks a flag of the receive, which is never set (siw_rqe_complete)",
             {true, true, false, true, true}},
    TraitRow{Trait::kKeepsTheWiderArming,
             "keeps a queue armed for all",
             "If a queue is armed for all completions, arming it for solicited ones changes nothing",
             "In siw, the later call replaces the earlier one (siw_req_notify_cq)",
             {true, true, false, true, true}},
    TraitRow{Trait::kFlushesAreSolicited,
             "flushes are solicited",
             "A flushed receive wakes a completion queue that is armed for solicited completions only",
             "The specification counts an unsuccessful completion as solicited, siw does not",
             {true, true, false, true, true}},
    TraitRow{Trait::kReportsCommEst,
             "reports COMM_EST",
             "If a message reaches a queue pair in RTR, the event COMM_EST is raised",
             "rxe does not raise it. On iWARP no queue pair is ever in RTR, and rdma_cm has a similar event",
             {true, false, false, true, true}},
    TraitRow{Trait::kReportsPortState,
             "reports the state of the port",
             "PORT_ERR and PORT_ACTIVE are raised when the network interface goes down and comes up",
             "soft0's port is up while any interface of the host is up, also the loopback interface: "
             "tests/softdev/host/port_events_test.cc",
             {false, true, true, true, false}},
    TraitRow{
        Trait::kManagedByRdmaLink,
        "managed by `rdma link`",
        "`rdma link delete` removes the device, and `rdma link add` creates it again",
        "soft0 has no kernel driver and is never removed. A card is removed when its driver is unloaded or the card is "
        "unplugged",
        {false, true, true, false, false}},
    TraitRow{Trait::kServesStoppedProcesses,
             "serves stopped processes",
             "Peers can still read and write the memory of a process that is stopped (SIGSTOP)",
             "Devices access memory without the process. Over TCP, a thread in the target process does this for soft0",
             {true, true, true, true, false}},
};

/// On iWARP a request is complete when TCP has accepted it. If the peer ends the connection before that, the request is
/// flushed. If it was sent in part, it fails together with the queue pair (siw_qp_sq_process).
constexpr Codes kEndsWithConnection(Errc::kOk, Errc::kFlushed, Errc::kLocalQueuePair);
constexpr Codes kEndsWithConnectionOrNoCompletion(Errc::kOk, Errc::kFlushed, Errc::kLocalQueuePair, kNoCompletion);

constexpr std::array kFaults = {
    FaultRow{Fault::kLocalKey,
             "wrong local key",
             "A send request with a wrong lkey, or beyond the bounds of its registration",
             "rxe reports different codes in different versions of the kernel",
             {Codes(Errc::kLocalProtection), Codes(Errc::kLocalProtection, Errc::kLocalQueuePair, Errc::kFlushed),
              Codes(Errc::kLocalProtection, Errc::kLocalQueuePair), Codes(Errc::kLocalProtection),
              Codes(Errc::kLocalProtection)}},
    FaultRow{Fault::kRemoteAccess,
             "remote access refused",
             "A request that the peer's registration does not allow",
             "On iWARP the connection ends, and a READ fails with it. A WRITE was complete before, or is interrupted",
             {Codes(Errc::kRemoteAccess), Codes(Errc::kRemoteAccess), kEndsWithConnection, Codes(Errc::kRemoteAccess),
              Codes(Errc::kRemoteAccess)}},
    FaultRow{Fault::kNoReceive,
             "no receive posted",
             "A SEND for which the peer posts no receive",
             "On iWARP the connection ends. The SEND was complete before, or is interrupted",
             {Codes(Errc::kRnrRetryExceeded), Codes(Errc::kRnrRetryExceeded), kEndsWithConnection,
              Codes(Errc::kRnrRetryExceeded), Codes(Errc::kRnrRetryExceeded)}},
    FaultRow{
        Fault::kPeerGone,
        "peer gone",
        "A request to a queue pair that no longer exists",
        "On iWARP the connection ends. A request was complete before, is flushed, is never accepted, or fails together "
        "with the queue pair if TCP refuses it (siw_qp_sq_process)",
        {Codes(Errc::kRetryExceeded), Codes(Errc::kRetryExceeded), kEndsWithConnectionOrNoCompletion,
         Codes(Errc::kRetryExceeded), Codes(Errc::kRetryExceeded)}},
    FaultRow{
        Fault::kLinkDown,
        "link down",
        "A request while the network interface under the device is down",
        "rxe notices at once that it cannot send. siw ends its connections. soft0 uses shared memory or the loopback "
        "interface",
        {Codes(), Codes(Errc::kLocalQueuePair, Errc::kRetryExceeded), Codes(Errc::kFlushed, kNoCompletion),
         Codes(Errc::kRetryExceeded, Errc::kFlushed), Codes()}},
    FaultRow{Fault::kSentTooMuch,
             "message too long, sender",
             "A SEND is longer than the peer's receive: the status at the sender",
             "rxe replies with another syndrome (NAK remote operational error). On iWARP the SEND was complete before, "
             "or is "
             "interrupted",
             {Codes(Errc::kRemoteInvalidRequest), Codes(Errc::kRemoteOperation), kEndsWithConnection,
              Codes(Errc::kRemoteInvalidRequest), Codes(Errc::kRemoteInvalidRequest)}},
    FaultRow{Fault::kReceivedTooMuch,
             "message too long, receiver",
             "The same: the status at the receiver",
             "rxe completes the receive as a queue pair operation error",
             {Codes(Errc::kLocalLength), Codes(Errc::kLocalQueuePair), Codes(Errc::kLocalLength, Errc::kFlushed),
              Codes(Errc::kLocalLength), Codes(Errc::kLocalLength)}},
    FaultRow{Fault::kSentToLostMemory,
             "receive without memory, sender",
             "A SEND arrives in a receive whose memory was deregistered: the status at the sender",
             "On iWARP the SEND was complete before, or is interrupted",
             {Codes(Errc::kRemoteOperation), Codes(Errc::kRemoteOperation), kEndsWithConnection,
              Codes(Errc::kRemoteOperation), Codes(Errc::kRemoteOperation)}},
    FaultRow{Fault::kReceivedIntoLostMemory,
             "receive without memory, receiver",
             "The same: the status at the receiver",
             "",
             {Codes(Errc::kLocalProtection), Codes(Errc::kLocalProtection, Errc::kLocalQueuePair),
              Codes(Errc::kCompletionFailed, Errc::kLocalProtection, Errc::kFlushed), Codes(Errc::kLocalProtection),
              Codes(Errc::kLocalProtection)}},
};

constexpr Codes kRetries(Errc::kRetryExceeded);
constexpr Codes kInvalid(Errc::kRemoteInvalidRequest);
constexpr Codes kDone(Errc::kOk);
constexpr Codes kNever;  // iWARP: TCP connects the queue pairs, so both ends always agree

constexpr std::array kMisconnections = {
    MisconnectionRow{Misconnection::kPsnAhead,
                     "PSN ahead",
                     "The first PSN of the sender (sq_psn) is greater than rq_psn of the peer",
                     "",
                     {kRetries, kRetries, kNever, kRetries, kRetries}},
    MisconnectionRow{Misconnection::kPsnBehind,
                     "PSN behind",
                     "It is less",
                     "A card may take the packets for old ones, acknowledge them and drop the message: it is lost",
                     {kRetries, kRetries, kNever, Codes(Errc::kOk, Errc::kRetryExceeded), kRetries}},
    MisconnectionRow{Misconnection::kOtherAddresses,
                     "other addresses",
                     "The peer is connected by other GIDs of the same two ports",
                     "",
                     {kRetries, kRetries, kNever, kRetries, kRetries}},
    MisconnectionRow{Misconnection::kOtherGidType,
                     "RoCE v1 and v2",
                     "The ends use GIDs of different types",
                     "rxe has RoCE v2 only",
                     {kRetries, kNever, kNever, kRetries, kRetries}},
    MisconnectionRow{Misconnection::kOtherQueuePair,
                     "another queue pair",
                     "The peer is connected to another queue pair",
                     "Packets do not name their sender. So other devices deliver the message, and only the "
                     "acknowledgement goes astray",
                     {kRetries, kRetries, kNever, kRetries, kRetries}},
    MisconnectionRow{Misconnection::kTargetInInit,
                     "peer in INIT",
                     "The peer is not in RTR yet",
                     "",
                     {kRetries, kRetries, kNever, kRetries, kRetries}},
    MisconnectionRow{Misconnection::kResetAtOneEnd,
                     "RESET at one end",
                     "After some traffic, the peer goes through RESET and is connected again with its first PSN",
                     "Over TCP, soft0 does not count packets. Timing decides if the connection is made again in time",
                     {kRetries, kRetries, kNever, kRetries, Codes(Errc::kOk, Errc::kRetryExceeded)}},
    MisconnectionRow{Misconnection::kNoWriteAccess,
                     "no access at the queue pair",
                     "A WRITE to memory that permits it, over a queue pair that does not",
                     "",
                     {kInvalid, kInvalid, kNever, kInvalid, kInvalid}},
    MisconnectionRow{Misconnection::kNoReads,
                     "no READs",
                     "A READ, and max_dest_rd_atomic of the peer is 0",
                     "",
                     {kInvalid, kInvalid, kNever, kInvalid, kInvalid}},
    MisconnectionRow{Misconnection::kTooManyReads,
                     "too many READs",
                     "8 READs at a time, and max_dest_rd_atomic of the peer is 1",
                     "rxe executes them, one after the other",
                     {kInvalid, kDone, kNever, kInvalid, kInvalid}},
    MisconnectionRow{Misconnection::kLongerPackets,
                     "path MTU",
                     "A WRITE of more than one packet, and the path MTU of the sender is greater than that of the peer",
                     "",
                     {kInvalid, kInvalid, kNever, kInvalid, kInvalid}},
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
static_assert(in_order(kTraits) && in_order(kFaults) && in_order(kMisconnections));

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
    case kNoCompletion: return "no completion";
    default: return "no completion code";
  }
}

}  // namespace

std::string_view to_text(DeviceKind kind) {
  constexpr std::array<std::string_view, kDeviceKinds> kNames = {"soft0", "rxe", "iWARP (siw)", "hardware",
                                                                 "soft0 over TCP"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view rdma_link_type(DeviceKind kind) {
  return kind == DeviceKind::kRxe ? "rxe" : kind == DeviceKind::kIwarp ? "siw" : "";
}

DeviceKind kind_of(bool is_soft0, ibv_transport_type transport, const ibv_device_attr& attributes) {
  const bool is_software = attributes.vendor_id == kSoftwareVendor;
  if (is_soft0 || (is_software && attributes.vendor_part_id == kSoft0Part)) {
    const char* const wire = std::getenv(softdev::kTcpVariable);
    return wire != nullptr && std::string_view(wire) == "tcp" ? DeviceKind::kSoft0Tcp : DeviceKind::kSoft0;
  }
  if (transport == IBV_TRANSPORT_IWARP) return DeviceKind::kIwarp;
  return is_software && attributes.vendor_part_id == kRxePart ? DeviceKind::kRxe : DeviceKind::kHardware;
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

std::span<const MisconnectionRow> misconnection_rows() {
  return kMisconnections;
}

bool has(DeviceKind kind, Trait trait) {
  return row_of(kTraits, trait).values[static_cast<std::size_t>(kind)];
}
Codes codes_of(DeviceKind kind, Fault fault) {
  return row_of(kFaults, fault).values[static_cast<std::size_t>(kind)];
}

Codes codes_of(DeviceKind kind, Misconnection what) {
  return row_of(kMisconnections, what).values[static_cast<std::size_t>(kind)];
}

}  // namespace rdmacomm::contract
