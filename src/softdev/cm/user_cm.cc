#include "softdev/cm/user_cm.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "base/blocked_signals.h"
#include "softdev/cm/cm_file.h"
#include "softdev/cm/cm_id.h"
#include "softdev/cm/cm_service.h"
#include "softdev/context/settings.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint8_t kLinkLayerRate = 17;   // IBV_RATE_200_GBPS, as the port says
constexpr std::uint8_t kPacketLifeTime = 16;  // 0.27 s: the kernel's for RoCE
constexpr std::uint8_t kExactly = 2;          // a selector of a path record

/// A path record as the subnet administrator sends it. Source: InfiniBand specification, chapter 15, PathRecord.
struct WirePath {
  std::uint64_t service_id = 0;
  ibv_gid dgid{};
  ibv_gid sgid{};
  std::uint16_t dlid = 0;
  std::uint16_t slid = 0;
  std::uint32_t flow_and_hops = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t reversible_and_count = 0;
  std::uint16_t pkey = 0;
  std::uint16_t quality_and_sl = 0;
  std::uint8_t mtu = 0;
  std::uint8_t rate = 0;
  std::uint8_t life_time = 0;
  std::uint8_t preference = 0;
  std::uint8_t reserved[6] = {};
};
static_assert(sizeof(WirePath) == sizeof(ib_path_rec_data::path_rec));

/// id  has a device
ib_path_rec_data wire_path(const CmId& id, const CmDevices& devices) {
  WirePath path;
  path.dgid = devices.gid(id.target());
  path.sgid = id.device().gid(id.source());
  path.dlid = htobe16(devices.lid_of(path.dgid));
  path.slid = htobe16(id.device().lid());
  path.flow_and_hops = htobe32(kCmHopLimit);
  path.traffic_class = id.traffic_class();
  path.reversible_and_count = 0x80;
  path.pkey = htobe16(kDefaultPkey);
  path.mtu = kExactly << 6 | IBV_MTU_4096;
  path.rate = kExactly << 6 | kLinkLayerRate;
  path.life_time = kExactly << 6 | kPacketLifeTime;
  ib_path_rec_data data{};
  data.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  std::memcpy(data.path_rec, &path, sizeof(path));
  return data;
}

/// id  has a device
ib_user_path_rec user_path(const CmId& id, const CmDevices& devices) {
  ib_user_path_rec path{};
  const ibv_gid target = devices.gid(id.target());
  std::memcpy(path.dgid, target.raw, sizeof(path.dgid));
  std::memcpy(path.sgid, id.device().gid(id.source()).raw, sizeof(path.sgid));
  path.dlid = htobe16(devices.lid_of(target));
  path.slid = htobe16(id.device().lid());
  path.reversible = 1;
  path.mtu = IBV_MTU_4096;
  path.pkey = htobe16(kDefaultPkey);
  path.hop_limit = kCmHopLimit;
  path.traffic_class = id.traffic_class();
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
  path.rate = kLinkLayerRate;
  path.packet_life_time = kPacketLifeTime;
  return path;
}

void put_address(const CmAddress& address, std::uint16_t port_space, void* to, std::size_t room) {
  sockaddr_storage storage{};
  const std::size_t length = write_address(address, port_space, storage);
  std::memcpy(to, &storage, std::min(length, room));
}

/// The port space and type of queue pair of a new identifier. Returns false: no such port space.
bool type_of(std::uint16_t port_space, std::uint8_t wanted, std::uint8_t& type) {
  switch (port_space) {
    case RDMA_PS_TCP: type = IBV_QPT_RC; return true;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: type = IBV_QPT_UD; return true;
    case RDMA_PS_IB: type = wanted; return true;
    default: return false;
  }
}

}  // namespace

