// Serves /dev/infiniband/rdma_cm, which librdmacm opens, to the program.
#include <pthread.h>

#include <cstddef>
#include <vector>

#include "softdev/cm/user_cm.h"
#include "softdev/preload/files/device_node.h"
#include "softdev/preload/wanted_devices.h"

namespace rdmacomm::softdev::preload {
namespace {

class RdmaCmNode final : public DeviceNode {
 public:
  int open(int flags) noexcept override { return cm_.open(flags); }
  ssize_t write(int fd, const void* bytes, std::size_t length) override { return cm_.write(fd, bytes, length); }
  void closed(int fd) noexcept override { cm_.closed(fd); }

  void before_fork() noexcept { cm_.before_fork(); }
  void after_fork(bool is_child) noexcept { cm_.after_fork(is_child); }

 private:
  UserCm cm_{std::vector(wanted_devices().begin(), wanted_devices().end())};
};

/// Never destroyed, since threads of the program may use it until the process ends.
RdmaCmNode& node() {
  static auto* const only = new RdmaCmNode;
  return *only;
}

[[gnu::constructor]] void serve() {
  serve_device_node(kConnectionManagerNode, node());
  (void)pthread_atfork([] { node().before_fork(); }, [] { node().after_fork(false); }, [] { node().after_fork(true); });
}

}  // namespace
}  // namespace rdmacomm::softdev::preload
