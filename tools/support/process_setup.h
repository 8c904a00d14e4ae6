// process_setup.h - what a program sets right before it opens or starts anything, whatever it was started with.
#pragma once

namespace rdmacomm::programs {

/// Descriptors 0 to 2 that are closed get one that cannot be used, so that no file or connection becomes a standard
/// stream: log lines would be written to it. Reading and writing them goes on failing, with EBADF. SIGXFSZ is ignored:
/// writing beyond the largest size of a file (ulimit -f) fails, with EFBIG, and ends nothing else. SIGCHLD has its
/// default: where it is ignored, the system forgets how child processes ended. Call it first in main(), while there is
/// one thread.
void set_up_process();

}  // namespace rdmacomm::programs
