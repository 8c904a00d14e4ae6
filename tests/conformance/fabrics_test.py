#!/usr/bin/env python3
"""Libraries and tools of other projects that connect by librdmacm, on soft0: UCX's connection manager, libfabric, librpma,
fio, qperf -cm1, rcopy. On this host, and between two hosts, which are network namespaces of this machine.

usage: fabrics_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Programs that are not installed are skipped. Needs root for the namespaces;
without root those tests are skipped.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import SECONDS  # noqa: E402
from listening import listens  # noqa: E402
from rdmacm_test import BetweenHosts, ConnectedPrograms  # noqa: E402


def own_address():
    """An address of this host that other hosts can know. A loopback address selects no device."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket sends nothing by that
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


class Fabrics(ConnectedPrograms):
    # fi_pingpong ends its connection when it has received the last message. If the acknowledgement of this message is
    # lost on the way, the peer's last request is flushed, and the peer exits with another status than 0. The same can
    # happen on hardware.
    libfabric_succeeds = True
    qperf_tests = ("rc_rdma_write_lat", "ver_rc_compare_swap")  # each takes a second

    def setUp(self):
        super().setUp()
        self.address = own_address()

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest("no " + program)

    def folder(self):
        path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, path)
        return path

    def start_listener(self, port, *arguments):
        """For servers that listen at a TCP port before they use RDMA."""
        process = self.start_in(self.as_server, *arguments)
        while not listens(int(port), process.pid):
            self.assertIsNone(process.poll(), "the server ended before it listened")
        return process

    def test_ucx(self):
        """-q: the data is checked. io_demo's server serves until it is killed."""
        self.need("io_demo")
        environment = ("env", "UCX_NET_DEVICES=soft0:1", "UCX_TLS=rc_verbs,ud_verbs", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm")
        for api in ((), ("-A",)):
            with self.subTest(api=api):
                port = self.port()
                common = (*environment, "io_demo", "-q", *api, "-p", port)
                server = self.start_in(self.as_server, *common)
                self.wait_for_listener(server, port)
                out = self.output(self.start_in(self.as_client, *common, "-i", "100", "-o", "read,write", self.address))
                self.assertIn("Client exit with status 'OK'", out)
                self.assertIsNone(server.poll())

    def test_fi_info(self):
        self.need("fi_info")
        out = self.output(self.start_in(self.as_server, "fi_info", "-p", "verbs"))
        for kind in ("FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM"):
            self.assertIn("type: " + kind, out)

    def test_libfabric(self):
        """-c: the data is checked."""
        self.need("fi_pingpong")
        for options in (("-p", "verbs", "-e", "msg", "-S", "65536"),
                        ("-p", "verbs", "-d", "soft0-dgram", "-e", "dgram", "-S", "4096"),
                        ("-p", "verbs;ofi_rxm", "-e", "rdm", "-S", "65536")):
            with self.subTest(options):
                port = self.port()
                common = ("fi_pingpong", *options, "-I", "10", "-c")
                server = self.start_listener(port, *common, "-B", port)
                client = self.start_in(self.as_client, *common, "-P", port, self.address)
                for process in (client, server):
                    out = self.output(process) if self.libfabric_succeeds else process.communicate(timeout=SECONDS)[0]
                    self.assertRegex(out, r"(?m)^(4|64)k +10 +=10 ")

    def test_librpma(self):
        program = os.path.join(self.folder(), "rpma_transfer")
        if shutil.which("cc") is None or not os.path.exists("/usr/include/librpma.h"):
            self.skipTest("no librpma")
        if self.address == "127.0.0.1":
            self.skipTest("this host has no address but a loopback one")
        subprocess.run(["cc", "-O1", os.path.join(HERE, "rpma_transfer.c"), "-o", program, "-lrpma", "-libverbs"], check=True)
        port = self.port()
        outs = self.run_both((program, "server", self.address, port), (program, "client", self.address, port), port)
        for out in outs:
            self.assertIn("all bytes are correct", out)

    def test_fio(self):
        """The server has a receive for each message, because fio asks for no retries without one. The pairs of processes
        run at the same time, because each of them sleeps for half a second."""
        self.need("fio")
        common = ("fio", "--thread", "--ioengine=rdma", "--bs=64k", "--size=1m")
        pairs = []
        for verb in ("write", "read", "send"):
            port = self.port()
            server = self.start_in(self.as_server, *common, "--name=server", "--port=" + port, "--rw=read", "--iodepth=32")
            self.wait_for_listener(server, port)
            client = self.start_in(self.as_client, *common, "--name=client", "--port=" + port, "--rw=write", "--iodepth=8",
                                   "--hostname=" + self.address, "--verb=" + verb)
            pairs.append((verb, client, server))
        for verb, client, server in pairs:
            with self.subTest(verb):
                self.assertRegex(self.output(client), r"WRITE: .* io=1024KiB")
                self.output(server)

    def test_qperf(self):
        """-cm1: qperf connects by librdmacm, not by LIDs."""
        self.need("qperf")
        port = self.port()
        server = self.start_listener(port, "qperf", "-lp", port)
        for test in self.qperf_tests:
            with self.subTest(test):
                out = self.output(self.start_in(self.as_client, "qperf", "-lp", port, self.address, "-cm1", "-t", "1", test))
                self.assertRegex(out, rf"{test}:\n +\w+ +=")
        self.assertIsNone(server.poll())

    def test_rcopy(self):
        self.need("rcopy")
        folder = self.folder()
        content = random.Random(1).randbytes(3_000_001)
        source, target = (os.path.join(folder, name) for name in ("source", "target"))
        with open(source, "wb") as file:
            file.write(content)
        port = self.port()
        server = self.start_in(self.as_server, "rcopy", "-p", port)  # it serves until it is killed
        self.wait_for_listener(server, port)
        self.output(self.start_in(self.as_client, "rcopy", source, f"{self.address}:{target}", "-p", port))
        with open(target, "rb") as file:
            self.assertEqual(file.read(), content)


class FabricsOnInfiniband(ConnectedPrograms):
    run_options = ("--link-layer=ib",)

    def test_udpong(self):
        """It uses address handles without a GRH, which RoCE does not have. Its server serves until it is killed."""
        address = own_address()
        if address == "127.0.0.1":
            self.skipTest("this host has no address but a loopback one")
        port = self.port()
        server = self.start_in((), "udpong", "-b", address, "-p", port)
        out = ""
        while "custom" not in out:  # until the server has its socket, datagrams get no answer
            self.assertIsNone(server.poll())
            out = self.start_in((), "timeout", "2", "udpong", "-s", address, "-p", port, "-S", "1000",
                                "-C", "100").communicate(timeout=SECONDS)[0]
        self.assertRegex(out, r"custom +1000 +100 ")


class FabricsBetweenHosts(BetweenHosts, Fabrics):
    qperf_tests = ("rc_lat",)


class FabricsOnABadCable(FabricsBetweenHosts):
    libfabric_succeeds = False

    def setUp(self):
        super().setUp()
        self.hosts.loss(1)


if __name__ == "__main__":
    unittest.main()
