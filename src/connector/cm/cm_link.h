// cm_link.h - one queue pair's connection by rdma_cm: the client's half, and the server's half. Private to the
// connector layer.
#pragma once

#include <memory>

#include "connector/cm/cm_id.h"
#include "connector/cm/cm_requests.h"
#include "rdmacomm/qp_address.h"
#include "verbs/queue_pair_link.h"

namespace rdmacomm {

/// The data of its connector that a link needs. A value.
struct CmLinkContext {
  SocketAddress local = {};
  SocketAddress peer = {};
  CmWait wait;  ///< for all steps together
};

/// Common to both halves: the rdma_cm_id of the connection, and the queue pair's number.
class CmLink : public verbs::QueuePairLink {
 public:
  [[nodiscard]] bool device_moves_queue_pair() const noexcept final { return id_ != nullptr && id_->is_iwarp(); }
  [[nodiscard]] Status attributes(ibv_qp_state to, ibv_qp_attr& attributes) final;

 protected:
  CmLink(std::uint32_t qpn, const CmLinkContext& context)
      : qpn_(qpn), context_(context), peer_(context.peer.to_text()) {}
  [[nodiscard]] rdma_conn_param parameters(std::span<const std::byte> private_data) const;
  [[nodiscard]] Error failed(const CmEvent& event) const;

  const std::uint32_t qpn_;
  const CmLinkContext context_;
  const std::string peer_;
  verbs::LinkOptions options_;
  std::unique_ptr<CmId> id_;
};

/// The client's half.
class ActiveCmLink final : public CmLink {
 public:
  ActiveCmLink(std::uint32_t qpn, const CmLinkContext& context, std::uint64_t token)
      : CmLink(qpn, context), token_(token) {}
  [[nodiscard]] Status begin(const verbs::LinkOptions& options) override;
  [[nodiscard]] Status finish() override;

 private:
  const std::uint64_t token_;
};

/// The server's half.
class PassiveCmLink final : public CmLink {
 public:
  /// remote_qpn: the queue pair that will send the request.
  PassiveCmLink(std::uint32_t qpn, const CmLinkContext& context, std::uint32_t remote_qpn,
                std::shared_ptr<CmRequests> requests)
      : CmLink(qpn, context), remote_qpn_(remote_qpn), requests_(std::move(requests)) {}
  [[nodiscard]] Status begin(const verbs::LinkOptions& options) override;
  [[nodiscard]] Status finish() override;

 private:
  const std::uint32_t remote_qpn_;
  const std::shared_ptr<CmRequests> requests_;
};

}  // namespace rdmacomm