/// The commands. Each reads its struct from `in_`, and returns 0 or an errno value.
class UserCm::Commands {
 public:
  Commands(CmService& service, const UserCm& cm, std::shared_ptr<CmFile> file, const std::byte* in, std::size_t length,
           std::size_t room)
      : service_(service), cm_(cm), file_(std::move(file)), in_(in), length_(length), room_(room) {}

  int execute(std::uint32_t command) {
    switch (command) {
      case RDMA_USER_CM_CMD_CREATE_ID: return create();
      case RDMA_USER_CM_CMD_DESTROY_ID: return destroy();
      case RDMA_USER_CM_CMD_BIND_IP: return bind_ip();
      case RDMA_USER_CM_CMD_BIND: return bind();
      case RDMA_USER_CM_CMD_RESOLVE_IP: return resolve_ip();
      case RDMA_USER_CM_CMD_RESOLVE_ADDR: return resolve_address();
      case RDMA_USER_CM_CMD_RESOLVE_ROUTE: return resolve_route();
      case RDMA_USER_CM_CMD_QUERY_ROUTE: return query_route();
      case RDMA_USER_CM_CMD_QUERY: return query();
      case RDMA_USER_CM_CMD_CONNECT: return connect();
      case RDMA_USER_CM_CMD_LISTEN: return listen();
      case RDMA_USER_CM_CMD_ACCEPT: return accept();
      case RDMA_USER_CM_CMD_REJECT: return reject();
      case RDMA_USER_CM_CMD_DISCONNECT: return disconnect();
      case RDMA_USER_CM_CMD_INIT_QP_ATTR: return init_qp_attr();
      case RDMA_USER_CM_CMD_SET_OPTION: return set_option();
      case RDMA_USER_CM_CMD_NOTIFY: return notify();
      case RDMA_USER_CM_CMD_JOIN_IP_MCAST: return join_ip();
      case RDMA_USER_CM_CMD_JOIN_MCAST: return join();
      case RDMA_USER_CM_CMD_LEAVE_MCAST: return leave();
      case RDMA_USER_CM_CMD_MIGRATE_ID: return migrate();
      case WriteEvent::kCommand: return write_event();
      default: return ENOSYS;
    }
  }

 private:
  /// RDMA_USER_CM_CMD_WRITE_CM_EVENT, which is not in the header of each release.
  /// Source: struct rdma_ucm_write_cm_event in rdma-core 64, kernel-headers/rdma/rdma_user_cm.h.
  struct WriteEvent {
    static constexpr std::uint32_t kCommand = 24;
    std::uint32_t id = 0;
    std::uint32_t reserved = 0;
    std::uint32_t event = 0;
    std::uint32_t status = 0;
    std::uint64_t argument = 0;
  };

  /// Reads the command. A shorter one, of an older librdmacm, has zeroes behind its end.
  template <typename Command>
  Command read() const {
    Command command{};
    std::memcpy(&command, in_, std::min(length_, sizeof(command)));
    return command;
  }

  /// Writes an answer: as much of it as the program has room for, but at least `least` bytes.
  template <typename Answer>
  int answer(std::uint64_t to, const Answer& answer, std::size_t least = sizeof(Answer)) const {
    if (room_ < least) return ENOSPC;
    std::memcpy(reinterpret_cast<void*>(to), &answer, std::min(room_, sizeof(answer)));
    return 0;
  }

  /// An identifier of this file.
  std::shared_ptr<CmId> find(std::uint32_t number) const {
    auto id = service_.find(number);
    return id && id->file() == file_ ? id : nullptr;
  }

  /// Calls `work` with the identifier of a command.
  template <typename Work>
  int with(std::uint32_t number, Work&& work) const {
    const auto id = find(number);
    return id ? work(*id) : EINVAL;
  }

