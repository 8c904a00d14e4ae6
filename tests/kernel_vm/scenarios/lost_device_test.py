"""`rdma link delete` removes the device of a running pair: both programs report it and end, so that the kernel can
finish.

The kernel cannot force users to release rxe and siw. It removes the device from its lists and waits until the last user
has closed it. By TCP no user is informed, so the library checks once a second; by rdma_cm it is informed at once.
"""

from kernel_pair import KIND, PairTest, Stopwatch, by_tcp, renew_pair

# Promises of the library in seconds: one check per second, plus the time that an emulated machine needs to end.
SECONDS = 6


class LostDevice:
    """For each connector."""

    def assert_ends(self, program, since, *parts):
        self.assert_one_line(program.finish(SECONDS), *parts)
        self.assertLess(since.seconds(), SECONDS)

    def lose(self, end, moment):
        """Removes the device of one end. The program there reports it, and so does the peer as far as it can know."""
        server, client = self.run_until(moment)
        here, there = (client, server) if end == "a" else (server, client)
        device = f"{KIND}_{end}"
        self.addCleanup(renew_pair)
        self.addCleanup(there.end)
        self.addCleanup(here.end)
        since = Stopwatch()
        removal = self.start("rdma", "link", "delete", device)
        self.assert_ends(here, since, rf"RDMA device {device} (was|is being) removed")
        self.assert_ends(there, since, self.peer_says.format(device=device))
        self.assertEqual(removal.finish(SECONDS), (0, "", ""), "the kernel did not finish")

    def test_under_the_client(self):
        self.lose("a", ("write", "lat"))

    def test_under_the_server(self):
        self.lose("b", ("send", "bw"))


@by_tcp
class ByTcp(LostDevice, PairTest):
    connector = "tcp"
    peer_says = "ended the connection: the RDMA device {device} was removed"


class ByCm(LostDevice, PairTest):
    connector = "cm"
    # The kernel ends the connection for messages together with the device, so the reason cannot be sent.
    peer_says = "ended the connection: the RDMA device {device} was removed|closed the connection without notice"
