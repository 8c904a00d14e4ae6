#!/usr/bin/env python3
"""The device files of soft devices, in /dev/infiniband and /sys/class/infiniband*, as programs of other projects read
them under softdev-run: shells, Python, the C library, infiniband-diags, UCX, Open MPI and qperf.

usage: device_files_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Programs that are not installed are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import hosts  # noqa: E402
from held_ports import hold_ports  # noqa: E402
from listening import listens  # noqa: E402

RUN = os.path.join(os.environ.get("RDMACOMM_BIN", ""), "softdev-run")
PRELOAD = os.path.join(os.environ.get("RDMACOMM_BIN", ""), "librdmacomm_softdev_preload.so")
SECONDS = 120
PYTHON = "/usr/bin/python3"
GUID = r"[0-9a-f]{4}(:[0-9a-f]{4}){3}"


class FilesTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        """The files lie in a folder of this test, so that it sees what is left of them."""
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o700)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
        return {**kept, "XDG_RUNTIME_DIR": self.folder, **more}

    def start(self, *arguments, options=(), **environment):
        process = subprocess.Popen([RUN, *options, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=self.environment(**environment))
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def output(self, process):
        out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, " ".join(process.args) + "\n" + out)
        return out

    def run_alone(self, *arguments, options=(), **environment):
        return self.output(self.start(*arguments, options=options, **environment))

    def python(self, code, options=(), **environment):
        return self.run_alone(PYTHON, "-c", textwrap.dedent(code), options=options, **environment).splitlines()

    def wait_until_listening(self, server, port):
        while server.poll() is None:
            if listens(port, server.pid):
                return
        self.fail(" ".join(server.args) + " ended before it listened\n" + server.stdout.read())

    def left(self):
        return os.listdir(self.folder)

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f"{program} is not installed")


class Shell(FilesTest):
    def test_loops(self):
        for shell in ("dash", "bash"):
            with self.subTest(shell):
                out = self.run_alone(shell, "-c", "for d in /sys/class/infiniband/*; do echo $d $(cat $d/node_guid); done",
                                     options=("--devices=3",))
                self.assertEqual(re.sub(GUID, "GUID", out).splitlines(),
                                 [f"/sys/class/infiniband/soft{i} GUID" for i in range(3)])
                self.assertEqual(len(set(line.split()[1] for line in out.splitlines())), 3)
        self.assertEqual(self.left(), [])

    def test_folders(self):
        out = self.run_alone("bash", "-c", "cd /sys/class/infiniband/mlx5_0/ports/1 && pwd -P && cat state ../../node_type"
                             " && cd /sys/class && cat infiniband/mlx5_0/fw_ver ./infiniband//mlx5_0/../mlx5_0/node_desc",
                             options=("--names=mlx5_0",))
        self.assertEqual(out.splitlines(),
                         ["/sys/class/infiniband/mlx5_0/ports/1", "4: ACTIVE", "1: CA", "0.1.0", "mlx5_0"])

    def test_infiniband(self):
        port = "/sys/class/infiniband/soft1/ports/1"
        out = self.run_alone("cat", f"{port}/link_layer", f"{port}/lid", f"{port}/pkeys/0", f"{port}/gid_attrs/types/0",
                             options=("--devices=2", "--link-layer=ib"))
        self.assertEqual(out.splitlines(), ["InfiniBand", "0x2", "0xffff", "IB/RoCE v1"])

    def test_find_and_ls(self):
        out = self.run_alone("find", "/dev/infiniband", "-type", "c", options=("--devices=2",))
        self.assertEqual(len(out.splitlines()), 3, out)  # two devices and rdma_cm
        out = self.run_alone("ls", "-lR", "/dev/infiniband", "/sys/class/infiniband", "/sys/class/infiniband_verbs")
        self.assertRegex(out, r"(?m)^crw-rw-rw- .* 231, +\d+ .* uverbs\d+$")
        self.assertRegex(out, r"(?m)^-r--r--r-- .* node_guid$")

    def test_nothing_can_be_changed(self):
        out = self.run_alone("sh", "-c", "for f in node_guid new; do (echo x >/sys/class/infiniband/soft0/$f) 2>/dev/null"
                             " || echo refused; done")
        self.assertEqual(out.splitlines(), ["refused", "refused"])

    def test_the_preloaded_library_without_the_launcher(self):
        out = subprocess.run(["cat", "/sys/class/infiniband/soft0/node_type"], check=True, capture_output=True, text=True,
                             env=self.environment(LD_PRELOAD=PRELOAD)).stdout
        self.assertEqual(out, "1: CA\n")


class Python(FilesTest):
    def test_listings(self):
        self.assertEqual(self.python("""
            import glob, os
            print(os.listdir("/sys/class/infiniband"))
            print({"abi_version", "uverbs0"} <= {entry.name for entry in os.scandir("/sys/class/infiniband_verbs")})
            print(glob.glob("/sys/class/infiniband/*/ports/*/gids/0"))
            print(sum(len(files) for _, _, files in os.walk("/sys/class/infiniband/a")) > 20)
            """, options=("--names=a",)),
            ["['a']", "True", "['/sys/class/infiniband/a/ports/1/gids/0']", "True"])

    def test_a_device_node(self):
        self.assertEqual(self.python("""
            import os, stat
            path = "/dev/infiniband/" + sorted(os.listdir("/dev/infiniband"))[-1]
            name = os.path.basename(path)
            fd = os.open(path, os.O_RDWR)
            for found in (os.stat(path), os.lstat(path), os.fstat(fd), os.stat(name, dir_fd=os.open("/dev/infiniband", 0))):
                device = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
                print(stat.S_ISCHR(found.st_mode), device == open(f"/sys/class/infiniband_verbs/{name}/dev").read().strip())
            print(os.access(path, os.R_OK | os.W_OK), os.path.exists("/dev/infiniband/rdma_cmx"))
            """), 4 * ["True True"] + ["True False"])

    def test_paths(self):
        self.assertEqual(self.python("""
            import os
            print(os.path.realpath("/sys/class/infiniband_verbs/uverbs0/device/numa_node"))
            os.chdir("/sys/class/infiniband/soft0")
            print(os.getcwd(), os.readlink("/sys/class/infiniband_verbs/uverbs0/device"))
            root = os.open("/", os.O_RDONLY)
            print(os.read(os.open("sys/class/infiniband/soft0/node_type", os.O_RDONLY, dir_fd=root), 99))
            print(os.path.exists("/sys/class/infiniband/soft0/../../net/lo"))
            """), ["/sys/class/infiniband/soft0/device/numa_node",
                   "/sys/class/infiniband/soft0 ../../infiniband/soft0/device", r"b'1: CA\n'", "True"])


# Calls functions of the C library that Python itself does not use.
LIBC = """
import ctypes, os
library = ctypes.CDLL(None, use_errno=True)
class Glob(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("paths", ctypes.POINTER(ctypes.c_char_p)), ("rest", ctypes.c_char * 256)]
found = Glob()
print(library.glob(b"/sys/class/infiniband/soft?/ports/*/stat[e]", 0, None, ctypes.byref(found)), found.count,
      found.paths[0].decode())
Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
seen = []
def visit(path, status, kind, place):
    seen.append(path[place[0]:] == os.path.basename(path) and path.startswith(b"/sys/class/infiniband/soft0"))
    return 0
