#include "verbs/handles.h"

#include "base/logging.h"
#include "verbs/call.h"

namespace rdmacomm::verbs {

template <typename T, int (*Api::*Release)(T*)>
void Handle<T, Release>::reset() noexcept {
  T* raw = std::exchange(raw_, nullptr);
  if (raw == nullptr) return;
  const Status released = from_value((api_->*Release)(raw), "release a verbs object of this device");
  if (!released.ok()) RDMACOMM_LOG(ERROR) << released.message();
}

template class Handle<ibv_context, &Api::close_device>;
template class Handle<ibv_pd, &Api::dealloc_pd>;
template class Handle<ibv_mr, &Api::dereg_mr>;
template class Handle<ibv_comp_channel, &Api::destroy_comp_channel>;
template class Handle<ibv_cq, &Api::destroy_cq>;
template class Handle<ibv_qp, &Api::destroy_qp>;
template class Handle<ibv_srq, &Api::destroy_srq>;

DeviceList::DeviceList(const Api& api) : api_(api), list_(api.get_device_list(&count_)) {
  if (list_ == nullptr) count_ = 0;
}

DeviceList::~DeviceList() {
  if (list_ != nullptr) api_.free_device_list(list_);
}

}  // namespace rdmacomm::verbs