  int create() {
    const auto command = read<rdma_ucm_create_id>();
    std::uint8_t type = 0;
    if (!type_of(command.ps, command.qp_type, type)) return EINVAL;
    if (room_ < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    const auto id = service_.create(file_, command.uid, command.ps, type);
    return answer(command.response, rdma_ucm_create_id_resp{id->number()});
  }

  int destroy() {
    const auto command = read<rdma_ucm_destroy_id>();
    if (room_ < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    return with(command.id, [&](CmId& id) {
      service_.remove(id);
      return answer(command.response, rdma_ucm_destroy_id_resp{id.reported_events});
    });
  }

  int bind_to(std::uint32_t number, const void* from, std::size_t length) {
    CmAddress address;
    if (!read_address(from, length, address)) return EINVAL;
    return with(number, [&](CmId& id) { return id.bind(address); });
  }
  int bind_ip() {
    const auto command = read<rdma_ucm_bind_ip>();
    return bind_to(command.id, &command.addr, sizeof(command.addr));
  }
  int bind() {
    const auto command = read<rdma_ucm_bind>();
    if (command.reserved != 0 || command.addr_size > sizeof(command.addr)) return EINVAL;
    return bind_to(command.id, &command.addr, command.addr_size);
  }

  int resolve(std::uint32_t number, const void* source, std::size_t source_length, const void* target,
              std::size_t target_length) {
    CmAddress from;
    CmAddress to;
    const bool has_source = source_length != 0 && read_address(source, source_length, from);
    sa_family_t family = AF_UNSPEC;
    if (source_length >= sizeof(family)) std::memcpy(&family, source, sizeof(family));
    if ((!has_source && family != AF_UNSPEC) || !read_address(target, target_length, to)) return EINVAL;
    return with(number, [&](CmId& id) { return id.resolve_address(from, to); });
  }
  int resolve_ip() {
    const auto command = read<rdma_ucm_resolve_ip>();
    return resolve(command.id, &command.src_addr, sizeof(command.src_addr), &command.dst_addr,
                   sizeof(command.dst_addr));
  }
  int resolve_address() {
    const auto command = read<rdma_ucm_resolve_addr>();
    if (command.reserved != 0 || command.src_size > sizeof(command.src_addr) ||
        command.dst_size > sizeof(command.dst_addr))
      return EINVAL;
    return resolve(command.id, &command.src_addr, command.src_size, &command.dst_addr, command.dst_size);
  }
  int resolve_route() {
    return with(read<rdma_ucm_resolve_route>().id, [](CmId& id) { return id.resolve_route(); });
  }

  int query_route() {
    const auto command = read<rdma_ucm_query>();  // the same struct for both
    return with(command.id, [&](CmId& id) {
      rdma_ucm_query_route_resp found{};
      put_address(id.source(), id.port_space(), &found.src_addr, sizeof(found.src_addr));
      put_address(id.target(), id.port_space(), &found.dst_addr, sizeof(found.dst_addr));
      if (id.has_device()) {
        found.node_guid = id.device().guid();
        found.port_num = 1;
        found.ibdev_index = UINT32_MAX;  // the kernel has no number for a soft device
        found.ib_route[0] = user_path(id, service_.devices());
        found.num_paths = id.has_route() ? 1 : 0;
      }
      return answer(command.response, found, offsetof(rdma_ucm_query_route_resp, ibdev_index));
    });
  }

  int query() {
    const auto command = read<rdma_ucm_query>();
    return with(command.id, [&](CmId& id) {
      switch (command.option) {
        case RDMA_USER_CM_QUERY_ADDR: return query_address(command.response, id, false);
        case RDMA_USER_CM_QUERY_GID: return query_address(command.response, id, true);
        case RDMA_USER_CM_QUERY_PATH: return query_path(command.response, id);
        default: return ENOSYS;
      }
    });
  }

  int query_address(std::uint64_t to, const CmId& id, bool as_gids) const {
    rdma_ucm_query_addr_resp found{};
    CmAddress source = id.source();
    CmAddress target = id.target();
    if (as_gids) {
      source.gid = id.has_device() ? id.device().gid(source) : service_.devices().gid(source);
      target.gid = service_.devices().gid(target);
      source.family = target.family = AF_IB;
    }
    sockaddr_storage storage{};
    found.src_size = static_cast<std::uint16_t>(write_address(source, id.port_space(), storage));
    std::memcpy(&found.src_addr, &storage, sizeof(found.src_addr));
    found.dst_size = static_cast<std::uint16_t>(write_address(target, id.port_space(), storage));
    std::memcpy(&found.dst_addr, &storage, sizeof(found.dst_addr));
    found.pkey = htobe16(kDefaultPkey);
    found.ibdev_index = UINT32_MAX;
    if (id.has_device()) {
      found.node_guid = id.device().guid();
      found.port_num = 1;
    }
    return answer(to, found, offsetof(rdma_ucm_query_addr_resp, ibdev_index));
  }

  int query_path(std::uint64_t to, const CmId& id) const {
    // rdma_ucm_query_path_resp, which ends with a flexible array.
    struct {
      std::uint32_t num_paths = 0;
      std::uint32_t reserved = 0;
      ib_path_rec_data path{};
    } found;
    static_assert(offsetof(decltype(found), path) == sizeof(rdma_ucm_query_path_resp));
    if (id.has_route() && room_ >= sizeof(found)) {
      found.num_paths = 1;
      found.path = wire_path(id, service_.devices());
    }
    return answer(to, found, sizeof(rdma_ucm_query_path_resp));
  }

  int connect() {
    const auto command = read<rdma_ucm_connect>();
    return with(command.id, [&](CmId& id) { return id.connect(command.conn_param, command.ece); });
  }
  int listen() {
    const auto command = read<rdma_ucm_listen>();
    return with(command.id, [&](CmId& id) { return id.listen(command.backlog); });
  }
  int accept() {
    const auto command = read<rdma_ucm_accept>();
    return with(command.id, [&](CmId& id) {
      return command.conn_param.valid != 0 ? id.accept(command.uid, command.conn_param, command.ece) : id.confirm();
    });
  }
  int reject() {
    const auto command = read<rdma_ucm_reject>();
    CmReason reason = CmReason::kConsumerDefined;
    if (command.reason == static_cast<std::uint8_t>(CmReason::kOptionNotSupported)) {
      reason = CmReason::kOptionNotSupported;
    } else if (command.reason != 0 && command.reason != static_cast<std::uint8_t>(reason)) {
      return EINVAL;
    }
    return with(command.id,
                [&](CmId& id) { return id.reject(reason, command.private_data, command.private_data_len); });
  }
  int disconnect() {
    return with(read<rdma_ucm_disconnect>().id, [](CmId& id) { return id.disconnect(); });
  }

  int init_qp_attr() {
    const auto command = read<rdma_ucm_init_qp_attr>();
    return with(command.id, [&](CmId& id) {
      ib_uverbs_qp_attr attributes{};
      const int error = id.queue_pair_attributes(command.qp_state, attributes);
      return error != 0 ? error : answer(command.response, attributes);
    });
  }

  int set_option() {
    const auto command = read<rdma_ucm_set_option>();
    constexpr std::uint32_t kMaxOption = 4096;
    if (command.optlen > kMaxOption) return EINVAL;
    const auto* const value = reinterpret_cast<const void*>(command.optval);
    if (value == nullptr) return EFAULT;
    return with(command.id,
                [&](CmId& id) { return id.set_option(command.level, command.optname, value, command.optlen); });
  }
  int notify() {
    const auto command = read<rdma_ucm_notify>();
    return with(command.id,
                [&](CmId& id) { return command.event == IBV_EVENT_COMM_EST ? id.note_established() : EINVAL; });
  }

  int join_group(std::uint32_t number, std::uint64_t uid, std::uint64_t response, const void* from,
                 std::size_t length) {
    CmAddress group;
    if (!read_address(from, length, group)) return EINVAL;
    if (room_ < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    return with(number, [&](CmId& id) {
      const std::uint32_t membership = service_.add_membership(id);
      const int error = id.join(membership, uid, group);
      if (error == 0) return answer(response, rdma_ucm_create_id_resp{membership});
      (void)service_.end_membership(membership);
      return error;
    });
  }
  int join_ip() {
    const auto command = read<rdma_ucm_join_ip_mcast>();
    return join_group(command.id, command.uid, command.response, &command.addr, sizeof(command.addr));
  }
  int join() {
    const auto command = read<rdma_ucm_join_mcast>();
    if (command.addr_size > sizeof(command.addr) || command.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
    return join_group(command.id, command.uid, command.response, &command.addr, command.addr_size);
  }
  int leave() {
    const auto command = read<rdma_ucm_destroy_id>();
    if (room_ < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    const auto ended = service_.end_membership(command.id);
    if (!ended || ended->id->file() != file_) return EINVAL;
    (void)file_->remove([&](const CmEvent& event) { return event.group == command.id; });
    return answer(command.response, rdma_ucm_destroy_id_resp{ended->reported_events});
  }

  int migrate() {
    const auto command = read<rdma_ucm_migrate_id>();
    if (room_ < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
    const auto from = cm_.file_of(static_cast<int>(command.fd));
    const auto id = service_.find(command.id);
    if (!from || !id || id->file() != from) return EINVAL;
    id->move_to(file_);
    auto events = from->remove([&](const CmEvent& event) { return event.id == id; });
    for (CmEvent& event : events) {
      if (event.arrived) event.arrived->move_to(file_);  // the program will look for it where it reads the request
      file_->push(std::move(event));
    }
    return answer(command.response, rdma_ucm_migrate_resp{id->reported_events});
  }

  int write_event() {
    const auto command = read<WriteEvent>();
    const auto type = static_cast<CmEventType>(command.event);
    if (type != CmEventType::kUser && type != CmEventType::kInternal) return EINVAL;
    return with(command.id, [&](CmId& id) {
      id.post_written(type, command.status, command.argument);
      return 0;
    });
  }

  CmService& service_;
  const UserCm& cm_;
  const std::shared_ptr<CmFile> file_;
  const std::byte* in_;
  const std::size_t length_;
  const std::size_t room_;
};

UserCm::UserCm(std::vector<DeviceIdentity> identities) : identities_(std::move(identities)) {}
UserCm::UserCm(DeviceIdentity identity) : UserCm(std::vector{std::move(identity)}) {}

UserCm::~UserCm() = default;

std::shared_ptr<CmFile> UserCm::file_of(int fd) const {
  const std::uint64_t inode = inode_of(fd);
  const auto found = std::ranges::find_if(files_, [inode](const auto& file) { return file->inode() == inode; });
  return inode == 0 || found == files_.end() ? nullptr : *found;
}

int UserCm::open(int flags) noexcept {
  try {
    const BlockedSignals no_handler;
    const std::scoped_lock lock(mutex_);
    drop_unusable();
    if (!service_) {
      Settings settings;
      if (const int error = read_settings(settings); error != 0) {
        errno = error;
        return -1;
      }
      service_ = std::make_unique<CmService>(identities_, std::move(settings));
    }
    const std::scoped_lock service_lock(service_->mutex());
    auto file = std::make_shared<CmFile>();
    const int fd = file->open(flags);
    if (fd >= 0) files_.push_back(std::move(file));
    return fd;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

/// The program need not tell that it has closed a file: fclose() and closefrom() make no call that is seen here.
void UserCm::drop_unusable() {
  const auto is = [](CmFile::Use use) { return [use](const auto& file) { return file->use() == use; }; };
  const bool has_lost_files = service_ && service_->has_lost_its_files();
  if (has_lost_files || std::ranges::any_of(files_, is(CmFile::Use::kLost))) {
    // Destructors would close descriptors that may belong to the program now.
    for (const auto& file : files_) file->forget();
    files_.clear();
    if (service_) service_->stop_without_files();
    (void)service_.release();
    return;
  }
  std::vector<std::shared_ptr<CmFile>> closed;
  std::ranges::copy_if(files_, std::back_inserter(closed), is(CmFile::Use::kClosed));
  for (const auto& file : closed) drop(file);
}

void UserCm::drop(const std::shared_ptr<CmFile>& file) {
  const std::scoped_lock service_lock(service_->mutex());
  for (const auto& id : service_->of(*file)) service_->remove(*id);
  std::erase(files_, file);
}

std::shared_ptr<CmFile> UserCm::locked_file_of(int fd) {
  const BlockedSignals no_handler;
  const std::scoped_lock lock(mutex_);
  return file_of(fd);
}

int UserCm::next_event(int fd, const std::byte* in, std::size_t length, std::size_t room) {
  constexpr std::size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  rdma_ucm_get_event command{};
  std::memcpy(&command, in, std::min(length, sizeof(command)));
  const auto file = locked_file_of(fd);
  if (!file) return EBADF;
  if (room < kLeast) return ENOSPC;
  for (;;) {
    if (const int error = file->wait(); error != 0) return error;
    const BlockedSignals no_handler;
    const std::scoped_lock lock(service_->mutex());
    CmEvent event;
    if (!file->take_byte() || !file->pop(event)) continue;
    if (event.id) ++event.id->reported_events;
    if (event.group != 0) service_->count_membership_event(event.group);
    if (event.arrived) event.arrived->request_read();
    std::memcpy(reinterpret_cast<void*>(command.response), &event.body, std::min(room, sizeof(event.body)));
    return 0;
  }
}

/// Returns  0, or an errno value.
int UserCm::execute(int fd, const std::byte* command, std::size_t length) {
  rdma_ucm_cmd_hdr head{};
  if (length < sizeof(head)) return EINVAL;
  std::memcpy(&head, command, sizeof(head));
  if (head.in > length - sizeof(head)) return EINVAL;
  const std::byte* const in = command + sizeof(head);
  if (head.cmd == RDMA_USER_CM_CMD_GET_EVENT) return next_event(fd, in, head.in, head.out);
  const BlockedSignals no_handler;
  const std::scoped_lock lock(mutex_);
  const auto file = file_of(fd);
  if (!file) return EBADF;
  const std::scoped_lock service_lock(service_->mutex());
  return Commands(*service_, *this, file, in, head.in, head.out).execute(head.cmd);
}

ssize_t UserCm::write(int fd, const void* command, std::size_t length) {
  const int errno_before = errno;
  int error = ENOMEM;
  try {
    error = execute(fd, static_cast<const std::byte*>(command), length);
  } catch (const std::bad_alloc&) {
  }
  errno = error == 0 ? errno_before : error;
  return error == 0 ? static_cast<ssize_t>(length) : -1;
}

void UserCm::closed(int fd) noexcept {
  // This may be a socket of the service itself, which has the number of a file that was closed without a call of this
  // function. Its thread has locks then.
  if (!is_pipe(fd)) return;
  const BlockedSignals no_handler;
  const std::scoped_lock lock(mutex_);
  if (const auto file = file_of(fd)) drop(file);
}

void UserCm::before_fork() noexcept {
  // A handler that forks would wait for the locks that this thread has.
  const sigset_t before = block_signals();
  mutex_.lock();
  signals_before_fork_ = before;
  if (service_) service_->mutex().lock();
}

void UserCm::after_fork(bool is_child) noexcept {
  if (service_) {
    if (is_child) {
      service_->abandon();
      for (const auto& file : files_) file->abandon();
      service_->mutex().unlock();
      // Its thread exists in the parent only, so the object can neither be used nor destroyed here.
      (void)service_.release();
      files_.clear();
    } else {
      service_->mutex().unlock();
    }
  }
  const sigset_t before = signals_before_fork_;
  mutex_.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace rdmacomm::softdev