print(library.nftw(b"/sys/class/infiniband/soft0", Visit(visit), 8, 1), len(seen) > 20, all(seen))
library.fopen.restype = ctypes.c_void_p
library.fopen.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
print(library.fopen(b"/sys/class/infiniband/soft0/node_guid", b"r") is not None,
      library.fopen(b"/sys/class/infiniband/soft0/node_guid", b"w"))
library.canonicalize_file_name.restype = ctypes.c_char_p
print(library.canonicalize_file_name(b"/sys/class/infiniband/../infiniband/soft0").decode())
status = ctypes.create_string_buffer(256)
for name, arguments in (("__xstat", (1, b"/sys/class/infiniband/soft0", status)),
                        ("__fxstatat", (1, -100, b"/sys/class/infiniband/soft0", status, 0)),
                        ("euidaccess", (b"/sys/class/infiniband/soft0", 4)), ("stat", (b"/sys/class/infiniband/soft9", status)),
                        ("open", (None, 0)), ("access", (None, 0))):
    print(name, getattr(library, name)(*arguments))
print(os.strerror(ctypes.get_errno()))
"""


class Libc(FilesTest):
    def test_functions(self):
        self.assertEqual(self.run_alone(PYTHON, "-c", LIBC).splitlines(),
                         ["0 1 /sys/class/infiniband/soft0/ports/1/state", "0 True True", "True None",
                          "/sys/class/infiniband/soft0", "__xstat 0", "__fxstatat 0", "euidaccess 0", "stat -1", "open -1",
                          "access -1", "Bad address"])


class Diagnostics(FilesTest):
    def test_ibstat(self):
        self.need("ibstat")
        out = self.run_alone("ibstat", options=("--names=mlx5_0,x", "--link-layer=ib"))
        self.assertEqual(re.findall(r"(?m)^CA '(.*)'$", out), ["mlx5_0", "x"])
        for line in (r"State: Active", r"Physical state: LinkUp", r"Rate: 200", r"Base lid: 2", r"Link layer: InfiniBand"):
            self.assertRegex(out, line)
        self.assertEqual(self.left(), [])

    def test_ibstatus(self):
        self.need("ibstatus")
        out = self.run_alone("ibstatus")
        self.assertRegex(out, r"'soft0' port 1 status:(?s:.*)state:\s+4: ACTIVE(?s:.*)200 Gb/sec \(4X HDR\)")

    def test_libibverbs_sees_no_file_that_it_has_no_driver_for(self):
        self.assertNotIn("no userspace", self.run_alone("ibv_devices"))


class Life(FilesTest):
    def test_many_processes_at_once(self):
        readers = [self.start("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do cat /sys/class/infiniband/soft0/node_type; done")
                   for _ in range(8)]
        for reader in readers:
            self.assertEqual(self.output(reader), 9 * "1: CA\n")
        self.assertEqual(self.left(), [])

    def test_the_files_of_a_killed_process_are_removed_by_the_next(self):
        self.start(PYTHON, "-c", "import os, signal; os.listdir('/dev/infiniband'); os.kill(os.getpid(), signal.SIGKILL)",
                   options=("--names=killed",)).wait(timeout=SECONDS)
        self.assertNotEqual(self.left(), [])
        self.run_alone("cat", "/sys/class/infiniband/soft0/node_type")
        self.assertEqual(self.left(), [])

    def test_a_process_that_closes_all_descriptors(self):
        self.assertEqual(self.python("""
            import os
            for _ in range(2):
                print(os.listdir("/sys/class/infiniband"))
                os.closerange(3, 4096)
            """), 2 * ["['soft0']"])
        self.assertEqual(self.left(), [])

    def test_a_folder_that_others_may_write_is_not_used(self):
        folder = os.path.join(self.folder, f"rdmacomm-files-{os.geteuid()}")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        self.assertEqual(self.run_alone("cat", "/sys/class/infiniband/soft0/node_type"), "1: CA\n")
        self.assertEqual(os.listdir(folder), [])


class Network(FilesTest):
    def test_changes_are_seen_by_a_running_process(self):
        reason = hosts.why_not()
        if reason:
            self.skipTest(reason)
        out = self.run_alone("unshare", "--net", PYTHON, "-c", textwrap.dedent("""
            import os, subprocess
            port = "/sys/class/infiniband/soft0/ports/1"
            def look():
                print(open(port + "/state").read().strip(), open(port + "/phys_state").read().strip(),
                      sorted(set(open(port + "/gid_attrs/ndevs/" + name).read().strip() for name in os.listdir(port + "/gid_attrs/ndevs"))),
                      os.listdir("/sys/class/infiniband/soft0/device").count("net"))
            look()
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            look()
            subprocess.run(["ip", "address", "add", "10.9.8.7/24", "dev", "lo"], check=True)
            gids = [open(port + "/gids/" + name).read() for name in os.listdir(port + "/gids")]
            print(sum("ffff:0a09:0807" in gid for gid in gids))
            """))
        self.assertEqual(out.splitlines(), ["1: DOWN 3: Disabled [] 0", "4: ACTIVE 5: LinkUp ['lo'] 1", "2"])
        self.assertEqual(self.left(), [])


# Two programs of perftest in a network of their own. Prints four counters before and after them, in three ways. The
# client is started again until the server listens.
COUNTED = """
port=/sys/class/infiniband/soft0/ports/1
cat $port/counters/port_xmit_data $port/counters/port_rcv_data $port/hw_counters/sent_pkts $port/hw_counters/rcvd_pkts
ip link set lo up
ib_write_bw -d soft0 -x 3 -F -n 5 -s 8192 >/dev/null 2>&1 &
until ib_write_bw -d soft0 -x 3 -F -n 5 -s 8192 localhost >/dev/null 2>&1; do :; done
wait
cat $port/counters/port_xmit_data
cd $port/counters
cat port_rcv_data
cat ../hw_counters/sent_pkts
grep -r . $port/hw_counters | sed -n 's/.*rcvd_pkts://p'"""


class Counters(FilesTest):
    def test_programs_are_counted(self):
        reason = hosts.why_not()
        if reason:
            self.skipTest(reason)
        self.need("ib_write_bw")
        # The system may give the network the number of an earlier one, whose counts continue.
        out = [int(line) for line in self.run_alone("unshare", "--net", "bash", "-c", COUNTED).splitlines()]
        self.assertEqual([after - before for before, after in zip(out[:4], out[4:])], [10240, 10240, 10, 10])
        self.assertEqual(self.left(), [])

    def test_all_files_have_a_number(self):
        out = self.run_alone("sh", "-c", "cat /sys/class/infiniband/*/ports/1/counters/* /sys/class/infiniband/*/ports/1/hw*/*",
                             options=("--devices=2",)).splitlines()
        self.assertEqual(len(out), 2 * (21 + 16))
        self.assertTrue(all(line.isdecimal() for line in out))


class Ucx(FilesTest):
    TRANSPORTS = {"UCX_NET_DEVICES": "soft0:1", "UCX_TLS": "rc_verbs,ud_verbs"}

    def setUp(self):
        super().setUp()
        self.need("ucx_info", "ucx_perftest")

    def test_finds_the_device(self):
        out = self.run_alone("ucx_info", "-d")
        for transport in ("rc_verbs", "ud_verbs"):
            self.assertRegex(out, rf"Transport: {transport}\n.*Device: soft0:1\n")

    def run_pair(self, *arguments, **environment):
        (port,) = hold_ports(self)
        server = self.start("ucx_perftest", "-p", str(port), **environment)
        self.wait_until_listening(server, port)
        client = self.start("ucx_perftest", "-p", str(port), *arguments, "localhost", **environment)
        out = self.output(client)
        self.output(server)
        self.assertRegex(out, r"(?m)^Final: ")

    def test_operations(self):
        for test in ("tag_lat", "tag_bw", "stream_lat", "stream_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_am_lat",
                     "ucp_am_bw", "ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"):
            with self.subTest(test):
                self.run_pair("-t", test, "-s", "8", "-n", "200", "-w", "5", **self.TRANSPORTS)

    def test_sizes(self):
        for transports, test, size in (("rc_verbs,ud_verbs", "tag_bw", 1 << 20), ("rc_verbs,ud_verbs", "stream_bw", 1 << 16),
                                       ("rc_verbs,ud_verbs", "ucp_put_bw", 4 << 20), ("rc_verbs,ud_verbs", "ucp_get", 4 << 20),
                                       ("ud_verbs", "tag_bw", 1 << 16), ("ud_verbs", "ucp_am_bw", 1 << 13)):
            with self.subTest(transports=transports, test=test):
                self.run_pair("-t", test, "-s", str(size), "-n", "50", "-w", "5",
                              **{**self.TRANSPORTS, "UCX_TLS": transports})


# Each process sends different numbers to each other one, in five sizes.
ALL_TO_ALL = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank = 0, size = 0, wrong = 0, all_wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int count = 1; count <= 1 << 16; count *= 16) {
    int* out = malloc(sizeof(int) * count * size);
    int* in = malloc(sizeof(int) * count * size);
    for (int i = 0; i < count * size; ++i) out[i] = rank * 1000003 + i / count * 1009 + i % count;
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < count * size; ++i) wrong += in[i] != i / count * 1000003 + rank * 1009 + i % count;
    free(out);
    free(in);
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d processes, %d wrong\n", size, all_wrong);
  MPI_Finalize();
  return wrong != 0;
}
"""


class Mpi(FilesTest):
    def test_all_to_all(self):
        self.need("mpicc", "mpirun")
        source, program = (os.path.join(self.folder, name) for name in ("all_to_all.c", "all_to_all"))
        with open(source, "w", encoding="ascii") as file:
            file.write(ALL_TO_ALL)
        subprocess.run(["mpicc", "-O1", source, "-o", program], check=True)
        for name, options in (("soft0", ()), ("mlx5_0", ("--names=mlx5_0", "--link-layer=ib"))):
            with self.subTest(name):
                out = self.run_alone("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", program, options=options,
                                     OMPI_MCA_pml="ucx", OMPI_MCA_osc="ucx", UCX_TLS="rc_verbs,ud_verbs,self",
                                     UCX_NET_DEVICES=f"{name}:1")
                self.assertIn("4 processes, 0 wrong", out)


if __name__ == "__main__":
    unittest.main()
