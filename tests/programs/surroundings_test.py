#!/usr/bin/env python3
"""What programs are started with: closed or full standard streams, ignored signals, limits; and where servers listen."""

import os
import resource
import signal
import socket
import subprocess
import tempfile
import unittest

from program_runs import BIN, LAT_BW, MESH, PING_PONG, SLOW, ProgramTest

SEND, RECV, COPY = (os.path.join(BIN, name) for name in ("rdma_send", "rdma_recv", "rdma_copy"))
HELLO = os.path.join(BIN, "hello_rdma")
PLAY = (PING_PONG, "--device=soft0", "--iterations=10")
MEASURE = (LAT_BW, "--device=soft0", "--ops=write", "--tests=lat", "--sizes=8", "--iterations=10", "--rounds=1")
TALK = (MESH, "--local=2", "--device=soft0", "--total=4K")


def run(command, seconds=60, **options):
    """Exit status and standard error."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options) as process:
        try:
            err = process.communicate(timeout=seconds * SLOW)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, err.decode()


def with_closed(numbers, *command):
    return ("sh", "-c", 'exec "$@" ' + " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in numbers), "sh", *command)


class Listening(ProgramTest):
    def reaches(self, host, port):
        try:
            socket.create_connection((host, port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    def test_a_server_says_where_it_listens_and_who_may_connect(self):
        for program in (PING_PONG, LAT_BW):
            with self.subTest(program):
                server, port = self.start_server(program)
                server.wait_for(r"listening on port \d+ at every address of this machine: whoever reaches it can connect")
                self.assertTrue(self.reaches("::1", port))
                server, port = self.start_server(program, "--listen=127.0.0.1")
                server.wait_for(r"listening on port \d+ at 127\.0\.0\.1: whoever reaches that can connect")
                self.assertTrue(self.reaches("127.0.0.1", port))
                self.assertFalse(self.reaches("::1", port))

    def test_a_receiver_says_so_to_people(self):
        for flags, where in (((), "every address"), (("--listen=::1",), "::1: whoever")):
            receiver = subprocess.Popen((RECV, "-p", "0", "-v", "--timeout=0.1", "--device=soft0", *flags),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            err = receiver.communicate(timeout=60 * SLOW)[1].decode()
            self.assertRegex(err, rf"^rdma_recv: listening on port \d+ at {where}")

    def test_only_servers_listen(self):
        for command, why in (((PING_PONG, "--role=client"), "a client does not listen"), ((PING_PONG,), "is for --role=server"),
                             ((LAT_BW,), "is for --role=server"), (TALK, "with --local all nodes listen at 127.0.0.1")):
            with self.subTest(command):
                self.assert_one_line(self.run_program(*command, "--listen=127.0.0.1"), "--listen", why)

    def test_a_node_of_a_mesh(self):
        with socket.socket() as one, socket.socket() as other:
            for each in (one, other):
                each.bind(("127.0.0.1", 0))
            ports = [each.getsockname()[1] for each in (one, other)]
        cluster = f"--cluster=localhost:{ports[0]},localhost:{ports[1]}"
        nodes = [self.start(MESH, cluster, f"--rank={rank}", "--device=soft0", "--total=4K", "--listen=127.0.0.1")
                 for rank in range(2)]
        for rank, node in enumerate(nodes):
            node.wait_for(rf"node {rank}: listening on port {ports[rank]} at 127\.0\.0\.1: whoever")
            self.assertEqual(node.finish()[0], 0)


if __name__ == "__main__":
    unittest.main()
