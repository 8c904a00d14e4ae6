#!/usr/bin/env python3
"""hosts.py: the hosts reach each other at all addresses, and loss(), rate() and link() work."""

import errno
import json
import os
import signal
import subprocess
import sys
import unittest

from hosts import INTERFACE, Hosts, why_not

SECONDS = 20
REASON = why_not(loss=True, rate=True)

# Prints its port and then the data that it receives from the sender.
RECEIVER = """
import socket, sys
with socket.create_server((sys.argv[1], 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    with connection, connection.makefile() as file:
        print(file.read())
"""
SENDER = """
import errno, socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as connection:
        connection.sendall(b"hello")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
DATAGRAMS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(1000):
        sender.sendto(b"x", (sys.argv[1], 9))
"""


def namespaces():
    return subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout


@unittest.skipIf(REASON, REASON)
class HostsTest(unittest.TestCase):
    def python(self, hosts, number, program, *arguments):
        return hosts.run(number, [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)

    def assert_reaches(self, hosts, number, address, *, other=0):
        receiver = self.python(hosts, other, RECEIVER, "::")
        port = receiver.stdout.readline().strip()
        self.assertEqual(self.python(hosts, number, SENDER, address, port).communicate(timeout=SECONDS)[0], "")
        self.assertEqual(receiver.communicate(timeout=SECONDS)[0].strip(), "hello")

    def test_two_reach_each_other_by_each_address(self):
        with Hosts(2) as hosts:
            for address in (hosts[0].ipv4, hosts[0].ipv6, f"{hosts[0].link_local}%{INTERFACE}"):
                with self.subTest(address):
                    self.assert_reaches(hosts, 1, address)

    def test_three_reach_each_other(self):
        with Hosts(3) as hosts:
            for number, other in ((0, 1), (1, 2), (2, 0)):
                self.assert_reaches(hosts, number, hosts[other].ipv4, other=other)
                self.assert_reaches(hosts, number, hosts[other].ipv6, other=other)

    def test_loss(self):
        with Hosts(2) as hosts:
            hosts.loss(50)
            self.python(hosts, 1, DATAGRAMS, hosts[0].ipv4).communicate(timeout=SECONDS)
            self.assertTrue(300 < hosts.lost(0) < 700, hosts.lost(0))
            hosts.loss(0)
            self.python(hosts, 1, DATAGRAMS, hosts[0].ipv4).communicate(timeout=SECONDS)
            self.assertEqual(hosts.lost(0), 0)
            self.assert_reaches(hosts, 1, hosts[0].ipv4)

    def test_rate(self):
        with Hosts(2) as hosts:
            hosts.rate("10mbit")
            hosts.rate("1gbit")
            shown = json.loads(hosts[0].command("tc", "-json", "qdisc", "show", "dev", INTERFACE))
            self.assertEqual([(one["kind"], one["options"]["rate"]) for one in shown], [("tbf", 1000 * 1000 * 1000 // 8)])
            self.assert_reaches(hosts, 1, hosts[0].ipv4)
            hosts.rate(None)
            shown = json.loads(hosts[0].command("tc", "-json", "qdisc", "show", "dev", INTERFACE))
            self.assertNotIn("tbf", [one["kind"] for one in shown])

    def test_mtu(self):
        for count in (2, 3):
            with self.subTest(count), Hosts(count) as hosts:
                hosts.mtu(9000)
                for number in range(count):
                    shown = json.loads(hosts[number].command("ip", "-json", "link", "show", "dev", INTERFACE))
                    self.assertEqual(shown[0]["mtu"], 9000)
                self.assert_reaches(hosts, 1, hosts[0].ipv6)

    def test_a_link_goes_down_and_up(self):
        with Hosts(2) as hosts:
            hosts.link(1, "down")
            sender = self.python(hosts, 1, SENDER, hosts[0].ipv4, "9")
            self.assertEqual(sender.communicate(timeout=SECONDS)[0].strip(), errno.errorcode[errno.ENETUNREACH])
            hosts.link(1, "up")
            for address in (hosts[0].ipv4, hosts[0].ipv6, f"{hosts[0].link_local}%{INTERFACE}"):
                with self.subTest(address):
                    self.assert_reaches(hosts, 1, address)

    def test_nothing_remains(self):
        for failure in (None, ValueError, KeyboardInterrupt):
            with self.subTest(failure):
                try:
                    with Hosts(3) as hosts:
                        sleeper = hosts.run(0, ["sleep", "1000"])
                        self.assertIn(hosts[2].namespace, namespaces())
                        if failure is not None:
                            raise failure
                except (ValueError, KeyboardInterrupt):
                    pass
                self.assertEqual(sleeper.returncode, -signal.SIGKILL)
                self.assertNotIn(f"-{os.getpid()}-", namespaces())

    def test_remains_of_a_killed_process_are_removed(self):
        program = "import hosts, os, signal; hosts.Hosts(2).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
        killed = subprocess.Popen([sys.executable, "-c", program], cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual(killed.wait(SECONDS), -signal.SIGKILL)
        self.assertIn(f"-{killed.pid}-", namespaces())
        with Hosts(2):
            self.assertNotIn(f"-{killed.pid}-", namespaces())


if __name__ == "__main__":
    unittest.main()
