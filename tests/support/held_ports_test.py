#!/usr/bin/env python3
"""tests/support/held_ports.py: other sockets do not get a held port, and servers can listen on it."""

import socket
import unittest

from held_ports import hold_ports


class HoldPorts(unittest.TestCase):
    def test_servers_listen_there(self):
        for host in ("127.0.0.1", ""):
            with self.subTest(host):
                (port,) = hold_ports(self)
                with socket.create_server((host, port)), socket.create_connection(("127.0.0.1", port)):
                    pass

    def test_no_other_process_gets_them(self):
        ports = set(hold_ports(self, 300))
        self.assertEqual(len(ports), 300)
        self.assertFalse(ports & set(hold_ports(self, 300)))
        for reuse in (0, 1):
            for _ in range(200):
                with socket.socket() as other:
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                    other.bind(("127.0.0.1", 0))
                    self.assertNotIn(other.getsockname()[1], ports)

    def test_in_a_row(self):
        first, second, third = hold_ports(self, 3, in_a_row=True)
        self.assertEqual((second, third), (first + 1, first + 2))

    def test_until_the_test_ends(self):
        class Other(unittest.TestCase):
            def runTest(self):
                (self.port,) = hold_ports(self)

        other = Other()
        other.run()
        with socket.socket() as mine:
            mine.bind(("127.0.0.1", other.port))


if __name__ == "__main__":
    unittest.main()
