// private_folder.h - a folder that only this user can change, in a folder that all users share (/dev/shm, /tmp).
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// Opens the folder `path` of this user, after a check that no other user except root can change or replace it.
/// makes  creates the folder if it does not exist. Its parent must exist.
/// Returns  its descriptor, or an invalid one and errno. EACCES: another user could change or replace it.
/// Threads: any.
[[nodiscard]] UniqueFd open_private_folder(const std::string& path, bool makes);

}  // namespace rdmacomm::softdev
