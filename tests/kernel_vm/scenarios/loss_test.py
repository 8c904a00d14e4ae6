"""A cable that loses packets: all data still arrives unchanged."""

from kernel_pair import IS_IWARP, PairTest, by_tcp, command, interface, losing
from program_runs import LAT_BW

SHORT = ("--iterations=10", "--rounds=1", "--verify", "--tests=lat,bw", "--sizes=8,4K,64K")
OPERATIONS = ("send", "write", "read") if IS_IWARP else ("send", "write", "write_imm", "read")


class Loss:
    """For each connector, whose own messages to the peer must arrive as well."""

    def dropped(self):
        """Packets that the cable has lost in both directions."""
        words = " ".join(command("tc", "-s", "qdisc", "show", "dev", interface(end)) for end in ("a", "b")).split()
        return sum(int(words[i + 1].rstrip(",")) for i, word in enumerate(words) if word == "(dropped")

    def run_losing(self, percent):
        """Returns how many packets the cable has lost."""
        with losing(percent):
            self.run_between(LAT_BW, *SHORT, "--ops=" + ",".join(OPERATIONS), seconds=30)
            return self.dropped()

    def test_of_no_packets(self):
        self.assertEqual(self.run_losing(0), 0)

    def test_of_one_percent_of_the_packets(self):
        self.assertGreater(self.run_losing(1), 0)


@by_tcp
class ByTcp(Loss, PairTest):
    connector = "tcp"


class ByCm(Loss, PairTest):
    connector = "cm"
