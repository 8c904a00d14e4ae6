#!/usr/bin/env python3
"""Programs that connect by librdmacm, on soft0: rdma-core's examples and tests, and perftest with -R. On this host, and
between two hosts, which are network namespaces of this machine.

usage: rdmacm_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Needs root for the namespaces; without root those tests are skipped.
"""

import glob
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import BIN, RUN, SECONDS, ForeignProgramTest  # noqa: E402
from held_ports import hold_ports  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402
from listening import listens_by_cm  # noqa: E402

PRELOADED_RSOCKETS = glob.glob("/usr/lib/*/rsocket/librspreload.so")  # it replaces the functions of sockets


class ConnectedPrograms(ForeignProgramTest):
    """Each program runs as a server and as a client. Both must end with exit status 0."""
    address = "127.0.0.1"
    as_server = ()
    as_client = ()
    run_options = ()

    def start_in(self, where, *arguments):
        process = subprocess.Popen([*where, RUN, *self.run_options, *arguments], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def wait_for_listener(self, server, port):
        while server.poll() is None:
            if listens_by_cm(port, server.pid):
                return
        self.fail(" ".join(server.args) + " ended before it listened\n" + server.stdout.read())

    def run_both(self, server, client, port):
        listening = self.start_in(self.as_server, *server)
        self.wait_for_listener(listening, port)
        out = self.output(self.start_in(self.as_client, *client))
        return out, self.output(listening)

    def port(self):
        return str(hold_ports(self)[0])


class RdmacmPrograms(ConnectedPrograms):
    def test_rping(self):
        port = self.port()
        common = ("rping", "-a", self.address, "-p", port, "-C", "20", "-V")
        self.run_both((*common, "-s"), (*common, "-c"), port)

    def test_ucmatose(self):
        port = self.port()
        common = ("ucmatose", "-p", port, "-c", "4", "-C", "20")
        client, server = self.run_both((*common, "-b", self.address), (*common, "-s", self.address), port)
        for out in (client, server):
            self.assertIn("return status 0", out)

    def test_rdma_server(self):
        port = self.port()
        self.run_both(("rdma_server", "-p", port), ("rdma_client", "-p", port, "-s", self.address), port)

    def test_rdma_xserver(self):
        for kind in ("r", "x"):
            with self.subTest(kind):
                port = self.port()
                self.run_both(("rdma_xserver", "-p", port, "-c", kind),
                              ("rdma_xclient", "-p", port, "-c", kind, "-s", self.address), port)

    def test_rstream(self):
        port = self.port()
        common = ("rstream", "-p", port, "-S", "1000", "-C", "100", "-T", "v")
        self.run_both(common, (*common, "-s", self.address), port)

    def test_riostream(self):
        port = self.port()
        common = ("riostream", "-p", port, "-S", "1000", "-C", "100")
        self.run_both(common, (*common, "-s", self.address), port)

    @unittest.skipUnless(PRELOADED_RSOCKETS, "no librspreload")
    def test_preloaded_rsockets(self):
        """A program that knows only sockets."""
        port = self.port()
        as_rsockets = ("env", f"LD_PRELOAD={PRELOADED_RSOCKETS[0]}")
        program = (os.path.join(BIN, "echo_by_sockets"),)
        before = (self.as_server, self.as_client)
        self.as_server, self.as_client = ((*where, *as_rsockets) for where in before)
        out, _ = self.run_both((*program, self.address, port), (*program, self.address, port, "1000000"), port)
        self.assertIn("1000000 bytes came back", out)

    def test_cmtime(self):
        port = self.port()
        server = self.start_in(self.as_server, "cmtime", "-p", port)  # it serves until it is killed
        self.wait_for_listener(server, port)
        out = self.output(self.start_in(self.as_client, "cmtime", "-p", port, "-c", "50", "-s", self.address))
        self.assertRegex(out, r"(?m)^connect +:?")

    def test_perftest(self):
        for program in ("ib_write_bw", "ib_send_lat", "ib_read_lat", "ib_atomic_bw"):
            with self.subTest(program):
                port = self.port()
                common = (program, "-R", "-d", "soft0", "-n", "100", "-p", port)
                self.run_both(common, (*common, self.address), port)

    def test_library(self):
        """The programs of this project, whose connections rdma_cm makes."""
        for program in ("ping_pong_test", "lat_bw_benchmark"):
            with self.subTest(program):
                port = self.port()
                common = (os.path.join(BIN, program), "--connector=cm", "--device=soft0", f"--port={port}")
                short = ("--iterations=10",) if program == "ping_pong_test" else \
                    ("--iterations=10", "--rounds=1", "--sizes=8,64K", "--verify")
                out, _ = self.run_both((*common, "--role=server"),
                                       (*common, "--role=client", f"--server={self.address}", *short), port)
                self.assertRegex(out, r"COMPARE_SWAP +ok|write +")

    def test_no_listener(self):
        out, _ = self.start_in(self.as_client, "rping", "-c", "-a", self.address, "-p", self.port(),
                               "-C", "1").communicate(timeout=SECONDS)
        self.assertIn("RDMA_CM_EVENT_REJECTED, error 8", out)


class Udaddy(ConnectedPrograms):
    def test_udaddy(self):
        port = "7174"  # it has no option for it
        common = ("udaddy", "-c", "3", "-C", "20")
        client, server = self.run_both((*common, "-b", self.address), (*common, "-s", self.address), port)
        for out in (client, server):
            self.assertIn("return status 0", out)


class RdmacmDatagrams(Udaddy):
    def test_mckey(self):
        def command(host, group):
            return ("mckey", "-m", group, "-C", "10", "-b", self.own_address(host, group))
        groups = ("239.1.2.3", "ff0e::1:2:3")
        receivers = [self.start_in(self.as_server, *command(0, group)) for group in groups]
        # They write nothing before they end. So the senders repeat their messages until the receivers have all of them.
        while any(receiver.poll() is None for receiver in receivers):
            for sender in [self.start_in(self.as_client, *command(1, group), "-s") for group in groups]:
                self.output(sender)
        for receiver in receivers:
            self.assertIn("joined", self.output(receiver))

    def own_address(self, _host, group):
        return "::1" if ":" in group else self.address


class RdmacmOnInfiniband(RdmacmDatagrams):
    run_options = ("--link-layer=ib",)

    def test_rping(self):
        port = self.port()
        common = ("rping", "-a", self.address, "-p", port, "-C", "20", "-V")
        self.run_both((*common, "-s"), (*common, "-c"), port)


class BetweenHosts:
    """For ConnectedPrograms: the server and the client are on two hosts."""

    def setUp(self):
        super().setUp()
        reason = why_not(loss=True)
        if reason:
            self.skipTest(reason)
        self.hosts = self.enterContext(Hosts(2))
        self.as_server, self.as_client = (("ip", "netns", "exec", self.hosts[i].namespace) for i in range(2))
        self.address = self.hosts[0].ipv4

    def own_address(self, host, group):
        return self.hosts[host].ipv6 if ":" in group else self.hosts[host].ipv4


class RdmacmBetweenHosts(BetweenHosts, RdmacmPrograms, RdmacmDatagrams):
    pass


class RdmacmOnABadCable(RdmacmBetweenHosts):
    def setUp(self):
        super().setUp()
        self.hosts.loss(1)


if __name__ == "__main__":
    unittest.main()
