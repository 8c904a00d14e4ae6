// cm_id.h - an identifier of rdma_cm (struct rdma_cm_id), with its states.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "softdev/cm/cm_address.h"
#include "softdev/cm/cm_device.h"
#include "softdev/cm/cm_file.h"
#include "softdev/cm/cm_link.h"
#include "softdev/cm/cm_message.h"
#include "softdev/cm/port_claim.h"

namespace rdmacomm::softdev {

class CmService;

enum class CmState : std::uint8_t {
  kIdle,
  kBound,            ///< has a port
  kAddressResolved,  ///< has a target
  kRouteResolved,
  kListening,
  kConnecting,     ///< initiator: has sent kConnect, or kLookUp
  kAnswered,       ///< initiator: has received kAccept
  kRequested,      ///< listener's new identifier: has received kConnect, or kLookUp
  kAccepted,       ///< the same: has sent kAccept
  kEstablished,    ///< for datagrams: the peer is known
  kDisconnecting,  ///< has sent kDisconnect
  kDisconnected,
  kFailed,  ///< rejected, unreachable, or its peer is gone
};

/// An identifier. Its functions are the commands of rdma_cm, and return 0, or an errno value. EINVAL: not in this state.
/// Events report everything that happens later.
/// Threads: one at a time, the holder of CmService's lock.
class CmId : public std::enable_shared_from_this<CmId> {
 public:
  using Clock = std::chrono::steady_clock;

  CmId(CmService& service, std::shared_ptr<CmFile> file, std::uint32_t number, std::uint64_t uid,
       std::uint16_t port_space, std::uint8_t qp_type);

  // Commands
  [[nodiscard]] int bind(CmAddress address);
  /// source  of family AF_UNSPEC: the kernel's routes decide
  [[nodiscard]] int resolve_address(const CmAddress& source, CmAddress target);
  [[nodiscard]] int resolve_route();
  [[nodiscard]] int listen(std::uint32_t backlog);
  [[nodiscard]] int connect(const rdma_ucm_conn_param& parameters, const rdma_ucm_ece& ece);
  /// On the listener's side. `uid` names the identifier in events from now on.
  [[nodiscard]] int accept(std::uint64_t uid, const rdma_ucm_conn_param& parameters, const rdma_ucm_ece& ece);
  /// On the initiator's side, after kAnswered.
  [[nodiscard]] int confirm();
  [[nodiscard]] int reject(CmReason reason, const std::uint8_t* private_data, std::uint8_t length);
  [[nodiscard]] int disconnect();
  /// The queue pair has received a message before the event that says that it is connected.
  [[nodiscard]] int note_established();
  [[nodiscard]] int join(std::uint32_t membership, std::uint64_t uid, const CmAddress& group);
  /// An event that the program has written. `argument` is for the program.
  void post_written(CmEventType type, std::uint32_t status, std::uint64_t argument);
  [[nodiscard]] int set_option(std::uint32_t level, std::uint32_t name, const void* value, std::uint32_t length);
  /// Tells the peer that the identifier is gone.
  void destroy();
  /// In a child made by fork(): closes what belongs to the parent, which the peer does not notice.
  void abandon() noexcept;

  // Called by the service, for messages of the peer and for timers
  void handle_link();
  void handle_deadline();
  /// A request for this listener has arrived. TCP: its addresses were checked against those of the socket.
  void receive_request(CmLink link, const CmMessage& request);
  /// The program has read a connect request, or its identifier is gone.
  void request_read();
  /// False: backlog requests are unread, so further ones wait in the queue of the socket.
  [[nodiscard]] bool has_room() const noexcept { return unread_requests_ < backlog_; }

