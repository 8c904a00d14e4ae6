#include "softdev/check/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "softdev/check/fault_handler.h"
#include "softdev/check/inside.h"
#include "softdev/check/locked.h"
#include "softdev/check/requests.h"

namespace rdmacomm::softdev::check {
namespace {

std::uint64_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

struct Protected {
  std::uint64_t end;
  Touch forbidden;
  std::uint64_t owner;
};

struct Pages {
  /// By the first byte. Pages of several buffers have several entries.
  std::multimap<std::uint64_t, Protected> all;
  std::uint64_t longest = 0;        ///< no entry has more bytes
  std::set<std::uint64_t> touched;  ///< pages that were opened because the program has accessed them
};

Pages& pages() {
  static auto& one = *new Pages;  // never destroyed: programs use verbs until they end
  return one;
}

/// Errors are ignored: the program may have unmapped the pages, or the kernel allows no more mappings.
void set_protection(std::uint64_t begin, std::uint64_t end, int protection) noexcept {
  const int error = errno;
  mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
  errno = error;
}

void open(std::uint64_t begin, std::uint64_t end) noexcept {
  set_protection(begin, end, PROT_READ | PROT_WRITE);
}

/// The whole pages inside a buffer; begin >= end: none.
std::pair<std::uint64_t, std::uint64_t> whole_pages(std::uint64_t address, std::uint64_t length) noexcept {
  const std::uint64_t page = page_bytes();
  return {(address + page - 1) / page * page, (address + length) / page * page};
}

/// The first entry that may reach a byte.
auto first_at(std::uint64_t address) {
  return pages().all.lower_bound(address > pages().longest ? address - pages().longest : 0);
}

/// Sets the pages of a range to the strictest protection that an entry asks for.
void protect(std::uint64_t begin, std::uint64_t end) {
  for (const auto& [forbidden, protection] : {std::pair(Touch::kWrite, PROT_READ), std::pair(Touch::kAny, PROT_NONE)}) {
    for (auto at = first_at(begin); at != pages().all.end() && at->first < end; ++at) {
      if (at->second.forbidden == forbidden && at->second.end > begin)
        set_protection(std::max(at->first, begin), std::min(at->second.end, end), protection);
    }
  }
}

/// Opens the pages of all buffers that have this byte, until the buffers end. Returns the request of one of them; 0: the
/// byte is in no protected page.
std::uint64_t open_at(std::uint64_t address) {
  std::uint64_t owner = 0;
  std::uint64_t begin = address;
  std::uint64_t end = address;
  for (auto at = first_at(address); at != pages().all.end() && at->first <= address;) {
    if (address >= at->second.end) {
      ++at;
      continue;
    }
    owner = at->second.owner;
    begin = std::min(begin, at->first);
    end = std::max(end, at->second.end);
    at = pages().all.erase(at);
  }
  if (owner == 0) return 0;
  open(begin, end);
  protect(begin, end);
  pages().touched.insert(address / page_bytes());
  return owner;
}

/// Two threads may touch a page at the same time. The second one finds the page open.
bool is_opened_meanwhile(std::uint64_t address) {
  [[gnu::tls_model("initial-exec")]] static thread_local std::uint64_t last = 0;
  const std::uint64_t page = address / page_bytes();
  const bool is_first_try = last != page;
  last = is_first_try ? page : 0;
  return is_first_try && pages().touched.contains(page);
}

bool handle_fault(std::uint64_t address) {
  if (Inside::is_inside()) return open_at(address) != 0;  // this thread may hold the lock
  std::uint64_t owner = 0;
  {
    const Locked locked;
    owner = open_at(address);
    if (owner == 0) return is_opened_meanwhile(address);
  }
  const StackId where = capture_stack();
  const Locked locked;
  const Request* const request = requests().find(owner);
  if (request == nullptr) return true;
  Report touched{Rule::kBufferTouched, "the program accessed a buffer of a request in flight", {}};
  touched.line("accessed", "the byte at " + hexadecimal(address) + ", by", where);
  report(tell_request(touched, *request));
  return true;
}

}  // namespace

void protect_pages(std::uint64_t address, std::uint64_t length, Touch forbidden, std::uint64_t owner) {
  const auto [begin, end] = whole_pages(address, length);
  if (begin >= end) return;
  install_fault_handler(handle_fault);
  pages().longest = std::max(pages().longest, end - begin);
  pages().all.emplace(begin, Protected{end, forbidden, owner});
  protect(begin, end);
}

void unprotect_pages(std::uint64_t address, std::uint64_t length, std::uint64_t owner) {
  const auto [begin, end] = whole_pages(address, length);
  auto [at, last] = pages().all.equal_range(begin);
  for (; at != last; ++at) {
    if (at->second.owner != owner || at->second.end != end) continue;
    pages().all.erase(at);
    open(begin, end);
    protect(begin, end);
    return;
  }
}

void open_for_checker(std::uint64_t address, std::uint64_t length) {
  for (auto at = first_at(address); at != pages().all.end() && at->first < address + length; ++at) {
    if (at->second.end > address) open(at->first, at->second.end);
  }
}

void close_again(std::uint64_t address, std::uint64_t length) {
  for (auto at = first_at(address); at != pages().all.end() && at->first < address + length; ++at) {
    if (at->second.end > address) protect(at->first, at->second.end);
  }
}

void open_all_pages() {
  for (const auto& [begin, each] : pages().all) open(begin, each.end);
  pages().all.clear();
}

}  // namespace rdmacomm::softdev::check
