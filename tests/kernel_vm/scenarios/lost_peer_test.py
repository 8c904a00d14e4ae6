"""A peer that dies, freezes or falls silent in the middle of it: the other side says so, in time, whatever the device does.

rxe with retry count 7 repeats a request for ever: the library must not wait for it.
"""

import os
import re
import signal

from kernel_pair import ADDRESS, IS_IWARP, PEER_ADDRESS, PairTest, Stopwatch, by_tcp, link_down, losing, renew_pair

MOMENTS = (("write", "lat"), ("send", "lat"), ("read", "bw"))
# A frozen process or a dead network is noticed by the lack of any sign of life: 10 s of it (silent_peer_after), and what
# an emulated machine takes to look, and to end. A process that dies is noticed at once. These are seconds of the clock,
# promises of the library: they do not grow with RDMACOMM_SLOWNESS.
SECONDS_OF_DEATH, SECONDS_OF_SILENCE = 3, 10 + 6
SILENCE = "silent|no sign of life|timed out"
# What the library says in the log besides what the program says: of a link that goes down a warning, and, asked for below,
# what it does. That is not looked at, but shown where something took too long.
LOG_LINES = re.compile(r"^(I\d+ |W\d+ .* rdmacomm: \w+ port 1 has lost its link;).*\n", re.M)
os.environ["RCL_MAX_VLOG_LEVEL"] = "2"


class LostPeer:
    """For each connector. What takes long, to be silent, happens to several pairs at a time."""

    moments_of_death = MOMENTS
    deaths_noticed_at_once = len(MOMENTS)
    ends_of_cable = ("a", "b")
    # TCP may be the first to notice: its host has no route any more.
    link_down_says = "port 1 of|the connection failed: No route to host|" + SILENCE

    def assert_ends(self, since, program, *parts):
        """It ends with that error, and in time after `since`. Returns the seconds that it took at most."""
        status, out, err = program.finish(SECONDS_OF_SILENCE)
        took = since.seconds()
        self.assert_one_line((status, out, LOG_LINES.sub("", err)), *parts)
        self.assertLess(took, SECONDS_OF_SILENCE, "the end of its log:\n" + "\n".join(err.splitlines()[-20:]))
        return took

    def assert_misses_server(self, since, client, server, *parts):
        return self.assert_ends(since, client, re.escape(PEER_ADDRESS), f"pid {server.pid}", *parts)

    def assert_misses_client(self, since, server, client, *parts):
        return self.assert_ends(since, server, re.escape(ADDRESS), f"pid {client.pid}", *parts)

    def seconds_without_server(self, moment):
        server, client = self.run_until(moment)
        since = Stopwatch()
        server.kill()
        return self.assert_misses_server(since, client, server)

    def seconds_without_client(self, moment):
        server, client = self.run_until(moment)
        since = Stopwatch()
        client.kill()
        return self.assert_misses_client(since, server, client)

    def assert_noticed_at_once(self, seconds_without_peer):
        """As many of the deaths as the connector promises."""
        seconds = []
        for moment in self.moments_of_death:
            seconds.append(seconds_without_peer(moment))
            if sum(took < SECONDS_OF_DEATH for took in seconds) == self.deaths_noticed_at_once:
                return
        self.fail(f"too few of the deaths were noticed within {SECONDS_OF_DEATH} s; they took {seconds}")

    def test_server_killed(self):
        self.assert_noticed_at_once(self.seconds_without_server)

    def test_client_killed(self):
        self.assert_noticed_at_once(self.seconds_without_client)

    def test_frozen(self):
        server, client = self.run_until(("write", "lat"))
        other_server, other_client = self.run_until(("send", "lat"))
        since = Stopwatch()
        server.kill(signal.SIGSTOP)
        other_client.kill(signal.SIGSTOP)
        self.assert_misses_server(since, client, server, SILENCE)
        self.assert_misses_client(since, other_server, other_client, SILENCE)

    def test_cable_that_swallows_everything(self):
        """The processes live and the links are up; no packet arrives any more, as behind a dead switch."""
        pairs = [self.run_until(moment) for moment in MOMENTS[:2]]
        with losing(100):
            since = Stopwatch()
            for server, client in pairs:
                self.assert_misses_server(since, client, server, SILENCE)
                self.assert_misses_client(since, server, client, SILENCE)

    def test_link_that_goes_down(self):
        for end in self.ends_of_cable:
            with self.subTest(end):
                server, client = self.run_until(("write", "lat"))
                try:
                    with link_down(end):
                        since = Stopwatch()
                        self.assert_ends(since, client, self.link_down_says)
                        self.assert_ends(since, server, self.link_down_says)
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
    ends_of_cable = ("a",)
    # A single datagram of rdma_cm tells of a death. It is lost at times, and then the death is noticed by the silence:
    # three out of at most five are noticed at once.
    moments_of_death = MOMENTS[1:2] * 5
    deaths_noticed_at_once = 3
    # The connection of the messages goes down with the link; siw ends it itself.
    link_down_says = LostPeer.link_down_says + "|closed the connection|the connection failed"

    def mend(self):
        """rxe's queue pair 1, by which rdma_cm talks, fails for good when it sends while the link is down."""
        if not IS_IWARP:
            renew_pair()
