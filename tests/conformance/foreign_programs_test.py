#!/usr/bin/env python3
"""Programs of other projects, as Debian packages them, on soft0: rdma-core's and perftest.

usage: foreign_programs_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. With RDMACOMM_CONFORMANCE=full perftest runs with all options, else each
program runs with few options.
"""

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from held_ports import hold_ports  # noqa: E402
from listening import listens  # noqa: E402

BIN = os.environ.get("RDMACOMM_BIN", "")
RUN = os.path.join(BIN, "softdev-run")
FULL = os.environ.get("RDMACOMM_CONFORMANCE") == "full"
SECONDS = 120


class ForeignProgramTest(unittest.TestCase):
    maxDiff = None
    tree = None  # a folder with bin/ and lib/ of a built rdma-core, used instead of the installed one

    def start(self, *arguments, run_options=()):
        environment = dict(os.environ)
        if self.tree is not None:
            environment["LD_LIBRARY_PATH"] = os.path.join(self.tree, "lib")
            built = os.path.join(self.tree, "bin", arguments[0]) if arguments else ""
            if os.path.isfile(built):
                arguments = (built, *arguments[1:])
        process = subprocess.Popen([RUN, *run_options, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Ends the process and its children at the end of a test, whether or not the test has failed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def output(self, process):
        """Runs a program that must succeed. Returns its output."""
        out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, " ".join(process.args) + "\n" + out)
        return out

    def run_alone(self, *arguments, run_options=()):
        return self.output(self.start(*arguments, run_options=run_options))

    def run_pair(self, *arguments, run_options=()):
        """Starts a server and, once it listens, a client; both must succeed. Returns the client's output."""
        (port,) = hold_ports(self)
        server = self.start(*arguments, "-p", str(port), run_options=run_options)
        self.wait_until_listening(server, port)
        client = self.start(*arguments, "-p", str(port), "localhost", run_options=run_options)
        out = self.output(client)
        self.output(server)
        return out

    def wait_until_listening(self, server, port):
        while server.poll() is None:
            if listens(port, server.pid):
                return
        self.fail(" ".join(server.args) + " ended before it listened\n" + server.stdout.read())


class Devices(ForeignProgramTest):
    def test_ibv_devices(self):
        self.assertRegex(self.run_alone("ibv_devices"), r"(?m)^ +soft0 +\t[0-9a-f]{16}$")

    def test_names(self):
        out = self.run_alone("ibv_devices", run_options=("--names", "soft0,mlx5_0"))
        guids = re.findall(r"(?m)^ +(?:soft0|mlx5_0) +\t([0-9a-f]{16})$", out)
        self.assertEqual(len(set(guids)), 2, out)

    def test_ibv_devinfo(self):
        out = self.run_alone("ibv_devinfo", "-v", "-d", "soft0")
        for line in (r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet", r"atomic_cap:\s+ATOMIC_GLOB"):
            self.assertRegex(out, line)
        # The same order as with mlx5.
        self.assertRegex(out, r"GID\[  0\]:\s+fe80:\S+, RoCE v1")
        self.assertRegex(out, r"GID\[  1\]:\s+fe80:\S+, RoCE v2")
        self.assertRegex(out, r"GID\[  3\]:\s+::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2")

    def test_infiniband(self):
        out = self.run_alone("ibv_devinfo", "-d", "soft1", run_options=("--devices=2", "--link-layer=ib"))
        self.assertRegex(out, r"link_layer:\s+InfiniBand")
        self.assertRegex(out, r"port_lid:\s+2")


    def test_ports(self):
        """Both ends of a connection may use any of them."""
        out = self.run_alone("ibv_devinfo", "-v", run_options=("--ports=2",))
        self.assertEqual(re.findall(r"port:\t(\d)|phys_port_cnt:\t+(\d)", out), [("", "2"), ("1", ""), ("2", "")])
        alone = self.start("ibv_devinfo", "-i", "3", run_options=("--ports=2",))
        alone.communicate(timeout=SECONDS)
        self.assertNotEqual(alone.returncode, 0)
        for options in (("--ports=2", "--link-layer=ib"), ("--ports=2",)):
            with self.subTest(options):
                gid = () if "--link-layer=ib" in options else ("-g", "1")
                (port,) = hold_ports(self)
                server = self.start("ibv_rc_pingpong", "-i", "2", "-p", str(port), *gid, run_options=options)
                self.wait_until_listening(server, port)
                client = self.start("ibv_rc_pingpong", "-i", "1", "-p", str(port), *gid, "localhost", run_options=options)
                lids = re.findall(r"LID (\w+)", self.output(client))
                self.output(server)
                self.assertEqual(lids, ["0x0001", "0x0041"] if not gid else ["0x0000", "0x0000"])

    def test_ibv_asyncwatch(self):
        process = self.start("ibv_asyncwatch", "-d", "soft0")
        self.assertRegex(process.stdout.readline(), r"soft0: async event FD \d+")
        self.assertIsNone(process.poll())


class Launcher(ForeignProgramTest):
    def test_bad_arguments(self):
        for arguments, words in (
                (["--devices", "0", "x"], "--devices 0: possible are 1 to 64"),
                (["--devices=65", "x"], "--devices 65: possible are 1 to 64"),
                (["--devices=2", "--names=a", "x"], "--devices 2, but --names has 1"),
                (["--devices=lo,nowhere", "x"], "--devices lo,nowhere: no network interface has the name nowhere; this host has:"),
                (["--devices=lo,lo", "x"], "--devices lo,lo: lo appears twice; an interface has one device"),
                (["--devices=lo,,", "x"], '--devices lo,,: "" is not a valid name of a network interface'),
                (["--devices=../lo", "x"], '"../lo" is not a valid name of a network interface'),
                (["--devices=a b", "x"], '"a b" is not a valid name of a network interface'),
                (["--devices=sixteen_letters_", "x"], "sixteen_letters_ is longer than 15 characters"),
                (["--devices=lo", "--names=a,b", "x"], "--devices lo, but --names has 2"),
                (["--names=a,,b", "x"], '"" is not a valid name'),
                (["--names=", "x"], '"" is not a valid name'),
                (["--names=..", "x"], '".." is not a valid name'),
                (["--names=a,-b", "x"], '"-b" is not a valid name'),
                (["--names=a b", "x"], '"a b" is not a valid name'),
                (["--names=a,a", "x"], "a appears twice"),
                (["--link-layer=fddi", "x"], "possible are eth and ib"),
                (["--ports=0", "x"], "--ports 0: possible are 1 to 4"),
                (["--ports=5", "x"], "--ports 5: possible are 1 to 4"),
                (["--late=0", "x"], "--late 0: possible are 1 to 60000"),
                (["--late"], "--late needs a value"),
                (["--own-memory=maybe", "x"], "--own-memory maybe: possible are on and off"),
                (["--bogus", "x"], "unknown option --bogus"),
                ([], "no program is given"),
        ):
            with self.subTest(arguments):
                process = self.start(*arguments)
                out, _ = process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, 1, out)
                self.assertEqual(len(out.splitlines()), 1, out)
                self.assertIn(words, out)

    def test_a_device_that_cannot_be_opened_is_explained(self):
        """ibv_devinfo itself says only that it failed."""
        for limit, variables, words in (
                ("true", {"RDMACOMM_SOFT0_WIRE": "udp"}, 'RDMACOMM_SOFT0_WIRE is "udp"'),
                ("ulimit -n 4", {}, "too many open files; raise its limit with ulimit -n (Too many open files)")):
            with self.subTest(words), unittest.mock.patch.dict(os.environ, variables):
                process = self.start("sh", "-c", limit + "; exec ibv_devinfo -d soft0")
                out, _ = process.communicate(timeout=SECONDS)
                self.assertNotEqual(process.returncode, 0, out)
                self.assertRegex(out, f"(?m)^soft0: cannot open soft0: .*{re.escape(words)}")

    def test_exit_status_is_the_programs(self):
        for program, status in ((["true"], 0), (["sh", "-c", "exit 7"], 7), (["/nonexistent/program"], 127)):
            with self.subTest(program):
                process = self.start(*program)
                process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, status)

    def test_programs_that_cannot_be_run(self):
        for program, status, words in (("no-such-program", 127, "no-such-program: not found"),
                                       (__file__ + ".none", 127, "not found"),
                                       (os.path.dirname(os.path.abspath(__file__)), 126, "cannot be run"),
                                       ("/etc/passwd", 126, "/etc/passwd: cannot be run")):
            with self.subTest(program):
                process = self.start(program)
                out, _ = process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, status, out)
                self.assertTrue(out.startswith("softdev-run: ") and out.endswith(words + "\n"), out)

    def test_version(self):
        self.assertRegex(self.run_alone("--version"), r"^softdev-run \d+\.\d+\.\d+\n$")

    def test_folders_that_cannot_be_preloaded_are_refused(self):
        for name in ("two words", "a:b"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                os.mkdir(os.path.join(folder, name))
                launcher = os.path.join(folder, name, "softdev-run")
                shutil.copy(RUN, launcher)
                os.symlink(os.path.join(BIN, "librdmacomm_softdev_preload.so"),
                           os.path.join(folder, name, "librdmacomm_softdev_preload.so"))
                done = subprocess.run([launcher, "true"], check=False, capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot hold a path with a space or a colon", done.stderr)

    def test_help(self):
        self.assertIn("usage: softdev-run", self.run_alone("--help"))


# Like programs that are not linked with libibverbs: by a handle, and some functions by version.
BY_HANDLE = """
import ctypes
library = ctypes.CDLL("libibverbs.so.1")
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype, dlvsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
address = dlvsym(library._handle, b"ibv_get_device_list", b"IBVERBS_1.1")
get = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int))(address)
count = ctypes.c_int()
devices = get(ctypes.byref(count))
library.ibv_get_device_name.restype = ctypes.c_char_p
library.ibv_get_device_name.argtypes = (ctypes.c_void_p,)
print([library.ibv_get_device_name(devices[i]).decode() for i in range(count.value)])
library.ibv_wc_status_str.restype = ctypes.c_char_p
print(library.ibv_wc_status_str(5).decode())
"""

# Registers memory under a different address, then a memfd as a dma-buf, by the library's exported functions.
REGISTRATIONS = """
import ctypes, mmap, os
library = ctypes.CDLL("libibverbs.so.1")
pointer, number, length = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
for name, arguments in (("ibv_get_device_list", (pointer,)), ("ibv_open_device", (pointer,)), ("ibv_alloc_pd", (pointer,)),
                        ("ibv_reg_mr_iova", (pointer, pointer, length, number, ctypes.c_int)),
                        ("ibv_reg_mr_iova2", (pointer, pointer, length, number, ctypes.c_uint)),
                        ("ibv_reg_dmabuf_mr", (pointer, number, length, number, ctypes.c_int, ctypes.c_int))):
    if name == "ibv_reg_dmabuf_mr" and not hasattr(library, name):
        continue  # rdma-core before release 34
    function = getattr(library, name)
    function.restype, function.argtypes = pointer, arguments
library.ibv_dereg_mr.argtypes = (pointer,)
devices = ctypes.cast(library.ibv_get_device_list(None), ctypes.POINTER(pointer))
pd = library.ibv_alloc_pd(library.ibv_open_device(devices[0]))
memory = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fd = os.memfd_create("buffer")
os.ftruncate(fd, 8192)
mrs = [library.ibv_reg_mr_iova(pd, address, 8192, 1 << 60, 1), library.ibv_reg_mr_iova2(pd, address, 8192, 1 << 60, 1)]
if hasattr(library, "ibv_reg_dmabuf_mr"):
    mrs.append(library.ibv_reg_dmabuf_mr(pd, 0, 8192, 1 << 60, fd, 1))
for mr in mrs:
    print(mr is not None and library.ibv_dereg_mr(mr))
"""


# From a library that is loaded after the launcher's, RTLD_NEXT means a function behind that library, here libibverbs' own.
NEXT = """
import ctypes
scene = ctypes.CDLL(None)
scene.next_device_list.restype = ctypes.c_char_p
print(scene.next_device_list().decode())
"""

# From a library that was loaded with RTLD_LOCAL, RTLD_DEFAULT also finds the library's own symbols.
DEFAULT = """
import ctypes, sys
scene = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
scene.own_function_by_default.restype = ctypes.c_char_p
print(scene.own_function_by_default().decode())
"""

# Failed lookups leave a message in dlerror(), successful ones do not.
ERRORS = """
import ctypes
libc = ctypes.CDLL(None)
library = ctypes.CDLL("libibverbs.so.1")
for name in ("dlsym", "dlerror"):
    getattr(libc, name).restype = ctypes.c_void_p
libc.dlsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
for name in (b"ibv_get_device_list", b"ibv_wc_status_str", b"ibv_no_such_function"):
    print(libc.dlsym(library._handle, name) is not None, libc.dlerror() is not None)
"""


SCENE = os.path.join(BIN, "lookup_scene.so")


class Lookups(ForeignProgramTest):
    """Programs that are not linked with libibverbs, but look its functions up with dlsym and dlvsym."""

    def test_in_a_handle(self):
        out = self.run_alone("/usr/bin/python3", "-c", BY_HANDLE, run_options=("--names=soft0,mlx5_0",))
        self.assertEqual(out.splitlines(), ["['soft0', 'mlx5_0']", "Work Request Flushed Error"])

    def test_of_the_next_function_depend_on_the_caller(self):
        preloaded = (os.path.join(BIN, "librdmacomm_softdev_preload.so"), SCENE, "libibverbs.so.1")
        out = self.run_alone("/usr/bin/env", "LD_PRELOAD=" + ":".join(preloaded), "/usr/bin/python3", "-c", NEXT)
        self.assertRegex(os.path.basename(out.strip()), r"^libibverbs\.so")

    def test_by_default_depend_on_the_caller(self):
        out = self.run_alone("/usr/bin/python3", "-c", DEFAULT, SCENE)
        self.assertEqual(out.strip(), SCENE)

    def test_leave_the_message_of_libc(self):
        out = self.run_alone("/usr/bin/python3", "-c", ERRORS)
        self.assertEqual(out.splitlines(), ["True False", "True False", "False True"])

    def test_registrations_with_other_addresses(self):
        out = self.run_alone("/usr/bin/python3", "-c", REGISTRATIONS)
        installed = "libibverbs.so.1" if self.tree is None else os.path.join(self.tree, "lib", "libibverbs.so.1")
        dmabufs = hasattr(ctypes.CDLL(installed), "ibv_reg_dmabuf_mr")
        self.assertEqual(out.splitlines(), ["0", "0", "0"] if dmabufs else ["0", "0"])


class Cancellation(ForeignProgramTest):
    """A program may end its threads by pthread_cancel()."""

    def test_threads_in_verbs(self):
        for wire in ("auto", "tcp"):
            with self.subTest(wire), unittest.mock.patch.dict(os.environ, {"RDMACOMM_SOFT0_WIRE": wire}):
                self.run_alone(os.path.join(BIN, "cancelled_threads"))


class Sanitizers(ForeignProgramTest):
    """Their runtimes look functions up and allocate memory before they are ready."""

    def test_programs_with_a_sanitizer(self):
        for sanitizer in ("address", "thread"):
            with self.subTest(sanitizer):
                program = [os.path.join(BIN, f"with_{sanitizer}_sanitizer")]
                if sanitizer == "thread":  # it does not know all ways to place libraries at random addresses
                    program = ["setarch", "-R", *program]
                self.assertEqual(self.run_alone(*program), "soft0 1\n")

    def test_a_preloaded_runtime(self):
        program = os.path.join(BIN, "with_address_sanitizer")
        libraries = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for runtime in re.findall(r"=> (\S+/libasan\.so\S+)", libraries):  # clang links it into the program
            with unittest.mock.patch.dict(os.environ, {"LD_PRELOAD": runtime}):
                self.assertEqual(self.run_alone(program), "soft0 1\n")


class PingPong(ForeignProgramTest):
    """rdma-core's examples; -c: each byte is checked."""

    def test_rc(self):
        for options in ((), ("-e",), ("-t",), ("-N",), ("-N", "-e"), ("-m", "1024"), ("-s", "100000", "-n", "100")):
            with self.subTest(options):
                self.assertRegex(self.run_pair("ibv_rc_pingpong", "-d", "soft0", "-g", "3", "-c", *options), "iters in")

    def test_uc(self):
        for options in ((), ("-e",), ("-m", "1024"), ("-s", "100000", "-n", "100")):
            with self.subTest(options):
                self.assertRegex(self.run_pair("ibv_uc_pingpong", "-d", "soft0", "-g", "3", "-c", *options), "iters in")

    def test_ud(self):
        for options in ((), ("-e",), ("-s", "4000", "-n", "100")):
            with self.subTest(options):
                self.assertRegex(self.run_pair("ibv_ud_pingpong", "-d", "soft0", "-g", "3", "-c", *options), "iters in")

    def test_srq(self):
        for options in ((), ("-e",), ("-q", "3"), ("-s", "100000", "-n", "100")):
            with self.subTest(options):
                self.assertRegex(self.run_pair("ibv_srq_pingpong", "-d", "soft0", "-g", "3", "-c", *options), "iters in")

    def test_rc_by_lid(self):
        self.assertRegex(self.run_pair("ibv_rc_pingpong", "-d", "mlx5_0", "-c",
                                       run_options=("--names=mlx5_0", "--link-layer=ib")), "iters in")

    def test_rc_late(self):
        self.assertRegex(self.run_pair("ibv_rc_pingpong", "-d", "soft0", "-g", "3", "-c", run_options=("--late=1",)),
                         "iters in")

    def test_xrc(self):
        for options in ((), ("-e",), ("-s", "100000", "-n", "100")):
            with self.subTest(options):
                self.assertRegex(self.run_pair("ibv_xsrq_pingpong", "-d", "soft0", "-g", "3", *options), "(?m)^success$")

    def test_xrc_with_clients(self):
        common = ("ibv_xsrq_pingpong", "-d", "soft0", "-g", "3", "-n", "200", "-p", str(hold_ports(self)[0]))
        server = self.start(*common, "-c", "3")
        self.wait_until_listening(server, int(common[-1]))
        clients = [self.start(*common, "localhost") for _ in range(3)]
        for process in (*clients, server):
            self.assertRegex(self.output(process), "(?m)^success$")


# Options of each perftest program; -b: both directions, -q: queue pairs, -e: sleeps for events, -a: all sizes.
OPTIONS = {
    "ib_send_lat": ((), ("-e",), ("-a",), ("-I", "64"), ("-c", "UC"), ("-c", "UD"), ("-c", "UD", "-e"), ("-c", "XRC")),
    "ib_send_bw": ((), ("-e",), ("-b",), ("-q", "4"), ("-a",), ("-r", "16"), ("-c", "UC"), ("--use-srq",),
                    ("-c", "UD"), ("-c", "UD", "-b"), ("-c", "UD", "-q", "4"), ("-c", "XRC"), ("-c", "XRC", "-q", "4")),
    "ib_write_lat": ((), ("-a",), ("-I", "64"), ("-c", "UC"), ("-c", "XRC")),
    "ib_write_bw": ((), ("-b",), ("-q", "4"), ("-a",), ("-c", "UC"), ("-c", "XRC"), ("-c", "XRC", "-a", "-b")),
    "ib_read_lat": ((), ("-e",), ("-a",), ("-c", "XRC")),
    "ib_read_bw": ((), ("-e",), ("-b",), ("-q", "4"), ("-a",), ("-c", "XRC")),
    "ib_atomic_lat": ((), ("-e",), ("-A", "CMP_AND_SWAP")),
    "ib_atomic_bw": ((), ("-e",), ("-b",), ("-q", "4"), ("-A", "CMP_AND_SWAP"), ("-c", "XRC")),
}


def messages_of(options):
    """The number of messages. It is small for all sizes, because these are already gigabytes."""
    return 5 if "-a" in options else 100


def perftest_runs():
    """Program and options: each by both ways to post. All sizes take seconds, because perftest measures the CPU
    clock again for each size. So they alternate between the two ways."""
    if not FULL:
        return [(program, options[0], ()) for program, options in OPTIONS.items()]
    ways = ((), ("--use_old_post_send",))
    turn = itertools.cycle(ways)
    return [(program, chosen, way) for program, options in OPTIONS.items() for chosen in options
            for way in ((next(turn),) if "-a" in chosen else ways)]


class OwnMemory(ForeignProgramTest):
    """Peers reach perftest's buffers, which it has allocated itself, as softdev-run says."""

    STATISTICS = r"(?m)^softdev-run: {}, process \d+:\n  1 registration, \d+ bytes: peers use {}.*\n  slower parts of requests: " \
                 r"system calls (\d+), serving thread of the peer (\d+); requests over TCP: 0$"

    def run_with_statistics(self, program, how, *run_options):
        size = () if program == "ib_atomic_lat" else ("-s", "10000")
        out = self.run_pair(program, "-d", "soft0", "-x", "3", "-F", "-n", "200", *size,
                            run_options=("--stats", *run_options))
        match = re.search(self.STATISTICS.format(program, how), out)
        self.assertIsNotNone(match, out)
        return int(match.group(1)), int(match.group(2))

    def test_loads_and_stores(self):
        for program in ("ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"):
            with self.subTest(program):
                self.assertEqual(self.run_with_statistics(program, "loads and stores"), (0, 0))

    def test_system_calls_if_turned_off(self):
        calls, served = self.run_with_statistics("ib_write_lat", "system calls, because its own memory is off",
                                                 "--own-memory=off")
        self.assertGreaterEqual(calls + served, 200)


class Perftest(ForeignProgramTest):
    def setUp(self):
        if self.tree is None:
            return
        # Debian's perftest is also linked with drivers' libraries, which must not be older than Debian's.
        loaded = subprocess.run(["ldd", shutil.which("ib_send_lat")], capture_output=True, text=True, check=False,
                                env={**os.environ, "LD_LIBRARY_PATH": os.path.join(self.tree, "lib")})
        missing = re.search(r".*version `(?!IBVERBS).*not found.*", loaded.stdout + loaded.stderr)
        if missing:
            self.skipTest(missing.group())

    def test_each_program(self):
        for program, chosen, posts in perftest_runs():
            with self.subTest(program=program, options=(*chosen, *posts)):
                messages = messages_of(chosen)
                out = self.run_pair(program, "-d", "soft0", "-x", "3", "-F", "-n", str(messages), *chosen, *posts)
                # -q 4 counts the messages of all queue pairs
                self.assertRegex(out, rf"(?m)^ \d+ +({messages}|{4 * messages}) ")


QPERF_TESTS = ("rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_lat", "rc_rdma_write_poll_lat",
               "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add", "uc_lat", "uc_rdma_write_bw",
               "ud_lat")  # each takes a second
QPERF_RESULTS = {"lat": "latency", "bw": "(?:send_)?bw"}  # by the last word of the test; msg_rate for other words


@unittest.skipUnless(shutil.which("qperf"), "no qperf")
class Qperf(ForeignProgramTest):
    """qperf connects by LIDs. So it works with the link layer InfiniBand."""

    def test_each_test(self):
        (port,) = hold_ports(self)
        server = self.start("qperf", "-lp", str(port), run_options=("--link-layer=ib",))
        self.wait_until_listening(server, port)
        for test in QPERF_TESTS:
            with self.subTest(test):
                out = self.run_alone("qperf", "-lp", str(port), "localhost", "-t", "1", "-i", "soft0:1", test,
                                     run_options=("--link-layer=ib",))
                result = QPERF_RESULTS.get(test.rpartition("_")[2], "msg_rate")
                self.assertRegex(out, rf"{test}:\n +{result} +=")
        self.assertIsNone(server.poll())

    def test_an_error_is_in_errno(self):
        (port,) = hold_ports(self)
        server = self.start("qperf", "-lp", str(port))
        self.wait_until_listening(server, port)
        client = self.start("qperf", "-lp", str(port), "-t", "1", "localhost", "rc_lat")
        out, _ = client.communicate(timeout=SECONDS)
        self.assertIn("failed to modify QP to RTR: Invalid argument", out)


if __name__ == "__main__":
    unittest.main()
