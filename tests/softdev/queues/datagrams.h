// datagrams.h - address handles and datagrams, by bare verbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {

inline const QpSettings kUd{.type = IBV_QPT_UD};

inline ibv_gid gid_at(const Node& node, std::uint32_t index) {
  ibv_gid_entry entry{};
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, index, &entry), 0);
  return entry.gid;
}

/// An address handle from one GID of this host to another.
class Address {
 public:
  Address(const Node& node, const ibv_gid& to, std::uint8_t from_index) {
    ibv_ah_attr attributes{};
    attributes.port_num = 1;
    attributes.is_global = 1;
    attributes.grh = {to, 0x12345, from_index, 7, 9};
    handle_ = create_ah(node.pd.get(), &attributes);
    EXPECT_NE(handle_, nullptr);
  }
  explicit Address(const Node& node) : Address(node, gid_at(node, 1), 1) {}
  Address(const Address&) = delete;
  ~Address() { destroy_ah(handle_); }
  [[nodiscard]] ibv_ah* get() const { return handle_; }

 private:
  ibv_ah* handle_;
};

inline ibv_send_wr datagram(std::uint64_t id, const Address& to, std::uint32_t qpn, std::uint32_t qkey = kUd.qkey) {
  ibv_send_wr wr = send_request(id);
  wr.wr.ud = {to.get(), qpn, qkey};
  return wr;
}

}  // namespace rdmacomm::softdev::test
