// The functions of the C library that are cancellation points, for calls from these libraries: in them, they are none.
//
// A program may cancel a thread (pthread_cancel) that is in a verb. In the system's verbs, only waiting for an event is a
// cancellation point, and programs rely on that. The code here could not be left elsewhere: the process would abort, or
// a lock would stay locked. So a thread that is cancelled in a verb ends at its next cancellation point after the verb.
// The linker directs the calls here (--wrap). ppoll() and readv() stay cancellation points: verbs that wait for events
// use them. Source of the list: pthreads(7).
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>

namespace {

/// While it lives, the calling thread is not cancelled.
class NoCancellation {
 public:
  NoCancellation() noexcept { (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;
  ~NoCancellation() {
    int own = 0;
    (void)pthread_setcancelstate(before_, &own);
  }

 private:
  int before_ = 0;
};

}  // namespace

// The linker's names: __wrap_f is called in the place of f, and __real_f is f.
// NOLINTBEGIN(bugprone-macro-parentheses): types and lists
#define RDMACOMM_UNCANCELLABLE(RESULT, FUNCTION, PARAMETERS, ARGUMENTS) \
  extern "C" RESULT __real_##FUNCTION PARAMETERS;                       \
  extern "C" RESULT __wrap_##FUNCTION PARAMETERS {                      \
    const NoCancellation guard;                                         \
    return __real_##FUNCTION ARGUMENTS;                                 \
  }
// NOLINTEND(bugprone-macro-parentheses)

RDMACOMM_UNCANCELLABLE(int, accept4, (int s, sockaddr* a, socklen_t* n, int flags), (s, a, n, flags))
RDMACOMM_UNCANCELLABLE(int, close, (int fd), (fd))
RDMACOMM_UNCANCELLABLE(int, connect, (int s, const sockaddr* a, socklen_t n), (s, a, n))
RDMACOMM_UNCANCELLABLE(int, epoll_wait, (int fd, epoll_event* events, int n, int ms), (fd, events, n, ms))
RDMACOMM_UNCANCELLABLE(int, eventfd_read, (int fd, eventfd_t* value), (fd, value))
RDMACOMM_UNCANCELLABLE(int, eventfd_write, (int fd, eventfd_t value), (fd, value))
RDMACOMM_UNCANCELLABLE(int, fallocate, (int fd, int mode, off_t offset, off_t n), (fd, mode, offset, n))
RDMACOMM_UNCANCELLABLE(int, getifaddrs, (ifaddrs * *list), (list))
RDMACOMM_UNCANCELLABLE(ssize_t, getrandom, (void* to, std::size_t n, unsigned flags), (to, n, flags))
RDMACOMM_UNCANCELLABLE(int, nanosleep, (const timespec* time, timespec* left), (time, left))
RDMACOMM_UNCANCELLABLE(int, poll, (pollfd * fds, nfds_t n, int ms), (fds, n, ms))
RDMACOMM_UNCANCELLABLE(ssize_t, pread, (int fd, void* to, std::size_t n, off_t at), (fd, to, n, at))
RDMACOMM_UNCANCELLABLE(ssize_t, pwrite, (int fd, const void* from, std::size_t n, off_t at), (fd, from, n, at))
RDMACOMM_UNCANCELLABLE(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t* m), (c, m))
RDMACOMM_UNCANCELLABLE(int, pthread_cond_clockwait,
                       (pthread_cond_t * c, pthread_mutex_t* m, clockid_t clock, const timespec* until),
                       (c, m, clock, until))
RDMACOMM_UNCANCELLABLE(int, pthread_join, (pthread_t thread, void** result), (thread, result))
RDMACOMM_UNCANCELLABLE(ssize_t, read, (int fd, void* to, std::size_t n), (fd, to, n))
RDMACOMM_UNCANCELLABLE(ssize_t, recv, (int s, void* to, std::size_t n, int flags), (s, to, n, flags))
RDMACOMM_UNCANCELLABLE(ssize_t, recvfrom, (int s, void* to, std::size_t n, int flags, sockaddr* a, socklen_t* length),
                       (s, to, n, flags, a, length))
RDMACOMM_UNCANCELLABLE(ssize_t, recvmsg, (int s, msghdr* message, int flags), (s, message, flags))
RDMACOMM_UNCANCELLABLE(ssize_t, send, (int s, const void* from, std::size_t n, int flags), (s, from, n, flags))
RDMACOMM_UNCANCELLABLE(ssize_t, sendmsg, (int s, const msghdr* message, int flags), (s, message, flags))
RDMACOMM_UNCANCELLABLE(ssize_t, write, (int fd, const void* from, std::size_t n), (fd, from, n))
// The same functions in code that was compiled with _FORTIFY_SOURCE.
RDMACOMM_UNCANCELLABLE(int, __poll_chk, (pollfd * fds, nfds_t n, int ms, std::size_t room), (fds, n, ms, room))
RDMACOMM_UNCANCELLABLE(ssize_t, __pread_chk, (int fd, void* to, std::size_t n, off_t at, std::size_t room),
                       (fd, to, n, at, room))
RDMACOMM_UNCANCELLABLE(ssize_t, __read_chk, (int fd, void* to, std::size_t n, std::size_t room), (fd, to, n, room))
RDMACOMM_UNCANCELLABLE(ssize_t, __recv_chk, (int s, void* to, std::size_t n, std::size_t room, int flags),
                       (s, to, n, room, flags))
RDMACOMM_UNCANCELLABLE(ssize_t, __recvfrom_chk,
                       (int s, void* to, std::size_t n, std::size_t room, int flags, sockaddr* a, socklen_t* length),
                       (s, to, n, room, flags, a, length))
#undef RDMACOMM_UNCANCELLABLE

// The mode is there if a flag wants it; else these read an argument that nobody uses.
extern "C" int __real_open(const char* path, int flags, ...);
extern "C" int __wrap_open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  const NoCancellation guard;
  return __real_open(path, flags, mode);
}
extern "C" int __real_openat(int folder, const char* path, int flags, ...);
extern "C" int __wrap_openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  const NoCancellation guard;
  return __real_openat(folder, path, flags, mode);
}
