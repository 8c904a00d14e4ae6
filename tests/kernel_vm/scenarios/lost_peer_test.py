"""A peer that dies, freezes or falls silent in the middle of a run: the survivor reports it in time, on every device.

rxe with retry count 7 repeats a request forever, and the library must not wait for it.
"""

import os
import re
import signal

from kernel_pair import ADDRESS, IS_IWARP, PEER_ADDRESS, PairTest, Stopwatch, by_tcp, link_down, losing, renew_pair

MOMENTS = (("write", "lat"), ("send", "lat"), ("read", "bw"))
# A frozen process or a dead network is noticed by missing heartbeats: after 10 s (silent_peer_after), plus the time
# that an emulated machine needs to check and to end. The death of a process is noticed at once. These are promises of
# the library in seconds, so RDMACOMM_SLOWNESS does not increase them.
SECONDS_OF_DEATH, SECONDS_OF_SILENCE = 3, 10 + 6
SILENCE = "sent nothing for|sent no heartbeat|timed out"
# Log lines of the library that are not program output: a warning if a link goes down, and the verbose lines that are
# requested below. Tests ignore them, but print them if something took too long.
LOG_LINES = re.compile(r"^(I\d+ |W\d+ .* rdmacomm: \w+ port 1 has lost its link;).*\n", re.M)
os.environ["RCL_MAX_VLOG_LEVEL"] = "2"


class LostPeer:
    """For each connector. Waiting for silence takes long, so several pairs are tested at the same time."""

    moments_of_death = MOMENTS
    deaths_noticed_at_once = len(MOMENTS)
    ends_of_cable = ("a", "b")
    # TCP may notice first, because its host has no route any more.
    link_down_says = "port 1 of|the connection failed: No route to host|" + SILENCE

    def assert_ends(self, since, program, *parts):
        """The program must end in time after `since`, with one line that has all `parts`. Returns the seconds that
        it took."""
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
        """Expects the number of deaths noticed at once that the connector promises."""
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

    def test_cable_that_loses_all_packets(self):
        """The processes live and the links are up, but no packet arrives any more, as behind a dead switch."""
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
        """Repairs the devices after their link was down."""


@by_tcp
class ByTcp(LostPeer, PairTest):
    connector = "tcp"


class ByCm(LostPeer, PairTest):
    connector = "cm"
    # One end is enough: ByTcp tests the rest, which does not depend on the connector and would take longer here.
    ends_of_cable = ("a",)
    # rdma_cm reports a death by a single datagram. If it is lost, the death is noticed by the silence. Three out of at
    # most five must be noticed at once.
    moments_of_death = MOMENTS[1:2] * 5
    deaths_noticed_at_once = 3
    # The connection for messages goes down with the link; siw ends it by itself.
    link_down_says = LostPeer.link_down_says + "|closed the connection|the connection failed"

    def mend(self):
        """rxe's queue pair 1, which rdma_cm uses, fails permanently if it sends while the link is down."""
        if not IS_IWARP:
            renew_pair()
