// Sends bytes to a server, which sends them back. By ordinary sockets, so that other libraries can take their place.
//
//   echo_by_sockets ADDRESS PORT [BYTES]     with BYTES: the client
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int fail(const char* what) {
  std::perror(what);
  return 1;
}

bool send_all(int socket, const unsigned char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = send(socket, bytes, count, 0);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

int serve(int listener, const sockaddr_in& address) {
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return fail("bind");
  if (listen(listener, 1) != 0) return fail("listen");
  const int connection = accept(listener, nullptr, nullptr);
  if (connection < 0) return fail("accept");
  std::vector<unsigned char> part(65536);
  ssize_t got = 0;
  while ((got = recv(connection, part.data(), part.size(), 0)) > 0) {
    if (!send_all(connection, part.data(), static_cast<std::size_t>(got))) return fail("send");
  }
  close(connection);
  return 0;
}

int ask(int connection, const sockaddr_in& address, std::size_t count) {
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return fail("connect");
  constexpr std::size_t kPart = 40'000;
  std::vector<unsigned char> part(kPart);
  std::vector<unsigned char> came_back(kPart);
  for (std::size_t done = 0; done < count;) {
    const std::size_t length = std::min(kPart, count - done);
    for (std::size_t i = 0; i < length; ++i) part[i] = static_cast<unsigned char>((done + i) % 251);
    if (!send_all(connection, part.data(), length)) return fail("send");
    for (std::size_t at = 0; at < length;) {
      const ssize_t got = recv(connection, came_back.data() + at, length - at, 0);
      if (got <= 0) return fail("recv");
      at += static_cast<std::size_t>(got);
    }
    if (!std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(length), came_back.begin()))
      return fail("the bytes that came back are not the same");
    done += length;
  }
  shutdown(connection, SHUT_RDWR);
  std::printf("%zu bytes came back\n", count);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  if (argc < 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[2])));
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  if (made < 0) return fail("socket");
  const int status = argc > 3 ? ask(made, address, std::strtoul(argv[3], nullptr, 10)) : serve(made, address);
  close(made);
  return status;
}
