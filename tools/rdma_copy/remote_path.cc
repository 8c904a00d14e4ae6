#include "rdma_copy/remote_path.h"

#include <algorithm>

namespace rdmacomm::copying {

Result<std::optional<RemotePath>> parse_remote_path(std::string_view word) {
  std::size_t colon = word.find(':');
  if (word.starts_with('[')) colon = word.find(':', word.find(']'));
  if (colon == std::string_view::npos || word.find('/') < colon) return std::optional<RemotePath>();
  const std::string_view rest = word.substr(colon + 1);
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  // "HOST:2020" means a file of that name; "HOST:2020:" means a port.
  if (digits > 0 && digits < rest.size() && rest[digits] == ':') colon += 1 + digits;
  auto host = parse_host(word.substr(0, colon));
  if (!host) return host.error();
  return std::optional(RemotePath{.host = std::move(*host), .path = std::string(word.substr(colon + 1))});
}

}  // namespace rdmacomm::copying
