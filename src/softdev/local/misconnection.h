// misconnection.h - tells why a queue pair does not accept the requests of another one.
#pragma once

#include <cstdint>
#include <string>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// The reason, as the end of a sentence: "it expects ...". Empty: none is known.
/// target  its QpShared::link has not the value that the requests need
/// own     the terms of the requests
[[nodiscard]] std::string why_refused(const QpShared& target, const LinkTerms& own);

}  // namespace rdmacomm::softdev
