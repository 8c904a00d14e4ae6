// cm_scene.h - event channels of rdma_cm, used as librdmacm does: by commands written to the device file.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "softdev/cm/cm_address.h"
#include "softdev/cm/cm_file.h"
#include "softdev/cm/user_cm.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {

inline sockaddr_in ipv4(std::uint16_t port, const char* address = "127.0.0.1") {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  inet_pton(AF_INET, address, &made.sin_addr);
  return made;
}

/// 127.0.0.1
inline CmAddress loopback_at(std::uint16_t port) {
  CmAddress target;
  target.family = AF_INET;
  target.port = port;
  target.gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
  return target;
}

/// Connection parameters with these private bytes.
inline rdma_ucm_conn_param parameters(std::string_view text = "", std::uint32_t qpn = 0x123456) {
  rdma_ucm_conn_param made{};
  made.valid = 1;
  made.qp_num = qpn;
  made.responder_resources = 3;
  made.initiator_depth = 2;
  made.retry_count = 7;
  made.rnr_retry_count = 6;
  made.private_data_len = static_cast<std::uint8_t>(text.size());
  std::memcpy(made.private_data, text.data(), text.size());
  return made;
}

/// One open device file. Commands return 0 or an errno value.
struct Channel {
  UserCm& cm;
  int fd;

