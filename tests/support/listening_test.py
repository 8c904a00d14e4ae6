#!/usr/bin/env python3
"""tests/support/listening.py finds listening sockets, on both kinds of addresses, and no others."""

import os
import socket
import subprocess
import unittest

from listening import listens


class Listens(unittest.TestCase):
    def test_from_listen_to_close(self):
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with self.subTest(family), socket.socket(family) as server:
                try:
                    server.bind((address, 0))
                except OSError as error:
                    self.skipTest(f"{address}: {error}")
                port = server.getsockname()[1]
                self.assertFalse(listens(port))
                server.listen()
                self.assertTrue(listens(port))
                self.assertTrue(listens(port, os.getpid()))
                server.close()
                self.assertFalse(listens(port))

    def test_a_process_that_has_ended(self):
        process = subprocess.Popen(["true"])
        process.wait()
        self.assertFalse(listens(1, process.pid))


if __name__ == "__main__":
    unittest.main()
