"""A peer that dies, freezes or falls silent in the middle of it: the other side says so, in time, whatever the device does.

rxe with retry count 7 repeats a request for ever: the library must not wait for it.
"""

import re
import signal
import time

from kernel_pair import ADDRESS, IS_IWARP, PEER_ADDRESS, PairTest, by_tcp, link_down, losing, renew_pair
from program_runs import LAT_BW, SLOW

ENDLESS = ("--duration=600", "--rounds=1", "--sizes=64")
MOMENTS = (("write", "lat"), ("send", "lat"), ("read", "bw"))
# A frozen process or a dead network is noticed by the lack of any sign of life. A process that dies is at once; but by
# rdma_cm a single datagram tells of it, which is lost at times, and then it is by the silence as well.
SECONDS_OF_DEATH, SECONDS_OF_SILENCE = 2, 12
SILENCE = "silent|no sign of life|timed out"


class LostPeer:
    """For each connector. What takes long, to be silent, happens to several pairs at a time."""

    moments_of_death = MOMENTS
    seconds_of_death = SECONDS_OF_DEATH
    ends_of_cable = ("a", "b")
    # TCP may be the first to notice: its host has no route any more.
    link_down_says = "port 1 of|the connection failed: No route to host|" + SILENCE

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

    def assert_misses_server(self, client, server, seconds, *parts):
        self.assert_ends(client, seconds, re.escape(PEER_ADDRESS), f"pid {server.pid}", *parts)

    def assert_misses_client(self, server, client, seconds, *parts):
        self.assert_ends(server, seconds, re.escape(ADDRESS), f"pid {client.pid}", *parts)

    def test_server_killed(self):
        for moment in self.moments_of_death:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                server.kill()
                self.assert_misses_server(client, server, self.seconds_of_death)

    def test_client_killed(self):
        for moment in self.moments_of_death:
            with self.subTest(moment):
                server, client = self.run_until(moment)
                client.kill()
                self.assert_misses_client(server, client, self.seconds_of_death)

    def test_frozen(self):
        server, client = self.run_until(("write", "lat"))
        other_server, other_client = self.run_until(("send", "lat"))
        server.kill(signal.SIGSTOP)
        other_client.kill(signal.SIGSTOP)
        self.assert_misses_server(client, server, SECONDS_OF_SILENCE, SILENCE)
        self.assert_misses_client(other_server, other_client, SECONDS_OF_SILENCE, SILENCE)

    def test_cable_that_swallows_everything(self):
        """The processes live and the links are up; no packet arrives any more, as behind a dead switch."""
        pairs = [self.run_until(moment) for moment in MOMENTS[:2]]
        with losing(100):
            for server, client in pairs:
                self.assert_misses_server(client, server, SECONDS_OF_SILENCE, SILENCE)
                self.assert_misses_client(server, client, SECONDS_OF_SILENCE, SILENCE)

    def test_link_that_goes_down(self):
        for end in self.ends_of_cable:
            with self.subTest(end):
                server, client = self.run_until(("write", "lat"))
                try:
                    with link_down(end):
                        self.assert_ends(client, SECONDS_OF_SILENCE, self.link_down_says)
                        self.assert_ends(server, SECONDS_OF_SILENCE, self.link_down_says)
                finally:
                    client.end()
                    server.end()
                    self.mend()

    def mend(self):
        """Makes the devices good again after their link was down."""


@by_tcp
class ByTcp(LostPeer, PairTest):
    connector = "tcp"


class ByCm(LostPeer, PairTest):
    connector = "cm"
    # What does not depend on the connector is seen by TCP; here it would take longer.
    moments_of_death = MOMENTS[1:2]
    ends_of_cable = ("a",)
    seconds_of_death = SECONDS_OF_SILENCE
    # The connection of the messages goes down with the link; siw ends it itself.
    link_down_says = LostPeer.link_down_says + "|closed the connection|the connection failed"

    def mend(self):
        """rxe's queue pair 1, by which rdma_cm talks, fails for good when it sends while the link is down."""
        if not IS_IWARP:
            renew_pair()