  explicit Channel(UserCm& cm_) : Channel(cm_, cm_.open(O_CLOEXEC)) {}
  Channel(UserCm& cm_, int fd_) : cm(cm_), fd(fd_) { EXPECT_GE(fd, 0); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() { close(); }
  void close() {
    if (fd < 0) return;
    cm.closed(fd);
    ::close(std::exchange(fd, -1));
  }

  template <typename Command>
  int write(std::uint32_t number, const Command& command, std::size_t room = 0) const {
    std::vector<std::byte> whole(sizeof(rdma_ucm_cmd_hdr) + sizeof(command));
    const rdma_ucm_cmd_hdr head{number, sizeof(command), static_cast<std::uint16_t>(room)};
    std::memcpy(whole.data(), &head, sizeof(head));
    std::memcpy(whole.data() + sizeof(head), &command, sizeof(command));
    const ssize_t written = cm.write(fd, whole.data(), whole.size());
    return written == static_cast<ssize_t>(whole.size()) ? 0 : errno;
  }
  template <typename Answer, typename Command>
  Answer ask(std::uint32_t number, Command command) const {
    Answer answer{};
    command.response = reinterpret_cast<std::uint64_t>(&answer);
    EXPECT_EQ(write(number, command, sizeof(answer)), 0);
    return answer;
  }

  [[nodiscard]] std::uint32_t create(std::uint64_t uid, std::uint16_t port_space = RDMA_PS_TCP) const {
    rdma_ucm_create_id command{};
    command.uid = uid;
    command.ps = port_space;
    command.qp_type = IBV_QPT_RC;
    return ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_CREATE_ID, command).id;
  }
  /// Returns the number of events that the program has got.
  [[nodiscard]] std::uint32_t destroy(std::uint32_t id) const {
    rdma_ucm_destroy_id command{};
    command.id = id;
    return ask<rdma_ucm_destroy_id_resp>(RDMA_USER_CM_CMD_DESTROY_ID, command).events_reported;
  }
  [[nodiscard]] int bind(std::uint32_t id, const sockaddr_in& address) const {
    rdma_ucm_bind command{};
    command.id = id;
    command.addr_size = sizeof(address);
    std::memcpy(&command.addr, &address, sizeof(address));
    return write(RDMA_USER_CM_CMD_BIND, command);
  }
  [[nodiscard]] int set(std::uint32_t id, std::uint32_t option, int value) const {
    rdma_ucm_set_option command{};
    command.id = id;
    command.level = RDMA_OPTION_ID;
    command.optname = option;
    command.optval = reinterpret_cast<std::uint64_t>(&value);
    command.optlen = sizeof(value);
    return write(RDMA_USER_CM_CMD_SET_OPTION, command);
  }
  [[nodiscard]] int listen(std::uint32_t id, std::uint32_t backlog = 0) const {
    return write(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  [[nodiscard]] std::uint16_t port_of(std::uint32_t id) const {
    rdma_ucm_query command{};
    command.id = id;
    const auto found = ask<rdma_ucm_query_route_resp>(RDMA_USER_CM_CMD_QUERY_ROUTE, command);
    return ntohs(found.src_addr.sin6_port);
  }
  [[nodiscard]] int resolve_address(std::uint32_t id, const sockaddr_in& target) const {
    rdma_ucm_resolve_addr command{};
    command.id = id;
    command.dst_size = sizeof(target);
    std::memcpy(&command.dst_addr, &target, sizeof(target));
    return write(RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
  }
  /// Joins a group. Returns the number of the membership.
  [[nodiscard]] std::uint32_t join(std::uint32_t id, const sockaddr_in& group, std::uint64_t uid = 0) const {
    return ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_JOIN_MCAST, join_command(id, group, uid)).id;
  }
  [[nodiscard]] static rdma_ucm_join_mcast join_command(std::uint32_t id, const sockaddr_in& group, std::uint64_t uid) {
    rdma_ucm_join_mcast command{};
    command.id = id;
    command.uid = uid;
    command.addr_size = sizeof(group);
    std::memcpy(&command.addr, &group, sizeof(group));
    return command;
  }
  [[nodiscard]] int resolve_route(std::uint32_t id) const {
    return write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0});
  }
  [[nodiscard]] int connect(std::uint32_t id, const rdma_ucm_conn_param& with) const {
    rdma_ucm_connect command{};
    command.id = id;
    command.conn_param = with;
    return write(RDMA_USER_CM_CMD_CONNECT, command);
  }
  [[nodiscard]] int accept(std::uint32_t id, const rdma_ucm_conn_param& with, std::uint64_t uid = 1) const {
    rdma_ucm_accept command{};
    command.id = id;
    command.uid = uid;
    command.conn_param = with;
    return write(RDMA_USER_CM_CMD_ACCEPT, command);
  }
  /// The initiator's answer to the listener's.
  [[nodiscard]] int confirm(std::uint32_t id) const { return accept(id, {}); }
  [[nodiscard]] int reject(std::uint32_t id, std::string_view text) const {
    rdma_ucm_reject command{};
    command.id = id;
    command.private_data_len = static_cast<std::uint8_t>(text.size());
    std::memcpy(command.private_data, text.data(), text.size());
    return write(RDMA_USER_CM_CMD_REJECT, command);
  }
  [[nodiscard]] int disconnect(std::uint32_t id) const {
    return write(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  /// The attributes for a queue pair; its state is 0 if there are none.
  [[nodiscard]] ib_uverbs_qp_attr attributes(std::uint32_t id, ibv_qp_state state) const {
    ib_uverbs_qp_attr answer{};
    rdma_ucm_init_qp_attr command{};
    command.id = id;
    command.qp_state = state;
    command.response = reinterpret_cast<std::uint64_t>(&answer);
    if (write(RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof(answer)) != 0) answer.qp_state = 0;
    return answer;
  }

  [[nodiscard]] bool has_event() const { return readable(fd); }
  /// Waits for the next event.
  [[nodiscard]] rdma_ucm_event_resp get_event() const {
    rdma_ucm_event_resp event{};
    event.event = UINT32_MAX;
    EXPECT_EQ(
        write(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{reinterpret_cast<std::uint64_t>(&event)}, sizeof(event)),
        0);
    return event;
  }
  /// Waits for the next event, at most 20 s.
  [[nodiscard]] rdma_ucm_event_resp next() const {
    if (readable(fd, 20'000)) return get_event();
    ADD_FAILURE() << "no event";
    rdma_ucm_event_resp none{};
    none.event = UINT32_MAX;
    return none;
  }
  rdma_ucm_event_resp expect(CmEventType type, int status = 0) const {
    const rdma_ucm_event_resp event = next();
    EXPECT_EQ(event.event, static_cast<std::uint32_t>(type));
    EXPECT_EQ(static_cast<int>(event.status), status) << "in event " << event.event;
    return event;
  }

  /// Creates an identifier that listens on this host, at any port.
  [[nodiscard]] std::uint32_t listener(std::uint16_t port_space = RDMA_PS_TCP, std::uint32_t backlog = 0) const {
    const std::uint32_t id = create(100, port_space);
    EXPECT_EQ(bind(id, ipv4(0)), 0);
    EXPECT_EQ(listen(id, backlog), 0);
    return id;
  }
  /// Creates an identifier that can connect to this port.
  [[nodiscard]] std::uint32_t initiator(std::uint16_t port, std::uint64_t uid = 200,
                                        std::uint16_t port_space = RDMA_PS_TCP) const {
    const std::uint32_t id = create(uid, port_space);
    EXPECT_EQ(resolve_address(id, ipv4(port)), 0);
    expect(CmEventType::kAddressResolved);
    EXPECT_EQ(resolve_route(id), 0);
    expect(CmEventType::kRouteResolved);
    return id;
  }
};

inline std::string_view private_data(const rdma_ucm_conn_param& of, std::size_t length) {
  EXPECT_LE(length, of.private_data_len);
  return {reinterpret_cast<const char*>(of.private_data), length};
}

/// A server and a client, which are two openings of the device in one process, with a connection in the making.
struct TwoIds {
  UserCm at_server{DeviceIdentity{.name = "soft0"}};
  UserCm at_client{DeviceIdentity{.name = "soft0"}};
  Channel server{at_server};
  Channel client{at_client};
  std::uint32_t listener = 0;
  std::uint32_t accepted = 0;
  std::uint32_t initiator = 0;

  explicit TwoIds(std::uint16_t port_space = RDMA_PS_TCP) : listener(server.listener(port_space)) {
    initiator = client.initiator(server.port_of(listener), 200, port_space);
  }
  /// Sends the request, and receives it.
  rdma_ucm_event_resp request(std::string_view text = "") {
    EXPECT_EQ(client.connect(initiator, parameters(text)), 0);
    const auto event = server.expect(CmEventType::kConnectRequest);
    accepted = event.id;
    return event;
  }
  void establish() {
    request();
    ASSERT_EQ(server.accept(accepted, parameters("", 0x654321)), 0);
    client.expect(CmEventType::kConnectResponse);
    ASSERT_EQ(client.confirm(initiator), 0);
    server.expect(CmEventType::kEstablished);
  }
};

}  // namespace rdmacomm::softdev::test
