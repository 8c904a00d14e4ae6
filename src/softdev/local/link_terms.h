// link_terms.h - tells if two queue pairs are connected to each other: the value that both compute.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "softdev/common/fnv1a.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// True if both ends count packets (PSN), so that they must begin together. An unreliable queue pair takes any PSN for
/// the first packet of a message.
[[nodiscard]] constexpr bool has_psn(Service service) noexcept {
  return is_reliable(service);
}

/// Identifies the path of `terms`. Both ends compute the same number for packets in one direction.
[[nodiscard]] inline std::uint64_t path_word(const LinkTerms& terms) noexcept {
  Fnv1a hash;
  hash.add(&terms, offsetof(LinkTerms, psn));
  return hash.value();
}

/// The value of QpShared::link while target `qpn` accepts requests from initiator `peer_qpn` (0: from any initiator,
/// one at a time). One load and compare shows the initiator that the target is of the same kind, is in RTR or RTS, and
/// expects requests of this initiator only, with these terms.
/// life  QpShared::life of the target, if has_psn(): after a RESET, its PSN is not the next one of the initiator
[[nodiscard]] inline std::uint64_t link_word(std::uint32_t qpn, std::uint32_t peer_qpn, Service service,
                                             const LinkTerms& terms = {}, std::uint32_t life = 0) noexcept {
  Fnv1a hash;
  hash.add(std::uint64_t{qpn} << 32 | peer_qpn);
  hash.add(static_cast<std::uint64_t>(service));
  hash.add(path_word(terms));
  hash.add(std::uint64_t{terms.psn} << 32 | life);
  return hash.value() | 1;
}
/// The same for an initiator on another host. The number of such an initiator may equal that of a local queue pair, so
/// the word differs. Its path is compared when it connects, see TcpGreeting::path.
[[nodiscard]] inline std::uint64_t link_word_by_tcp(std::uint32_t qpn, std::uint32_t peer_qpn, Service service,
                                                    std::uint32_t psn) noexcept {
  LinkTerms terms;
  terms.psn = psn;
  return link_word(qpn, peer_qpn | 1U << 31, service, terms);
}
/// No queue pair has this link word.
inline constexpr std::uint64_t kNoLink = 2;

using LinkTermsWords = std::array<std::uint64_t, sizeof(LinkTerms) / sizeof(std::uint64_t)>;
/// Each word is written and read at once. A reader that is not in time sees words of two lives.
inline void publish_terms(QpShared& shared, const LinkTerms& terms) noexcept {
  const auto words = std::bit_cast<LinkTermsWords>(terms);
  for (std::size_t i = 0; i < words.size(); ++i) shared.terms[i].store(words[i], std::memory_order_relaxed);
}
[[nodiscard]] inline LinkTerms published_terms(const QpShared& shared) noexcept {
  LinkTermsWords words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = shared.terms[i].load(std::memory_order_relaxed);
  return std::bit_cast<LinkTerms>(words);
}

}  // namespace rdmacomm::softdev
