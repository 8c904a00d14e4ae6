"""The two programs between the two devices, every operation, every byte verified."""

import re
import unittest

from kernel_pair import DEVICE, IS_IWARP, OPERATIONS, PEER_DEVICE, PairTest, by_tcp
from program_runs import LAT_BW, PING_PONG

SHORT = ("--iterations=10", "--rounds=1", "--verify", "--sizes=8,64K")


class Programs:
    """The tests that every connector must pass."""

    def test_ping_pong(self):
        for polling in ("busy", "event"):
            with self.subTest(polling):
                out = self.run_between(PING_PONG, "--iterations=50", f"--polling={polling}")
                self.assertEqual(len(re.findall("bytes verified", out)), 4 if IS_IWARP else 8, out)

    def test_lat_bw(self):
        out = self.run_between(LAT_BW, *SHORT, "--ops=" + ",".join(OPERATIONS))
        for op in OPERATIONS:
            self.assertRegex(out, rf"(?m)^{op} ")

    def test_clients_one_after_the_other(self):
        """A run must not disturb the next one."""
        server, port = self.start_server(PING_PONG, "--keep-serving")
        for _ in range(2):
            self.assert_success(self.start_client(PING_PONG, port, "--iterations=10").finish())
        self.assertIsNone(server.process.poll())


@by_tcp
class ByTcp(Programs, PairTest):
    connector = "tcp"


class ByCm(Programs, PairTest):
    connector = "cm"


class Chosen(PairTest):
    """The connector that "auto" chooses, and the device on the route."""

    connector = "auto"

    def test_only_the_server_is_named(self):
        server, port = self.start_server(PING_PONG)
        client = self.start(PING_PONG, f"--server={self.server_address}", f"--port={port}", "--iterations=10")
        out = self.assert_success(client.finish())
        self.assert_success(server.finish(10))
        self.assertRegex(out, rf"(?m)^client  {DEVICE}\b")
        self.assertRegex(out, rf"(?m)^server  {PEER_DEVICE}\b")
