// device_traits.h - the differences between RDMA devices: named properties, with one column for each kind of device.
// The contract tests query properties, never a device's name. docs/conformance.md is generated from these tables.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rdmacomm/errc.h"

namespace rdmacomm::contract {

/// Kinds of devices: the columns of the tables. All iWARP devices share one column, which follows the RFCs and siw, on
/// which it was tested.
enum class DeviceKind : std::uint8_t { kSoft0, kRxe, kIwarp, kHardware, kSoft0Tcp };
inline constexpr std::size_t kDeviceKinds = 5;
[[nodiscard]] std::string_view to_text(DeviceKind kind);
/// The type of such devices for `rdma link add`; empty if that command cannot create them.
[[nodiscard]] std::string_view rdma_link_type(DeviceKind kind);
/// The kind of an opened device, from its transport and its vendor. Unknown devices count as hardware.
[[nodiscard]] DeviceKind kind_of(bool is_soft0, ibv_transport_type transport, const ibv_device_attr& attributes);

/// Yes-or-no properties. `yes` is the behaviour of the InfiniBand specification.
enum class Trait : std::uint8_t {
  kAcknowledges,
  kReceiverNotReadyWaits,
  kPathPerQueuePair,
  kCarriesImmediateData,
  kTakesEmptyReceives,
  kTakesEmptySlices,
  kChecksReads,
  kQueriesState,
  kQueriesSrq,
  kMovesItselfToError,
  kFlushesSendsPostedInError,
  kFlushesReceivesPostedInError,
  kGivesUpAtRetryCount7,
  kReportsToTheResponder,
  kWakesForSolicited,
  kKeepsTheWiderArming,
  kFlushesAreSolicited,
  kReportsCommEst,
  kReportsPortState,
  kManagedByRdmaLink,
  kServesStoppedProcesses,
};

/// The completion status of a failing request.
enum class Fault : std::uint8_t {
  kLocalKey,
  kRemoteAccess,
  kNoReceive,
  kPeerGone,
  kLinkDown,
  kSentTooMuch,
  kReceivedTooMuch,
  kSentToLostMemory,
  kReceivedIntoLostMemory,
};

/// The mistake in a pair of queue pairs that does not work.
enum class Misconnection : std::uint8_t {
  kPsnAhead,
  kPsnBehind,
  kOtherAddresses,
  kOtherGidType,
  kOtherQueuePair,
  kTargetInInit,
  kResetAtOneEnd,
  kNoWriteAccess,
  kNoReads,
  kTooManyReads,
  kLongerPackets,
};

/// In a set of Codes: no completion at all, because a connection that has ended does not accept requests.
inline constexpr Errc kNoCompletion = Errc::kTimeout;

/// A set of Errc; empty if the fault cannot happen on a device. A value.
class Codes {
 public:
  template <typename... Errcs>
  constexpr explicit Codes(Errcs... codes) : bits_((bit(codes) | ... | 0)) {}
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr bool contains(Errc code) const { return (bits_ & bit(code)) != 0; }
  [[nodiscard]] std::string to_text() const;  ///< "kLocalProtection or kFlushed"

 private:
  static constexpr std::uint64_t bit(Errc code) { return std::uint64_t{1} << static_cast<int>(code); }
  std::uint64_t bits_;
};

/// One row of a table. `why` gives the reason, with its source.
template <typename Name, typename Value>
struct Row {
  Name id;
  std::string_view name;
  std::string_view meaning;
  std::string_view why;
  std::array<Value, kDeviceKinds> values;  ///< by DeviceKind
};
using TraitRow = Row<Trait, bool>;
using FaultRow = Row<Fault, Codes>;
using MisconnectionRow = Row<Misconnection, Codes>;

/// All rows, in the order of the enumerators.
[[nodiscard]] std::span<const TraitRow> trait_rows();
[[nodiscard]] std::span<const FaultRow> fault_rows();
[[nodiscard]] std::span<const MisconnectionRow> misconnection_rows();

[[nodiscard]] bool has(DeviceKind kind, Trait trait);
[[nodiscard]] Codes codes_of(DeviceKind kind, Fault fault);
/// The completion of the first request over such a connection.
[[nodiscard]] Codes codes_of(DeviceKind kind, Misconnection what);

}  // namespace rdmacomm::contract
