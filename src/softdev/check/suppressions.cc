#include "softdev/check/suppressions.h"

#include <fnmatch.h>

#include <algorithm>

#include "softdev/check/options.h"
#include "softdev/check/rules.h"

namespace rdmacomm::softdev::check {
namespace {

/// docs/check.md repeats this list.
constexpr std::string_view kBuiltIn = R"(
# These measure the device or try it out. They send from and receive into one buffer, because nobody reads the data.
receive-posted-twice    ib_*
overlap                 ib_*
receive-posted-twice    ibv_*_pingpong
overlap                 ibv_*_pingpong
receive-posted-twice    qperf
overlap                 qperf
receive-posted-twice    fi_pingpong
overlap                 fi_pingpong
receive-posted-twice    ucmatose
overlap                 ucmatose
receive-posted-twice    udaddy
overlap                 udaddy
receive-posted-twice    mckey
overlap                 mckey
receive-posted-twice    lat_bw_benchmark
overlap                 lat_bw_benchmark
overlap                 ucx_perftest
# The answer of the peer tells these that it has the message, so they change the buffer before they poll the completion.
send-buffer-changed     rping
send-buffer-changed     lat_bw_benchmark
# UD of UCX 1.13: the same, because the peer acknowledges each message.
send-buffer-changed     *                libuct_ib.so.*
# UCX 1.13: receives are longer than their part of the pool, and reach the record of the next part.
receive-buffer-changed  *                libuct_ib.so.*
# UCX 1.13 frees the memory of its pools before it destroys the queue pairs that receive into it.
memory-freed-in-flight  *                libuct_ib.so.*
# UCX keeps registrations of freed memory for the next allocation at the same address, and sees when it is unmapped.
registered-memory-freed *                libucs.so.*
# QEMU 7.2 reads a control message, and changes its byte order, after it has posted its buffer again.
receive-buffer-changed  qemu-system-*
# fio 3.33 frees its buffers first, then deregisters them.
registered-memory-freed fio
# librdmacm keeps the devices that it has opened.
context-leak            *                librdmacm.so.*
# These end without ending their objects.
context-leak            ib_*
leak                    ib_*
context-leak            qperf
leak                    qperf
leak                    rping
leak                    cmtime
leak                    rdma_xserver
leak                    rdma_xclient
leak                    fio
leak                    qemu-system-*
leak                    *                libiscsi.so.*
# These destroy objects in the wrong order, and ignore EBUSY.
destroy-refused         qperf
destroy-refused         cmtime
destroy-refused         fio
# qperf 0.4.11 polls up to 1024 completions for each event. If more wait, it sleeps with the others unpolled.
sleep-without-poll      qperf
# These destroy queue pairs while the last SENDs are in flight. The peer has answered them, or nobody needs them.
destroyed-in-use        qperf
destroyed-in-use        ibv_*_pingpong
# rsockets of librdmacm 44 free their memory before they destroy the queue pair.
deregistered-in-flight  *                rclose
memory-freed-in-flight  *                rclose
destroyed-in-use        *                rclose
)";

/// At most 80 characters of a line, for an error: it may have any bytes.
std::string printable(std::string line) {
  constexpr std::size_t kMost = 80;
  if (line.size() > kMost) line.resize(kMost);
  for (char& each : line) {
    if (each < ' ' || each > '~') each = '?';
  }
  return line;
}

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

std::vector<Suppression> parse_suppressions(std::string_view text, const std::string& file,
                                            std::vector<std::string>& errors) {
  std::vector<Suppression> all;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    std::replace(line.begin(), line.end(), '\t', ' ');
    std::replace(line.begin(), line.end(), '\r', ' ');
    const std::vector<std::string> words = split(line, ' ');
    if (words.empty()) continue;
    if (words.size() < 2 || words.size() > 3 || !is_rule(words[0])) {
      errors.push_back(file + ":" + std::to_string(number) + ": not \"RULE PROGRAM [PLACE]\": " + printable(line));
      continue;
    }
    all.push_back({words[0], words[1], words.size() == 3 ? words[2] : std::string()});
  }
  return all;
}

std::string_view built_in_suppressions() noexcept {
  return kBuiltIn;
}

bool is_suppressed(const std::vector<Suppression>& all, std::string_view rule, const std::string& program,
                   const std::vector<std::string>& places) {
  return std::any_of(all.begin(), all.end(), [&](const Suppression& each) {
    if (each.rule != rule || !matches(each.program, program)) return false;
    return each.place.empty() || std::any_of(places.begin(), places.end(),
                                             [&](const std::string& name) { return matches(each.place, name); });
  });
}

}  // namespace rdmacomm::softdev::check