  // Properties
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint16_t port_space() const noexcept { return port_space_; }
  [[nodiscard]] const std::shared_ptr<CmFile>& file() const noexcept { return file_; }
  void move_to(std::shared_ptr<CmFile> file) noexcept { file_ = std::move(file); }
  [[nodiscard]] CmState state() const noexcept { return state_; }
  [[nodiscard]] const CmAddress& source() const noexcept { return source_; }
  [[nodiscard]] const CmAddress& target() const noexcept { return target_; }
  [[nodiscard]] bool has_device() const noexcept { return place_.device != nullptr; }
  /// Only if has_device().
  [[nodiscard]] const CmDevice& device() const noexcept { return *place_.device; }
  [[nodiscard]] bool has_route() const noexcept;
  [[nodiscard]] std::uint8_t traffic_class() const noexcept { return traffic_class_; }
  [[nodiscard]] int link() const noexcept { return link_ ? link_->fd() : -1; }
  [[nodiscard]] bool link_has_unsent() const noexcept { return link_ && link_->has_unsent(); }
  [[nodiscard]] int listener() const noexcept { return state_ == CmState::kListening ? claim_.socket() : -1; }
  /// For a listener: whether it accepts connections to `address`.
  [[nodiscard]] bool listens_to(const ibv_gid& address) const noexcept;
  [[nodiscard]] std::optional<Clock::time_point> deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool is_datagram() const noexcept { return qp_type_ == IBV_QPT_UD; }
  /// The attributes for moving the queue pair to `state`, as the kernel gives them.
  [[nodiscard]] int queue_pair_attributes(std::uint32_t state, ib_uverbs_qp_attr& attributes) const;
  /// The address of a path to `target_gid`.
  void fill_address(ib_uverbs_ah_attr& address, const ibv_gid& target_gid) const;

  std::uint32_t reported_events = 0;  ///< events that the program has read

 private:
  [[nodiscard]] rdma_ucm_event_resp event(CmEventType type, int status) const noexcept;
  void post(CmEventType type, int status);
  void post_connection(CmEventType type, int status, const CmMessage& from, std::uint8_t private_room);
  void post_datagram(CmEventType type, int status, const CmMessage& from, std::uint8_t private_room);
  void push(rdma_ucm_event_resp body);
  [[nodiscard]] int take_device();
  [[nodiscard]] CmMessage message(CmKind kind) const;
  void put_queue_pair(CmMessage& message, std::uint32_t qpn) const;
  [[nodiscard]] int put_private(CmMessage& message, const std::uint8_t* data, std::uint8_t length,
                                std::uint8_t room) const;
  [[nodiscard]] int open_link();
  [[nodiscard]] int open_link_on_this_host();
  void start_link();
  void drop_link();
  void fail(CmEventType event, int status);
  [[nodiscard]] bool try_again_without_listener();
  void find_no_listener();
  void receive(const CmMessage& message);
  void link_ended();
  [[nodiscard]] bool is_connected() const noexcept;
  void end_connection();
  void wait_for(std::chrono::milliseconds time);

  CmService& service_;
  std::shared_ptr<CmFile> file_;
  const std::uint32_t number_;
  std::uint64_t uid_;
  std::uint16_t port_space_;
  const std::uint8_t qp_type_;
  CmState state_ = CmState::kIdle;
  CmAddress source_;
  CmAddress target_;
  CmDevices::Place place_;
  PortClaim claim_;
  bool shares_port_ = false;
  bool is_ipv6_only_ = false;
  std::uint8_t traffic_class_ = 0;
  std::uint8_t ack_timeout_;
  std::optional<CmLink> link_;
  CmMessage request_;  ///< the first message of the link
  CmMessage peer_;     ///< the peer's kConnect or kAccept
  bool has_answered_disconnect_ = false;
  std::uint32_t psn_;
  std::uint8_t responder_resources_ = 0;
  std::uint8_t initiator_depth_ = 0;
  std::uint8_t retry_count_ = 7;
  std::optional<Clock::time_point> deadline_;
  Clock::time_point give_up_at_{};
  Clock::time_point refused_at_{};  ///< until then, an initiator that finds no listener tries again
  // A listener
  std::uint32_t backlog_ = 0;
  std::uint32_t unread_requests_ = 0;
  std::weak_ptr<CmId> arrived_at_;  ///< its listener, until the program has read its request
};

}  // namespace rdmacomm::softdev
