#include "softdev/host/traffic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <new>
#include <optional>
#include <string_view>

#include "softdev/shared/private_folder.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint64_t kMagic = 0x3130'746e'636d'6472;  // "rdmcnt01"
constexpr int kNameDigits = 16;
constexpr char kLockName[] = "lock";

/// The start of the file of a process. The counters for rare events follow at kCountersAt, then the cells at kCellsAt.
struct FileHeader {
  std::uint64_t magic;
  std::atomic<std::uint64_t> cells;  ///< that exist
};
constexpr std::size_t kCountersAt = 4096;
constexpr std::size_t kCellsAt = kCountersAt + DeviceIdentity::kMaxDevices * sizeof(Counts);
constexpr std::size_t kFirstBytes = 32 * 1024;
constexpr std::size_t kMoreBytes = 64 * 1024;
static_assert(kCellsAt < kFirstBytes && kFirstBytes % sizeof(TrafficCell) == 0);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The file with the counts of the processes that have ended.
struct EndedFile {
  std::uint64_t magic = kMagic;
  std::uint64_t link_downed = 0;
  std::array<Counts, DeviceIdentity::kMaxDevices> devices{};
};

std::uint64_t& link_downed_of(EndedFile& ended, const DeviceIdentity& device) noexcept {
  if (device.interface.empty()) return ended.link_downed;
  return ended.devices[device.index % ended.devices.size()][static_cast<std::size_t>(Count::kLinkDowned)];
}

std::string host_name(std::uint64_t host) {
  char text[kNameDigits + 1];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(host));
  return text;
}

/// The host that a file belongs to; no value: another file.
std::optional<std::uint64_t> host_of(std::string_view name) {
  if (name.size() < kNameDigits) return std::nullopt;
  std::uint64_t host = 0;
  for (const char digit : name.substr(0, kNameDigits)) {
    const std::size_t value = std::string_view("0123456789abcdef").find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    host = host << 4 | value;
  }
  return host;
}

/// The kernel kills a process that exceeds its limit on file sizes (ulimit -f).
bool may_write(std::size_t bytes) noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

/// The folder of this user. The environment does not determine it, because all processes must find the same one.
UniqueFd open_folder(bool makes) {
  for (const char* const base : {"/dev/shm", "/tmp"}) {
    UniqueFd folder = open_private_folder(std::string(base) + "/rdmacomm-counts-" + std::to_string(geteuid()), makes);
    if (folder) return folder;
  }
  return {};
}

