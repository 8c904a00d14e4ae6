"""Server and client that do not fit, or cannot reach each other: refused in time, before any traffic, with the
cause."""

import re
import unittest

from kernel_pair import (DEVICE, IS_IWARP, KIND, PEER_ADDRESS, PEER_DEVICE, PairTest, Stopwatch, by_tcp, link_down, mtu_of,
                         no_route_from, pair)
from program_runs import LAT_BW, PING_PONG

# Longest time for the program to report the error, in seconds: the default --connect-timeout, which includes the
# longest wait, and the time that an emulated machine needs to start and end a program. This is a promise of the
# library, so RDMACOMM_SLOWNESS does not increase it.
SECONDS = 10 + 6


class Refusals(PairTest):
    def assert_refused(self, client, *parts):
        began = Stopwatch()
        result = client.finish(SECONDS)
        self.assertLess(began.seconds(), SECONDS)
        self.assert_one_line(result, *parts)


@by_tcp
class Mismatch(Refusals):
    def test_gid_of_another_kind(self):
        """Both have a fixed GID: fe80::... and ::ffff:10.2.0.2. No packet could be sent from one to the other."""
        server, port = self.start_server(PING_PONG, f"--gid-index={pair('gid', KIND, 'b')}")
        self.assert_refused(self.start_client(PING_PONG, port, "--gid-index=0"), "fe80:", "::ffff:10.2.0.2|IPv4")
        # The server logs the error, and serves the next client.
        self.assert_success(self.start_client(PING_PONG, port, "--iterations=10").finish())
        status, _, err = server.finish(10)
        self.assertEqual(status, 0, err)
        self.assertRegex(err, "fe80:")

    def test_gid_that_one_end_requires(self):
        """The peer uses the GID type of the end that has a fixed one."""
        out = self.run_between(PING_PONG, "--gid-index=0", "--iterations=10")
        self.assertEqual(len(re.findall("GID fe80:", out)), 2, out)

    def test_missing_gid_index(self):
        _, port = self.start_server(PING_PONG)
        self.assert_refused(self.start_client(PING_PONG, port, "--gid-index=77"), "77", DEVICE)

    def test_missing_device(self):
        self.assert_refused(self.start(PING_PONG, "--role=server", "--port=0", "--device=mlx5_9"), "mlx5_9", DEVICE, PEER_DEVICE)

    def test_port_that_is_down_before_connecting(self):
        with link_down("b"):
            self.assert_refused(self.start(PING_PONG, "--role=server", "--port=0", f"--device={PEER_DEVICE}"),
                                PEER_DEVICE, "port 1", "(?i)down|not active")

    def test_no_route_to_the_peer(self):
        _, port = self.start_server(PING_PONG)
        with no_route_from("a"):
            self.assert_refused(self.start_client(PING_PONG, port, "--connect-timeout=2"), re.escape(PEER_ADDRESS),
                                "(?i)unreachable|no route")


class MismatchByCm(Refusals):
    connector = "cm"

    def test_no_server_listens(self):
        self.assert_refused(self.start_client(PING_PONG, 4711, "--connect-timeout=2"), "no server listens by rdma_cm",
                            re.escape(PEER_ADDRESS) + ":4711", "2 s")

    def test_no_route_to_the_peer(self):
        _, port = self.start_server(PING_PONG)
        with no_route_from("a"):
            self.assert_refused(self.start_client(PING_PONG, port, "--connect-timeout=2"), re.escape(PEER_ADDRESS),
                                "(?i)unreachable|no route")

    def test_device_that_is_not_on_the_route(self):
        """The client's --device names the device at the wrong end of the cable."""
        server, port = self.start_server(PING_PONG)
        self.assert_refused(self.start_client(PING_PONG, port, device=PEER_DEVICE), DEVICE, PEER_DEVICE, "--device")
        self.assert_success(self.start_client(PING_PONG, port, "--iterations=10").finish())
        self.assertEqual(server.finish(10)[0], 0)

    @unittest.skipIf(IS_IWARP, "iWARP has no choice of GIDs")
    def test_gid_that_rdma_cm_does_not_use(self):
        """One end has the fixed GID fe80::..., but rdma_cm uses ::ffff:10.2.0.x. A client without a fixed GID is
        served."""
        server, port = self.start_server(PING_PONG)
        both = ("::ffff:10.2.0.1 \\(RoCE v2\\)", "index 0 fe80:", "--connector=tcp")
        self.assert_refused(self.start_client(PING_PONG, port, "--gid-index=0"), *both)
        chosen = f"--gid-index={pair('gid', KIND, 'a')}"
        self.assert_success(self.start_client(PING_PONG, port, "--iterations=10", chosen).finish())
        self.assertEqual(server.finish(10)[0], 0)
        _, port = self.start_server(PING_PONG, "--gid-index=0")
        self.assert_refused(self.start_client(PING_PONG, port), "ended the connection", "::ffff:10.2.0.2 \\(RoCE v2\\)", "index 0 fe80:")

    def test_server_that_is_reached_over_another_device(self):
        server, port = self.start_server(PING_PONG, device=DEVICE)
        self.assert_refused(self.start_client(PING_PONG, port), DEVICE, PEER_DEVICE, "ended the connection")

    def test_software_device(self):
        self.assert_refused(self.start(PING_PONG, "--role=server", "--port=0", "--device=soft0", "--connector=cm"),
                            "soft0", "not known to rdma_cm", "tcp")

    def test_port_in_use(self):
        _, port = self.start_server(PING_PONG)
        other = self.start(PING_PONG, "--role=server", f"--port={port}", f"--device={PEER_DEVICE}", "--connector=cm")
        self.assert_refused(other, str(port), "another program listens there")

    @unittest.skipUnless(IS_IWARP, "RoCE is connected by TCP as well")
    def test_tcp_cannot_connect_iwarp(self):
        self.assert_refused(self.start(PING_PONG, "--role=server", "--port=0", f"--device={DEVICE}", "--connector=tcp"),
                            DEVICE, "iWARP", "cm or auto")


@by_tcp
class DifferentMtus(PairTest):
    """One interface has MTU 1500 (its device then 1024), the other one 4500 (4096): both must use the smaller one."""

    def path_mtu(self, *arguments, server_arguments=()):
        out = self.run_between(PING_PONG, "--iterations=10", "--size=64K", *arguments, server_arguments=server_arguments)
        return int(re.search(r"path MTU (\d+)", out).group(1))

    def test_of_either_interface(self):
        for end in ("a", "b"):
            with self.subTest(end), mtu_of(end, 1500):
                self.assertEqual(self.path_mtu(), 1024)
        self.assertEqual(self.path_mtu(), 4096)

    def test_requested_by_one_end(self):
        self.assertEqual(self.path_mtu("--mtu=512"), 512)
        self.assertEqual(self.path_mtu(server_arguments=("--mtu=2048",)), 2048)

    def test_verified_by_the_benchmark(self):
        with mtu_of("b", 1500):
            self.run_between(LAT_BW, "--iterations=10", "--rounds=1", "--verify", "--sizes=64K", "--mtu=512")


@unittest.skipIf(IS_IWARP, "iWARP leaves the MTU to TCP")
class DifferentMtusByCm(DifferentMtus):
    """rdma_cm only knows the client's MTU. So it is reduced for the queue pairs, and messages use small segments."""

    connector = "cm"
