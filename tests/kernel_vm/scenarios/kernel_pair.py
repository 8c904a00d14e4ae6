"""The pair of kernel devices that the scenarios run on, and servers and clients at its two ends."""

import contextlib
import os
import pathlib
import subprocess
import threading
import time
import unittest

from program_runs import LAT_BW, ProgramTest

DEVICE = os.environ.get("RDMACOMM_TEST_DEVICE", "")
PEER_DEVICE = os.environ.get("RDMACOMM_TEST_PEER_DEVICE", "")
ADDRESS = os.environ.get("RDMACOMM_TEST_ADDRESS", "")
PEER_ADDRESS = os.environ.get("RDMACOMM_TEST_PEER_ADDRESS", "")
KIND = DEVICE.split("_")[0]
PAIR = pathlib.Path(__file__).resolve().parent.parent / "guest/pair"
# iWARP can only be connected by rdma_cm, and supports neither immediate data nor atomics.
IS_IWARP = KIND == "siw"
OPERATIONS = ("send", "write", "read") if IS_IWARP else ("send", "write", "write_imm", "read", "fetch_add", "compare_swap")
by_tcp = unittest.skipIf(IS_IWARP, "iWARP connects by rdma_cm only")


def command(*words):
    """Runs a command that must succeed. Returns its output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit status {done.returncode}: {done.stderr}"
    return done.stdout.strip()


def pair(*words):
    return command(PAIR, *words)


def interface(end):
    return pair("interface", KIND, end)


@contextlib.contextmanager
def disturbed(do, undo):
    """Runs the command `do` before the `with` block and `undo` after it, also after an exception."""
    command(*do)
    try:
        yield
    finally:
        command(*undo)


@contextlib.contextmanager
def losing(percent):
    """Both directions of the cable lose `percent` of their packets."""
    with contextlib.ExitStack() as stack:
        for end in ("a", "b"):
            queue = ("dev", interface(end), "root")
            stack.enter_context(disturbed(
                ("tc", "qdisc", "add", *queue, "netem", "limit", "10000", "loss", f"{percent}%"),
                ("tc", "qdisc", "del", *queue)))
        yield


def link_down(end):
    return disturbed((PAIR, "link", KIND, end, "down"), (PAIR, "link", KIND, end, "up"))


def renew_pair():
    pair("down", KIND)
    pair("up", KIND)


def no_route_from(end):
    return disturbed((PAIR, "route", KIND, end, "del"), (PAIR, "route", KIND, end, "add"))


def mtu_of(end, size):
    return disturbed(("ip", "link", "set", interface(end), "mtu", size), ("ip", "link", "set", interface(end), "mtu", 4500))


class Stopwatch:
    """Seconds since its creation, without the times in which this machine did not run. If other work uses the host's
    processors, an emulated machine stops for seconds while its clock continues. Such a delay is not part of the
    result."""

    PERIOD, ORDINARY_DELAY = 0.05, 0.1
    stood_still = 0.0
    watcher = None

    def __init__(self):
        if Stopwatch.watcher is None:
            Stopwatch.watcher = threading.Thread(target=Stopwatch._watch, daemon=True)
            Stopwatch.watcher.start()
        self._began = self._now()

    @classmethod
    def _watch(cls):
        while True:
            before = time.monotonic()
            time.sleep(cls.PERIOD)
            late = time.monotonic() - before - cls.PERIOD
            if late > cls.ORDINARY_DELAY:
                cls.stood_still += late

    @classmethod
    def _now(cls):
        return time.monotonic() - cls.stood_still

    def seconds(self):
        return self._now() - self._began


class PairTest(ProgramTest):
    """The server uses the peer's device and address, the client the local ones: all data crosses the cable."""

    connector = "tcp"
    server_address = PEER_ADDRESS
    server_device = PEER_DEVICE
    client_device = DEVICE

    def start_server(self, program, *arguments, device=None):
        server = self.start(program, "--role=server", "--port=0", f"--device={device or self.server_device}",
                            f"--connector={self.connector}", *arguments)
        return server, int(server.wait_for(r"listening on port (\d+)").group(1))

    def start_client(self, program, port, *arguments, device=None):
        return self.start(program, "--role=client", f"--server={self.server_address}", f"--port={port}",
                          f"--device={device or self.client_device}", f"--connector={self.connector}", *arguments)

    def run_until(self, moment):
        """A server and a client in the middle of a measurement, (operation, test), which does not end by itself."""
        server, port = self.start_server(LAT_BW)
        client = self.start_client(LAT_BW, port, "--duration=600", "--rounds=1", "--sizes=64", f"--ops={moment[0]}",
                                   f"--tests={moment[1]}")
        client.wait_for("op +measures")
        return server, client

    def run_between(self, program, *arguments, server_arguments=(), seconds=60):
        """One complete run; server and client must succeed. Returns the client's output."""
        server, port = self.start_server(program, *server_arguments)
        out = self.assert_success(self.start_client(program, port, *arguments).finish(seconds))
        self.assert_success(server.finish(10))
        return out