/// Locks the folder against other processes that add up files. Returns an empty descriptor if a process holds the lock
/// for long: it may have been stopped.
UniqueFd lock_folder(int folder) {
  constexpr int kTries = 200;
  constexpr timespec kPause{0, 1'000'000};
  UniqueFd file(openat(folder, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  for (int tries = 0; file && tries < kTries; ++tries) {
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    (void)nanosleep(&kPause, nullptr);
  }
  return {};
}

bool read_at(int file, void* to, std::size_t length, std::size_t offset) noexcept {
  return pread(file, to, length, static_cast<off_t>(offset)) == static_cast<ssize_t>(length);
}

EndedFile read_ended(int folder, std::uint64_t host) {
  EndedFile read;
  const UniqueFd file(openat(folder, host_name(host).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file || !read_at(file.get(), &read, sizeof(read), 0) || read.magic != kMagic) return {};
  return read;
}

/// Under a temporary name first, so that a process that is killed meanwhile leaves the old file.
bool write_ended(int folder, std::uint64_t host, const EndedFile& ended) {
  constexpr char kNewName[] = "new";
  if (!may_write(sizeof(ended))) return false;
  const UniqueFd file(openat(folder, kNewName, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || write(file.get(), &ended, sizeof(ended)) != static_cast<ssize_t>(sizeof(ended))) return false;
  return renameat(folder, kNewName, folder, host_name(host).c_str()) == 0;
}

void add(Counts& to, Count kind, std::uint64_t number) noexcept {
  to[static_cast<std::size_t>(kind)] += number;
}

/// Adds the counts of a cell to its device and to the target of its requests.
void add_cell(const TrafficCell& cell, std::vector<Counts>& devices) noexcept {
  if (cell.device >= devices.size()) return;
  using Cell = TrafficCell;
  struct Sum {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
  };
  const auto sum = [&cell](std::initializer_list<Cell::Kind> kinds) {
    Sum all;
    for (const Cell::Kind kind : kinds) {
      all.requests += cell.requests(kind);
      all.bytes += cell.bytes(kind);
    }
    return all;
  };
  const Sum sends = sum({Cell::kSend, Cell::kSendWithImmediate, Cell::kSendWithInvalidate});
  const Sum writes = sum({Cell::kWrite, Cell::kWriteWithImmediate, Cell::kAtomicWrite, Cell::kFlush});
  const Sum asking = sum({Cell::kRead, Cell::kAtomic});
  const std::uint64_t packets = sends.requests + writes.requests + cell.more_packets + asking.requests;
  const std::uint64_t payload = sends.bytes + writes.bytes;
  const std::uint64_t data = asking.bytes;
  const std::uint64_t answers = asking.requests + cell.more_answers;

  Counts& own = devices[cell.device];
  add(own, Count::kSentPackets, packets);
  add(own, Count::kSentBytes, payload);
  add(own, Count::kReceivedPackets, answers + cell.received_requests);
  add(own, Count::kReceivedBytes, data + cell.received_bytes);
  add(own, Count::kSends, sends.requests);
  add(own, Count::kReceives, cell.received_requests);
  if (cell.target >= devices.size()) return;
  Counts& target = devices[cell.target];
  add(target, Count::kReceivedPackets, packets);
  add(target, Count::kReceivedBytes, payload);
  add(target, Count::kSentPackets, answers);
  add(target, Count::kSentBytes, data);
  add(target, Count::kReceives, sends.requests + cell.requests(Cell::kWriteWithImmediate));
}

/// Adds the counts in the file of a process. They are read by system calls, because the file may be truncated meanwhile.
void add_file(int file, std::vector<Counts>& devices) {
  std::uint64_t header[2] = {};
  struct stat found {};
  if (fstat(file, &found) != 0 || !read_at(file, header, sizeof(header), 0) || header[0] != kMagic) return;
  const auto size = static_cast<std::size_t>(found.st_size);
  if (size < kCellsAt) return;
  std::vector<Counts> rare(devices.size());
  if (read_at(file, rare.data(), rare.size() * sizeof(Counts), kCountersAt)) {
    for (std::size_t device = 0; device < devices.size(); ++device) {
      for (std::size_t kind = 0; kind < kCountKinds; ++kind) devices[device][kind] += rare[device][kind];
    }
  }
  std::size_t left = std::min<std::size_t>(header[1], (size - kCellsAt) / sizeof(TrafficCell));
  std::vector<TrafficCell> cells(std::min<std::size_t>(left, 256));
  for (std::size_t at = kCellsAt; left != 0;) {
    const std::size_t piece = std::min(left, cells.size());
    if (!read_at(file, cells.data(), piece * sizeof(TrafficCell), at)) return;
    for (std::size_t i = 0; i < piece; ++i) add_cell(cells[i], devices);
    left -= piece;
    at += piece * sizeof(TrafficCell);
  }
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const list = copy < 0 ? nullptr : fdopendir(copy);
  if (list == nullptr) {
    if (copy >= 0) close(copy);
    return names;
  }
  while (const dirent* const entry = readdir(list)) names.emplace_back(entry->d_name);
  closedir(list);
  return names;
}

/// True if the process of the file has ended. The caller holds the folder's lock, so no process is creating the file.
bool has_ended(int file) noexcept {
  return flock(file, LOCK_EX | LOCK_NB) == 0;
}

/// Moves the counts of a file to those of ended processes.
void move_to_ended(int folder, std::uint64_t host, const std::string& name, int file) {
  EndedFile ended = read_ended(folder, host);
  std::vector<Counts> devices(ended.devices.begin(), ended.devices.end());
  add_file(file, devices);
  std::ranges::copy(devices, ended.devices.begin());
  // In this order: if the process is killed in between, the counts are lost, but not counted twice.
  if (unlinkat(folder, name.c_str(), 0) == 0) (void)write_ended(folder, host, ended);
}

/// Moves the counts of all processes that have ended. Adds those of living processes of `host` to `living`.
/// Under the folder's lock.
void sweep(int folder, std::uint64_t host, std::vector<Counts>& living) {
  for (const std::string& name : names_in(folder)) {
    const auto named = host_of(name);
    if (!named || name.size() == kNameDigits) continue;
    const UniqueFd file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file) continue;
    if (has_ended(file.get())) {
      move_to_ended(folder, *named, name, file.get());
    } else if (*named == host) {
      add_file(file.get(), living);
    }
  }
}

/// Each network namespace is a host, and there may have been many. Removes the oldest files.
void remove_old_hosts(int folder) {
  constexpr std::size_t kMaxHosts = 64;
  std::vector<std::pair<std::int64_t, std::string>> hosts;
  for (const std::string& name : names_in(folder)) {
    struct stat found {};
    if (name.size() != kNameDigits || !host_of(name)) continue;
    if (fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) hosts.emplace_back(found.st_mtime, name);
  }
  if (hosts.size() <= kMaxHosts) return;
  std::ranges::sort(hosts);
  hosts.resize(hosts.size() - kMaxHosts);
  for (const auto& [time, name] : hosts) unlinkat(folder, name.c_str(), 0);
}

}  // namespace

TrafficFile* TrafficFile::of_process(std::uint64_t host) noexcept {
  static std::atomic<TrafficFile*> first{nullptr};
  const long process = getpid();
  const auto find = [&](TrafficFile* from) {
    while (from != nullptr && (from->host_ != host || from->owner_ != process)) from = from->of_parent_;
    return from;
  };
  TrafficFile* known = first.load(std::memory_order_acquire);
  if (TrafficFile* const found = find(known)) return found;
  try {
    // No lock: a child may not inherit one that another thread holds. Two threads may make a file each, and one is used.
    auto* const fresh = new TrafficFile(host);
    for (;;) {
      fresh->of_parent_ = known;
      if (first.compare_exchange_weak(known, fresh, std::memory_order_acq_rel)) return fresh;
      if (TrafficFile* const found = find(known)) {
        delete fresh;
        return found;
      }
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

TrafficFile::TrafficFile(std::uint64_t host) : host_(host), owner_(getpid()) {
  create_file();
  if (!grow_locked()) throw std::bad_alloc();
  if (file_) at_exit_ = std::make_unique<AtExit>([this] { leave(); });
}

void TrafficFile::create_file() {
  constexpr int kNames = 100;  // processes of other containers can have the same number
  if (!may_write(kFirstBytes)) return;
  const UniqueFd folder = open_folder(true);
  if (!folder) return;
  const UniqueFd lock = lock_folder(folder.get());
  if (!lock) return;
  std::vector<Counts> ignored(DeviceIdentity::kMaxDevices);
  sweep(folder.get(), host_, ignored);
  remove_old_hosts(folder.get());
  for (int i = 0; i < kNames && !file_; ++i) {
    name_ = host_name(host_) + "-" + std::to_string(owner_) + "-" + std::to_string(i);
    file_.reset(openat(folder.get(), name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  }
  struct stat found {};
  if (file_ && (flock(file_.get(), LOCK_EX | LOCK_NB) != 0 || fstat(file_.get(), &found) != 0)) file_.reset();
  file_system_ = found.st_dev;
  inode_ = found.st_ino;
}

bool TrafficFile::has_descriptor() const noexcept {
  struct stat found {};
  return file_ && fstat(file_.get(), &found) == 0 && found.st_dev == file_system_ && found.st_ino == inode_;
}

bool TrafficFile::grow_locked() {
  const bool is_first = header_ == nullptr;
  const std::size_t length = is_first ? kFirstBytes : kMoreBytes;
  std::byte* memory = nullptr;
  // The memory must exist: a store to a page of a full file system would kill the process.
  if (has_descriptor() && may_write(bytes_ + length) &&
      fallocate(file_.get(), 0, static_cast<off_t>(bytes_), static_cast<off_t>(length)) == 0) {
    Mapping mapping(file_.get(), bytes_, length, true);
    memory = mapping.data();
    if (memory != nullptr) {
      mappings_.push_back(std::move(mapping));
      bytes_ += length;
    }
  }
  is_shared_ = memory != nullptr;
  if (!is_shared_) {
    if (is_first) file_.reset();  // without a header, nothing in it can be read
    private_memory_.push_back(std::make_unique<std::byte[]>(length + alignof(TrafficCell)));
    const auto address = reinterpret_cast<std::uintptr_t>(private_memory_.back().get());
    memory = private_memory_.back().get() + (alignof(TrafficCell) - address % alignof(TrafficCell));
  }
  if (is_first) {
    header_ = memory;
    new (header_) FileHeader{kMagic, 0};
  }
  for (std::size_t at = length; at != (is_first ? kCellsAt : 0); at -= sizeof(TrafficCell)) {
    free_.push_back(reinterpret_cast<TrafficCell*>(memory + at - sizeof(TrafficCell)));
  }
  return true;
}

std::atomic<std::uint64_t>& TrafficFile::counter(unsigned device, Count kind) noexcept {
  auto* const counters = reinterpret_cast<std::atomic<std::uint64_t>*>(header_ + kCountersAt);
  return counters[device * kCountKinds + static_cast<std::size_t>(kind)];
}

TrafficCell* TrafficFile::take(std::uint32_t device, std::uint32_t target) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    const auto same = std::ranges::find_if(
        used_, [=](const TrafficCell* cell) { return cell->device == device && cell->target == target; });
    if (same != used_.end()) {
      TrafficCell* const cell = *same;
      *same = used_.back();
      used_.pop_back();
      return cell;
    }
    if (free_.empty() && !grow_locked()) return nullptr;
    TrafficCell* const cell = free_.back();
    free_.pop_back();
    cell->device = device;
    cell->target = target;
    if (is_shared_) reinterpret_cast<FileHeader*>(header_)->cells.fetch_add(1, std::memory_order_release);
    return cell;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void TrafficFile::release(TrafficCell* cell) noexcept {
  const std::scoped_lock lock(mutex_);
  try {
    used_.push_back(cell);
  } catch (const std::bad_alloc&) {
    // The cell keeps its counts, and no other queue pair uses it.
  }
}

void TrafficFile::leave() noexcept {
  try {
    const UniqueFd folder = open_folder(false);
    const UniqueFd lock = folder ? lock_folder(folder.get()) : UniqueFd();
    // If the lock is busy, the next process does it.
    if (lock && has_descriptor()) move_to_ended(folder.get(), host_, name_, file_.get());
  } catch (const std::bad_alloc&) {
    // The same.
  }
}

int read_traffic(std::uint64_t host, HostTraffic& traffic) {
  const UniqueFd folder = open_folder(false);
  if (!folder) return ENOENT;
  const UniqueFd lock = lock_folder(folder.get());
  if (!lock) return EBUSY;
  std::vector<Counts> devices(DeviceIdentity::kMaxDevices);
  sweep(folder.get(), host, devices);
  const EndedFile ended = read_ended(folder.get(), host);
  for (std::size_t device = 0; device < devices.size(); ++device) {
    for (std::size_t kind = 0; kind < kCountKinds; ++kind) devices[device][kind] += ended.devices[device][kind];
  }
  traffic = {ended.link_downed, std::move(devices)};
  return 0;
}

std::uint64_t read_link_downed(std::uint64_t host, const DeviceIdentity& device) noexcept {
  try {
    const UniqueFd folder = open_folder(false);
    if (!folder) return 0;
    EndedFile ended = read_ended(folder.get(), host);
    return link_downed_of(ended, device);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

void raise_link_downed(std::uint64_t host, const DeviceIdentity& device, std::uint64_t number) noexcept {
  try {
    const UniqueFd folder = open_folder(true);
    const UniqueFd lock = folder ? lock_folder(folder.get()) : UniqueFd();
    if (!lock) return;
    EndedFile ended = read_ended(folder.get(), host);
    std::uint64_t& known = link_downed_of(ended, device);
    if (known >= number) return;
    known = number;
    (void)write_ended(folder.get(), host, ended);
  } catch (const std::bad_alloc&) {
    // Without memory it is not counted.
  }
}

}  // namespace rdmacomm::softdev
