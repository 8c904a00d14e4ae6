"""The runs over IPv6, and over link-local addresses: the address decides which GID RoCE uses."""

import os
import pathlib
import re
import subprocess
import unittest

from kernel_pair import DEVICE, IS_IWARP, KIND, OPERATIONS, PEER_DEVICE, PairTest, by_tcp, command, interface, pair
from program_runs import BIN, LAT_BW, PING_PONG, SLOW

CONTRACT_TESTS = pathlib.Path(BIN).parent / "tests/contract/contract_tests"
ADDRESS, PEER_ADDRESS = pair("address", KIND, "a", "6"), pair("address", KIND, "b", "6")


def link_local(end):
    return re.search(r"inet6 (fe80:[0-9a-f:]+)/", command("ip", "-6", "address", "show", "dev", interface(end))).group(1)


class Ipv6:
    """For each connector."""

    server_address = PEER_ADDRESS

    def run_by(self, address, *gids):
        """One run to that address, in which RoCE must use these GIDs."""
        self.server_address = address
        out = self.run_between(PING_PONG, "--iterations=10")
        for gid in () if IS_IWARP else gids:
            self.assertRegex(out, f"GID {gid} ")

    def test_ping_pong(self):
        self.run_by(PEER_ADDRESS, ADDRESS, PEER_ADDRESS)

    def test_lat_bw(self):
        self.run_between(LAT_BW, "--iterations=10", "--rounds=1", "--verify", "--sizes=64K", "--ops=" + ",".join(OPERATIONS))

    def test_link_local(self):
        self.run_by(f"{link_local('b')}%{interface('a')}", link_local("a"), link_local("b"))

    def test_link_local_without_interface(self):
        _, port = self.start_server(PING_PONG)
        self.server_address = link_local("b")
        self.assert_one_line(self.start_client(PING_PONG, port).finish(), re.escape(link_local("b")), "fe80::1%eth0")

    def test_device_is_found_by_the_route(self):
        server, port = self.start_server(PING_PONG, "--keep-serving")
        for address in (f"[{PEER_ADDRESS}]", f"{link_local('b')}%{interface('a')}"):
            with self.subTest(address):
                client = self.start(PING_PONG, f"--server={address}", f"--port={port}", "--iterations=10",
                                    f"--connector={self.connector}")
                out = self.assert_success(client.finish())
                self.assertRegex(out, rf"(?m)^client  {DEVICE}\b.*\nserver  {PEER_DEVICE}\b")
        self.assertIsNone(server.process.poll())


@by_tcp
class ByTcp(Ipv6, PairTest):
    connector = "tcp"


class ByCm(Ipv6, PairTest):
    connector = "cm"


class Contract(unittest.TestCase):
    """Parts of the contract tests, whose queue pairs are connected by rdma_cm over IPv6."""

    def test_by_cm(self):
        environment = {**os.environ, "RDMACOMM_TEST_LINK": "cm", "RDMACOMM_TEST_ADDRESS": ADDRESS,
                       "RDMACOMM_TEST_PEER_ADDRESS": PEER_ADDRESS}
        done = subprocess.run([CONTRACT_TESTS, "--hardware", "--gtest_filter=VerbsTest.*:AtomicsTest.*:*MessagesTest.*"],
                              env=environment, capture_output=True, text=True, timeout=60 * SLOW, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "connected by rdma_cm")
        self.assertRegex(done.stdout, r"OK \] Connectors/MessagesTest\.\w+/ByCm")
