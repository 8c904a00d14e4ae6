#include "rdmacomm/version.h"

#define RDMACOMM_TEXT_OF(number) #number
#define RDMACOMM_DOTTED(major, minor, patch) \
  RDMACOMM_TEXT_OF(major) "." RDMACOMM_TEXT_OF(minor) "." RDMACOMM_TEXT_OF(patch)

namespace rdmacomm {

const char* version() noexcept {
  return RDMACOMM_DOTTED(RDMACOMM_VERSION_MAJOR, RDMACOMM_VERSION_MINOR, RDMACOMM_VERSION_PATCH);
}

}  // namespace rdmacomm
