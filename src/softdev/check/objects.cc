#include "softdev/check/objects.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <utility>

namespace rdmacomm::softdev::check {
namespace {

const char* name_of_type(ibv_qp_type type) noexcept {
  switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    case IBV_QPT_XRC_SEND: return "XRC initiator";
    case IBV_QPT_XRC_RECV: return "XRC target";
    default: return "other";
  }
}

constexpr std::size_t kMostRemembered = 4096;

std::atomic<std::uint64_t> record_count{0};

}  // namespace

std::uint64_t recorded() noexcept {
  return record_count.load(std::memory_order_relaxed);
}

std::uint64_t count_record() noexcept {
  return record_count.fetch_add(1, std::memory_order_relaxed) + 1;
}

const char* name_of(ObjectKind kind) noexcept {
  switch (kind) {
    case ObjectKind::kContext: return "context";
    case ObjectKind::kPd: return "protection domain";
    case ObjectKind::kMr: return "registration";
    case ObjectKind::kMw: return "memory window";
    case ObjectKind::kDm: return "device memory";
    case ObjectKind::kXrcd: return "XRC domain";
    case ObjectKind::kTd: return "thread domain";
    case ObjectKind::kChannel: return "completion channel";
    case ObjectKind::kCq: return "completion queue";
    case ObjectKind::kSrq: return "shared receive queue";
    case ObjectKind::kQp: return "queue pair";
    case ObjectKind::kAh: return "address handle";
  }
  return "object";
}

std::string hexadecimal(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

std::string Object::describe() const {
  return std::string(name_of(kind)) + " at " + hexadecimal(reinterpret_cast<std::uint64_t>(address));
}

std::string Context::describe() const {
  return std::string("context of ") + context->device->name;
}

std::string Mr::describe() const {
  return "registration of " + std::to_string(length) + " bytes at " + hexadecimal(begin) + ", lkey " +
         hexadecimal(lkey) + ", rkey " + hexadecimal(rkey);
}

std::string Cq::describe() const {
  return "completion queue with " + std::to_string(verbs->cqe) + " entries";
}

std::string Qp::describe() const {
  return "queue pair " + hexadecimal(verbs->qp_num) + " (" + name_of_type(type) + ")";
}

void Objects::insert(std::shared_ptr<Object> object) {
  if (auto mr = std::dynamic_pointer_cast<Mr>(object); mr != nullptr) {
    by_lkey_[{mr->context, mr->lkey}] = mr;
    by_rkey_[mr->rkey] = mr;
  }
  if (object->kind == ObjectKind::kChannel) ++channels_;
  std::shared_ptr<Object>& place = all_[object->address];
  if (place != nullptr && place->kind == ObjectKind::kChannel) --channels_;
  place = std::move(object);
}

Object* Objects::find(const void* address) const {
  const auto found = all_.find(address);
  return found == all_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Object> Objects::take(const void* address) {
  auto node = all_.extract(address);
  if (node.empty()) return nullptr;
  if (node.mapped()->kind == ObjectKind::kChannel) --channels_;
  return std::move(node.mapped());
}

ibv_comp_channel* Objects::channel_of(int fd) const {
  for (const auto& [address, object] : all_) {
    if (object->kind != ObjectKind::kChannel) continue;
    ibv_comp_channel* const channel = static_cast<const Channel&>(*object).verbs;
    if (channel->fd == fd) return channel;
  }
  return nullptr;
}

std::shared_ptr<Mr> Objects::by_lkey(const ibv_context* context, std::uint32_t lkey) const {
  const auto found = by_lkey_.find({context, lkey});
  return found == by_lkey_.end() ? nullptr : found->second;
}

std::shared_ptr<Mr> Objects::by_rkey(std::uint32_t rkey) const {
  const auto found = by_rkey_.find(rkey);
  return found == by_rkey_.end() ? nullptr : found->second;
}

const Object* Objects::user_of(const void* address) const {
  for (const auto& [other, object] : all_) {
    if (std::find(object->uses.begin(), object->uses.end(), address) != object->uses.end()) return object.get();
  }
  return nullptr;
}

void Objects::remember(const Mr& mr) {
  const std::shared_ptr<Mr> same = by_lkey(mr.context, mr.lkey);
  if (same.get() != &mr) return;  // its key belongs to a newer one already
  deregistered_.push_back(same);
  if (deregistered_.size() <= kMostRemembered) return;
  const std::shared_ptr<Mr> oldest = std::move(deregistered_.front());
  deregistered_.pop_front();
  if (by_lkey(oldest->context, oldest->lkey) == oldest) by_lkey_.erase({oldest->context, oldest->lkey});
  if (by_rkey(oldest->rkey) == oldest) by_rkey_.erase(oldest->rkey);
}

void Objects::rekey(Mr& mr, std::uint32_t lkey, std::uint32_t rkey) {
  const std::shared_ptr<Mr> same = by_lkey(mr.context, mr.lkey);
  if (same.get() != &mr) return;
  by_lkey_.erase({mr.context, mr.lkey});
  by_rkey_.erase(mr.rkey);
  mr.lkey = lkey;
  mr.rkey = rkey;
  by_lkey_[{mr.context, lkey}] = same;
  by_rkey_[rkey] = same;
}

Objects& objects() {
  static auto& all = *new Objects;
  return all;
}

}  // namespace rdmacomm::softdev::check
