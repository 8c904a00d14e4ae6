#!/usr/bin/env python3
"""Whether soft0's library for LD_PRELOAD knows every function that libibverbs exports. A function that it does not know
would get objects of soft0, and would crash. Checks the installed libibverbs, and those of RDMACOMM_RDMA_CORE.

usage: known_functions_test.py

RDMACOMM_BIN names the folder of the library. RDMACOMM_RDMA_CORE: see releases_test.py.
"""

import fnmatch
import os
import re
import subprocess
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FRONT = os.path.join(os.environ.get("RDMACOMM_BIN", ""), "librdmacomm_softdev_preload.so")
# As in pthreads(7), and the functions of glibc that call one of these.
CANCELLATION_POINTS = set("""
accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat epoll_pwait epoll_wait eventfd_read
eventfd_write fallocate fdatasync fsync getaddrinfo getifaddrs getrandom lockf msgrcv msgsnd msync nanosleep open open64
openat openat64 pause poll posix_fallocate ppoll pread pread64 preadv pselect pthread_cond_clockwait
pthread_cond_timedwait pthread_cond_wait pthread_join pthread_timedjoin_np pwrite pwrite64 pwritev read readv recv
recvfrom recvmmsg recvmsg select sem_clockwait sem_timedwait sem_wait send sendmmsg sendmsg sendto sigpause sigsuspend
sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range system tcdrain usleep wait wait3 wait4 waitid waitpid write
writev
""".split())


def functions(library):
    """The names of the functions that a library exports, without versions."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = (line.split()[1:] for line in listing.splitlines())
    return {name.partition("@")[0] for kind, name in symbols if kind in "TWi"}


def known_patterns():
    with open(os.path.join(HERE, "known_functions.txt"), encoding="ascii") as file:
        lines = (line.strip() for line in file)
        return [line for line in lines if line and not line.startswith("#")]


def installed():
    """The libibverbs that the dynamic linker loads."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    return [line.split(" => ")[1] for line in listing.splitlines() if line.split()[0] == "libibverbs.so.1"][:1]


def libraries():
    trees = filter(None, os.environ.get("RDMACOMM_RDMA_CORE", "").split(":"))
    return installed() + [os.path.join(tree, "lib", "libibverbs.so.1") for tree in trees]


class KnownFunctionsTest(unittest.TestCase):
    def test_every_function_is_known(self):
        front, patterns = functions(FRONT), known_patterns()
        self.assertTrue(libraries())
        for library in libraries():
            with self.subTest(library):
                exported = functions(library)
                self.assertIn("ibv_open_device", exported)
                unknown = [name for name in sorted(exported - front)
                           if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
                self.assertEqual(unknown, [], "neither in src/softdev/preload nor in known_functions.txt")

    def test_no_call_is_a_cancellation_point(self):
        """Apart from two functions, see uncancellable.cc."""
        with open(os.path.join(HERE, "..", "..", "src", "softdev", "preload", "uncancellable.cc"), encoding="ascii") as file:
            handled = set(re.findall(r"RDMACOMM_UNCANCELLABLE\(\w+, (\w+),|__wrap_(open\w*)\(", file.read()))
        handled = {name or other for name, other in handled}
        self.assertIn("poll", handled)
        for library in (FRONT, os.path.join(os.path.dirname(FRONT), "librdmacomm_own_memory.so")):
            listing = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True,
                                     text=True).stdout
            calls = {re.sub(r"^__(\w+)_chk$", r"\1", line.split()[1].partition("@")[0]) for line in listing.splitlines()}
            self.assertEqual(calls & CANCELLATION_POINTS - handled - {"ppoll", "readv"}, set(), library)

    def test_no_function_is_both_served_and_listed(self):
        front = functions(FRONT)
        both = [pattern for pattern in known_patterns() if fnmatch.filter(front, pattern)]
        self.assertEqual(both, [])


if __name__ == "__main__":
    unittest.main()
