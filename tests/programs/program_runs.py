"""Runs the programs of rdmacomm as a user does. Shared by their tests."""

import os
import re
import selectors
import signal
import subprocess
import time
import unittest

BIN = os.environ.get("RDMACOMM_BIN", "")
# Sanitizers make everything slower. Promised time limits only hold without them.
SLOW = float(os.environ.get("RDMACOMM_SLOWNESS", "1"))
PING_PONG = os.path.join(BIN, "ping_pong_test")
LAT_BW = os.path.join(BIN, "lat_bw_benchmark")
MESH = os.path.join(BIN, "mesh_comm_service")
# The limit of locked memory differs between users and machines. Some tests need more than some users have.
os.environ.setdefault("RDMACOMM_SOFT0_MEMLOCK", "off")
TRACES = ("***", "Stack trace", "Aborted", "terminate called", "Check failed", "#0 ")


class Program:
    """A running program, whose standard output can be read line by line with a time limit."""

    def __init__(self, *arguments, **options):
        self.process = subprocess.Popen(list(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, **options)
        self.pid = self.process.pid
        self.out = b""

    def wait_for(self, pattern, seconds=20):
        """Reads standard output until a regular expression matches it. Returns the match."""
        deadline = time.monotonic() + seconds * SLOW
        selector = selectors.DefaultSelector()
        selector.register(self.process.stdout, selectors.EVENT_READ)
        while True:
            match = re.search(pattern, self.out.decode())
            if match:
                return match
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise AssertionError(f"no {pattern!r} within {seconds} s; there is: {self.out.decode()}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                err = self.process.stderr.read().decode()
                raise AssertionError(f"it ended without {pattern!r}: {self.out.decode()} {err}")
            self.out += more

    def finish(self, seconds=60):
        """Waits for the end. Returns exit status, standard output, standard error."""
        out, err = self.process.communicate(timeout=seconds * SLOW)
        return self.process.returncode, self.out.decode() + out.decode(), err.decode()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        """Ends the program at the end of a test, whether or not the test has failed."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def is_running(pid):
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(pid, seconds):
    deadline = time.monotonic() + seconds * SLOW
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def shared_memory_names():
    """The names that the programs could leave behind. Other tests run softdev-run, which makes rdmacomm-files-*. The
    counters of soft0 (rdmacomm-counts-*) stay on purpose."""
    return {name for name in os.listdir("/dev/shm")
            if re.search("rdma|soft0", name) and not re.search("rdmacomm-(files|counts)-", name)}


class ProgramTest(unittest.TestCase):
    maxDiff = None  # show texts completely

    def setUp(self):
        self.shared_memory = shared_memory_names()

    def tearDown(self):
        self.assertEqual(shared_memory_names(), self.shared_memory, "something was left in /dev/shm")

    def start(self, *arguments, **options):
        program = Program(*arguments, **options)
        self.addCleanup(program.end)
        return program

    def start_server(self, program, *arguments):
        """Starts a server of `program`. Returns it and its port."""
        server = self.start(program, "--role=server", "--port=0", "--device=soft0", *arguments)
        return server, int(server.wait_for(r"listening on port (\d+)").group(1))

    def run_program(self, *arguments, seconds=100, **options):
        return self.start(*arguments, **options).finish(seconds)

    def assert_success(self, result):
        status, out, err = result
        self.assertEqual(status, 0, out + err)
        self.assertEqual(err, "", out)
        return out

    def assert_one_line(self, result, *parts):
        """Expects exit status 1, one line on standard error that contains all `parts`, and no trace."""
        status, out, err = result
        self.assertEqual(status, 1, out + err)
        self.assertEqual(len(err.splitlines()), 1, err)
        for trace in TRACES:
            self.assertNotIn(trace, err)
        for part in parts:
            self.assertRegex(err, part)
