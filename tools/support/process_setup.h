// process_setup.h - settings of a process, made before it opens or starts anything.
#pragma once

namespace rdmacomm::programs {

/// Opens each of the descriptors 0 to 2 that is closed, in a mode that its stream cannot use. Otherwise the next file
/// or connection would become a standard stream, and log lines would be written to it. Reading and writing the stream
/// still fails with EBADF. Ignores SIGXFSZ: a write beyond the size limit of files (ulimit -f) then fails with EFBIG,
/// and does not end the process. Sets SIGCHLD to its default: if it is ignored, the system does not keep the status of
/// child processes. Call it first in main(), while only one thread exists.
void set_up_process();

}  // namespace rdmacomm::programs
