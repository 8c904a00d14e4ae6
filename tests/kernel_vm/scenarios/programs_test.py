"""The two programs between the two devices, every operation, every byte verified."""

import unittest

from kernel_pair import CONNECTED_BY_TCP, PairTest
from program_runs import LAT_BW, PING_PONG

SHORT = ("--iterations=20", "--rounds=1", "--verify")


@unittest.skipUnless(CONNECTED_BY_TCP, "iWARP connects by rdma_cm only")
class ConnectedByTcp(PairTest):
    def test_ping_pong(self):
        for polling in ("busy", "event"):
            with self.subTest(polling):
                self.run_between(PING_PONG, "--iterations=50", f"--polling={polling}")

    def test_lat_bw(self):
        out = self.run_between(LAT_BW, *SHORT, "--sizes=8,4K,64K")
        for op in ("send", "write", "write_imm", "read", "fetch_add", "compare_swap"):
            self.assertRegex(out, rf"(?m)^{op} ")
