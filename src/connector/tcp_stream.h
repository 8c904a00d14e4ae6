// tcp_stream.h - a connected TCP socket as a ByteStream. Private to the connector layer.
#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "connector/byte_stream.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class TcpStream final : public ByteStream {
 public:
  /// Takes over a connected socket and sets it up as `options` say.
  [[nodiscard]] static Result<std::unique_ptr<ByteStream>> adopt(UniqueFd socket, const TcpOptions& options);

  [[nodiscard]] Transfer receive(std::span<std::byte> room) override;
  [[nodiscard]] Transfer send(std::span<const std::byte> bytes) override;
  void await_input(Deadline deadline) override;
  [[nodiscard]] bool await_room(Deadline deadline) override;
  [[nodiscard]] bool ended() override;
  void end_sending() noexcept override;
  void shut_down(LastBytes last) noexcept override;

  [[nodiscard]] WatchedFd watched() const noexcept override;
  [[nodiscard]] const std::string& local_address() const noexcept override { return local_address_; }
  [[nodiscard]] const std::string& peer_address() const noexcept override { return peer_address_; }
  [[nodiscard]] const Gid& local_gid() const noexcept override { return local_gid_; }

 private:
  explicit TcpStream(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  std::string peer_address_;
  std::string local_address_;
  Gid local_gid_{};
};

}  // namespace rdmacomm
