"""A peer that dies, freezes or falls silent in the middle of it: the other side says so, in time, whatever the device does.

rxe with retry count 7 repeats a request for ever: the library must not wait for it.
"""

import re
import signal
import time
import unittest

from kernel_pair import ADDRESS, CONNECTED_BY_TCP, PEER_ADDRESS, PairTest, link_down, losing
from program_runs import LAT_BW, SLOW

ENDLESS = ("--duration=600", "--rounds=1", "--sizes=64")
MOMENTS = (("write", "lat"), ("send", "lat"), ("read", "bw"))
# A process that dies is noticed at once. A frozen one or a dead network is by the lack of any sign of life.
SECONDS_OF_DEATH, SECONDS_OF_SILENCE = 2, 12
SILENCE = "silent|no sign of life|timed out"


@unittest.skipUnless(CONNECTED_BY_TCP, "iWARP connects by rdma_cm only")
class LostPeer(PairTest):
    def run_until(self, moment):
        """A server and a client in the middle of that measurement."""
        server, port = self.start_server(LAT_BW)
        client = self.start_client(LAT_BW, port, *ENDLESS, f"--ops={moment[0]}", f"--tests={moment[1]}")
        client.wait_for("op +measures")
        return server, client

    def assert_ends(self, program, seconds, *parts):
        began = time.monotonic()
        self.assert_one_line(program.finish(seconds), *parts)
        self.assertLess(time.monotonic() - began, seconds * SLOW)

    def test_server_killed(self):
        for moment in MOMENTS:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                server.kill()
                self.assert_ends(client, SECONDS_OF_DEATH, re.escape(PEER_ADDRESS), f"pid {server.pid}")

    def test_client_killed(self):
        for moment in MOMENTS:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                client.kill()
                self.assert_ends(server, SECONDS_OF_DEATH, re.escape(ADDRESS), f"pid {client.pid}")

    def test_server_frozen(self):
        for moment in MOMENTS[:2]:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                server.kill(signal.SIGSTOP)
                self.assert_ends(client, SECONDS_OF_SILENCE, re.escape(PEER_ADDRESS), f"pid {server.pid}", SILENCE)

    def test_client_frozen(self):
        server, client = self.run_until(("write", "lat"))
        client.kill(signal.SIGSTOP)
        self.assert_ends(server, SECONDS_OF_SILENCE, re.escape(ADDRESS), f"pid {client.pid}", SILENCE)

    def test_cable_that_swallows_everything(self):
        """Both processes live and the links are up; no packet arrives any more, as behind a dead switch."""
        for moment in MOMENTS[:2]:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                with losing(100):
                    self.assert_ends(client, SECONDS_OF_SILENCE, re.escape(PEER_ADDRESS), f"pid {server.pid}", SILENCE)
                    self.assert_ends(server, SECONDS_OF_SILENCE, re.escape(ADDRESS), f"pid {client.pid}", SILENCE)

    def test_link_that_goes_down(self):
        for end in ("a", "b"):
            with self.subTest(end):
                server, client = self.run_until(("write", "lat"))
                with link_down(end):
                    self.assert_ends(client, SECONDS_OF_SILENCE, "port 1 of|" + SILENCE)
                    self.assert_ends(server, SECONDS_OF_SILENCE, "port 1 of|" + SILENCE)
