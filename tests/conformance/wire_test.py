#!/usr/bin/env python3
"""Programs of other projects and of this one, on soft0 between hosts: network namespaces of this machine, whose soft0
devices reach each other by TCP. The cable is good, lossy, slow, or disconnected for a while.

usage: wire_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run and the programs. With RDMACOMM_CONFORMANCE=full perftest runs with all
options, else each program runs with few options. Needs root for the namespaces; without root the tests are skipped.
"""

import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import FULL, OPTIONS, RUN, SECONDS, ForeignProgramTest, messages_of  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402
from listening import listens  # noqa: E402

BIN = os.environ.get("RDMACOMM_BIN", "")
PORT = 18515
# As the user nobody, whose processes soft0 does not share memory with.
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
LINK_LOCAL, IPV4, IPV6 = "1", "3", "5"  # entries of the GID table


def options_of(options):
    return options if FULL else options[:1]


class BetweenHosts(ForeignProgramTest):
    """The server runs on host 0, the clients on the others."""

    count = 2

    def setUp(self):
        reason = why_not(loss=True, rate=True)
        if reason:
            self.skipTest(reason)
        self.hosts = self.enterContext(Hosts(self.count))

    def start_on(self, number, *arguments):
        return self.hosts.run(number, arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def start_server(self, *arguments, port=PORT):
        server = self.start_on(0, *arguments)
        # `ip netns exec` changes the namespace and then becomes the program. Before that, it is in this namespace.
        while server.poll() is None and not (os.readlink(f"/proc/{server.pid}/ns/net") != os.readlink("/proc/self/ns/net")
                                             and listens(port, server.pid)):
            time.sleep(0.01)
        return server

    def run_pair(self, *arguments, run_options=(), as_client=(), client=1):
        command = (RUN, *run_options, *arguments)
        server = self.start_server(*command)
        out = self.output(self.start_on(client, *as_client, *command, self.hosts[0].ipv4))
        self.output(server)
        return out

    def perftest(self, program, *options):
        messages = messages_of(options)
        out = self.run_pair(program, "-d", "soft0", "-x", IPV4, "-F", "-n", str(messages), *options)
        self.assertRegex(out, rf"(?m)^ \d+ +{messages}(0|00)? |^ \d+ +{4 * messages} ")

    def pingpong(self, kind, *options, gid=IPV4):
        self.assertRegex(self.run_pair(f"ibv_{kind}_pingpong", "-d", "soft0", "-g", gid, "-c", *options), "iters in")

    def xrc_pingpong(self, *options, clients=1, run_options=(), as_client=(), gid=IPV4):
        """Each client has one connection in each direction to the server. All send to one shared receive queue of
        it."""
        common = (RUN, *run_options, "ibv_xsrq_pingpong", "-d", "soft0", "-g", gid, *options)
        server = self.start_server(*common, "-c", str(clients))
        on = 1 if not as_client else 0
        started = [self.start_on(on, *as_client, *common, self.hosts[0].ipv4) for _ in range(clients)]
        for process in (*started, server):
            self.assertRegex(self.output(process), "(?m)^success$")


class GoodCable(BetweenHosts):
    def test_xrc(self):
        for options in ((), ("-e",), ("-s", "100000", "-n", "100")):
            with self.subTest(options):
                self.xrc_pingpong(*options)
        self.xrc_pingpong("-n", "200", clients=3)
        self.xrc_pingpong(gid=IPV6)

    def test_pingpong(self):
        for kind in ("rc", "uc", "ud", "srq"):
            for options in ((), ("-e",)):
                with self.subTest(kind, options=options):
                    self.pingpong(kind, *options)

    def test_long_messages(self):
        for kind in ("rc", "uc", "srq"):
            with self.subTest(kind):
                self.pingpong(kind, "-s", "1000000", "-n", "50")

    def test_each_kind_of_address(self):
        for gid in (LINK_LOCAL, IPV4, IPV6):
            with self.subTest(gid):
                self.pingpong("rc", gid=gid)
                self.pingpong("ud", gid=gid)

    def test_perftest(self):
        """Messages of all sizes, which take long, are sent through the lossy cable."""
        for program, options in OPTIONS.items():
            for chosen in options_of(options):
                if "-a" in chosen:
                    continue
                with self.subTest(program=program, options=chosen):
                    self.perftest(program, *chosen)

    def test_long_packets(self):
        self.hosts.mtu(9000)
        self.pingpong("rc", "-s", "1000000", "-n", "50")
        self.perftest("ib_write_bw")

    def test_late(self):
        out = self.run_pair("ibv_rc_pingpong", "-d", "soft0", "-g", IPV4, "-c", "-n", "100", run_options=("--late=1",))
        self.assertRegex(out, "iters in")


class BadCable(BetweenHosts):
    """One of a hundred packets is lost."""

    def setUp(self):
        super().setUp()
        self.hosts.loss(1)

    def test_pingpong(self):
        for kind in ("rc", "uc", "ud", "srq"):
            with self.subTest(kind):
                self.pingpong(kind)
        self.assertGreater(self.hosts.lost(0), 0)

    def test_xrc(self):
        self.xrc_pingpong()
        self.xrc_pingpong("-e")
        self.xrc_pingpong("-n", "200", clients=3)
        self.assertGreater(self.hosts.lost(0), 0)

    def test_perftest(self):
        for program, options in OPTIONS.items():
            for chosen in options_of(options):
                with self.subTest(program=program, options=chosen):
                    self.perftest(program, *chosen)
        self.assertGreater(self.hosts.lost(0), 0)


class SlowCable(BetweenHosts):
    def test_it_is_used_fully_without_loss(self):
        self.hosts.rate("200mbit")
        self.perftest("ib_send_bw", "-s", "65536")
        self.perftest("ib_send_bw", "-c", "UD")


class PulledCable(BetweenHosts):
    def pull(self, seconds):
        self.hosts.link(1, "down")
        time.sleep(seconds)
        self.hosts.link(1, "up")

    def test_requests_wait_until_it_is_plugged_in_again(self):
        common = (RUN, "ib_write_bw", "-d", "soft0", "-x", IPV4, "-F", "-D", "3")
        server = self.start_server(*common)
        client = self.start_on(1, *common, self.hosts[0].ipv4)
        time.sleep(1)
        self.pull(0.5)
        self.output(client)
        self.output(server)


class Peers(BetweenHosts):
    count = 3

    def test_two_hosts_send_to_a_third(self):
        def common(port):
            return (RUN, "ibv_rc_pingpong", "-d", "soft0", "-g", IPV4, "-c", "-p", str(port))

        servers = [self.start_server(*common(PORT + number), port=PORT + number) for number in (1, 2)]
        clients = [self.start_on(number, *common(PORT + number), self.hosts[0].ipv4) for number in (1, 2)]
        for process in (*clients, *servers):
            self.assertRegex(self.output(process), "iters in")

    def test_a_killed_peer_ends_the_program(self):
        common = (RUN, "ib_write_bw", "-d", "soft0", "-x", IPV4, "-F", "-D", "60")
        server = self.start_server(*common)
        client = self.start_on(1, *common, self.hosts[0].ipv4)
        time.sleep(2)
        server.kill()
        out, _ = client.communicate(timeout=SECONDS)
        self.assertNotEqual(client.returncode, 0, out)

    def test_another_user_on_this_host(self):
        out = self.run_pair("ibv_rc_pingpong", "-d", "soft0", "-g", IPV4, "-c", as_client=AS_NOBODY, client=0)
        self.assertRegex(out, "iters in")
        self.xrc_pingpong(as_client=AS_NOBODY)

    def test_the_library(self):
        server = self.start_server(os.path.join(BIN, "ping_pong_test"), "--role=server", f"--port={PORT}", port=PORT)
        self.output(self.start_on(1, os.path.join(BIN, "ping_pong_test"), "--role=client", f"--port={PORT}",
                                  f"--server={self.hosts[0].ipv4}"))
        self.output(server)


if __name__ == "__main__":
    unittest.main()
