#!/usr/bin/env python3
"""Runs ping_pong_test as a user does: every verb, every way to start it, every way in which it ends."""

import os
import signal
import socket
import sys
import unittest

from connection_errors import ConnectionErrors
from program_runs import PING_PONG, ProgramTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from held_ports import hold_ports  # noqa: E402

VERBS = ("SEND", "SEND_WITH_IMM", "WRITE", "WRITE_WITH_IMM", "READ", "FETCH_ADD", "COMPARE_SWAP", "RECV")


class Runs(ProgramTest):
    def assert_complete(self, out, size):
        for verb in VERBS:
            size_of_verb = 8 if verb in ("FETCH_ADD", "COMPARE_SWAP") else size
            self.assertRegex(out, rf"(?m)^{verb} +ok, {size_of_verb} bytes verified$")
        self.assertRegex(out, r"client  soft0 port 1 .*QPN 0x\w+ GID \S+ \(RoCE v2\) MTU \d+")
        self.assertRegex(out, r"server  soft0 port 1 .*QPN 0x\w+ GID \S+ \(RoCE v2\) MTU \d+")
        self.assertRegex(out, r"path MTU \d+")
        self.assertRegex(out, r" +min +p50 +p99 +p99\.9 +max +mean\n(?: +(?:[\d.]+|-)){6}\n")

    def test_both(self):
        out = self.assert_success(self.run_program(PING_PONG, "--role=both", "--device=soft0"))
        self.assert_complete(out, 64)
        self.assertIn("1000 round trips", out)

    def test_sizes(self):
        for argument, size in (("1", 1), ("4097", 4097), ("1M", 1 << 20)):
            with self.subTest(argument):
                out = self.assert_success(
                    self.run_program(PING_PONG, "--device=soft0", f"--size={argument}", "--iterations=10"))
                self.assert_complete(out, size)

    def test_sleeping_for_completions(self):
        out = self.assert_success(
            self.run_program(PING_PONG, "--device=soft0", "--polling=event", "--iterations=50"))
        self.assert_complete(out, 64)

    def test_every_mode(self):
        for polling in ("busy", "channel", "epoll", "adaptive"):
            for threads in ("none", "per-qp", "shared-cq", "sharded"):
                with self.subTest(polling=polling, threads=threads):
                    out = self.assert_success(self.run_program(
                        PING_PONG, "--device=soft0", f"--polling={polling}", f"--threads={threads}", "--iterations=50"))
                    self.assert_complete(out, 64)

    def test_server_and_client(self):
        for server_role, client_role in (("server", "client"), ("master", "slave")):
            with self.subTest(server_role):
                server = self.start(PING_PONG, f"--role={server_role}", "--port=0", "--device=soft0")
                port = server.wait_for(r"listening on port (\d+)").group(1)
                client = self.run_program(PING_PONG, f"--role={client_role}", "--server=localhost", f"--port={port}",
                                          "--device=soft0")
                self.assert_complete(self.assert_success(client), 64)
                self.assert_success(server.finish())

    def test_the_names_of_rdma_comm_core(self):
        server, port = self.start_server(PING_PONG, "--gid-idx=1")
        client = self.run_program(PING_PONG, "--role=slave", "--master=127.0.0.1", f"--port={port}", "--ib-dev=soft0",
                                  "--ib-port=1", "--gid-idx=1", "--traffic-class=32")
        self.assert_complete(self.assert_success(client), 64)
        self.assert_success(server.finish())

    def test_the_gid_type_of_one_end_is_used_by_both(self):
        for server_type, client_type in (("v1", "auto"), ("auto", "v1")):
            with self.subTest(server=server_type, client=client_type):
                server, port = self.start_server(PING_PONG, f"--gid-type={server_type}")
                out = self.assert_success(self.run_program(PING_PONG, "--role=client", f"--port={port}",
                                                           "--device=soft0", f"--gid-type={client_type}"))
                self.assertEqual(out.count("(RoCE v1)"), 2, out)
                self.assert_success(server.finish())

    def test_a_partition_by_its_key(self):
        for key in ("0xffff", "0x7fff", "65535"):
            with self.subTest(key):
                self.assert_complete(self.assert_success(
                    self.run_program(PING_PONG, "--device=soft0", "--iterations=10", f"--pkey={key}")), 64)

    def test_a_client_that_starts_before_its_server(self):
        (port,) = hold_ports(self)
        client = self.start(PING_PONG, "--role=client", f"--port={port}", "--device=soft0")
        server = self.start(PING_PONG, "--role=server", f"--port={port}", "--device=soft0")
        self.assert_complete(self.assert_success(client.finish()), 64)
        self.assert_success(server.finish())

    def test_keep_serving(self):
        server, port = self.start_server(PING_PONG, "--keep-serving")
        for _ in range(3):
            self.assert_success(self.run_program(PING_PONG, "--role=client", f"--port={port}", "--device=soft0"))
        self.assertIsNone(server.process.poll())

    def test_unknown_clients_do_not_disturb(self):
        server, port = self.start_server(PING_PONG)
        silent = socket.create_connection(("127.0.0.1", port))
        self.addCleanup(silent.close)
        with socket.create_connection(("127.0.0.1", port)) as noisy:
            noisy.sendall(b"GET / HTTP/1.0\r\n\r\n")
        socket.create_connection(("127.0.0.1", port)).close()
        client = self.run_program(PING_PONG, "--role=client", f"--port={port}", "--device=soft0")
        self.assert_success(client)
        self.assertEqual(server.finish()[0], 0)

    def test_the_smaller_mtu_is_used(self):
        server, port = self.start_server(PING_PONG, "--mtu=1024")
        out = self.assert_success(self.run_program(PING_PONG, "--role=client", f"--port={port}", "--device=soft0"))
        self.assertIn("path MTU 1024", out)
        server.finish()


class Killed(ProgramTest):
    """kill -9 of server or client, in each phase of the run: the survivor prints one line that names the peer."""

    MOMENTS = ("path MTU", "SEND ", "WRITE ", "READ ", "COMPARE_SWAP ", "RECV ")
    LONG = ("--size=16M", "--iterations=1000000")

    def run_until(self, moment):
        server, port = self.start_server(PING_PONG)
        client = self.start(PING_PONG, "--role=client", f"--port={port}", "--device=soft0", *self.LONG)
        client.wait_for(f"(?m)^{moment}")
        return server, client, port

    def test_of_the_server(self):
        for moment in self.MOMENTS:
            with self.subTest(moment):
                server, client, port = self.run_until(moment)
                server.kill()
                self.assert_one_line(client.finish(), f"127.0.0.1:{port}", f"pid {server.pid}")

    def test_of_the_client(self):
        for moment in self.MOMENTS[1:]:  # earlier it does not count as a client: see RestingClients
            with self.subTest(moment):
                server, client, _ = self.run_until(moment)
                client.kill()
                self.assert_one_line(server.finish(), r"127\.0\.0\.1:\d+", f"pid {client.pid}")


class Frozen(ProgramTest):
    """A stopped process sends no heartbeats, even if its device still works."""

    LONG = ("--size=16M", "--iterations=1000000")

    def freeze(self, *arguments):
        """Starts a client, and stops its server in the middle of the run."""
        server, port = self.start_server(PING_PONG)
        client = self.start(PING_PONG, "--role=client", f"--port={port}", "--device=soft0", *self.LONG, *arguments)
        client.wait_for("(?m)^SEND ")
        server.kill(signal.SIGSTOP)
        return server, client

    def test_it_is_lost_after_the_given_time(self):
        server, client = self.freeze("--silent-peer-after=3")
        self.assert_one_line(client.finish(), f"pid {server.pid}", "sent nothing for [3-9] s")  # not the default of 10 s


class Errors(ConnectionErrors):
    program = PING_PONG

    def test_arguments(self):
        self.assert_refused((
            (["--iterations=many"], ["many", "iterations"]),
            (["--iterations=0"], ["--iterations=0"]),
            (["--iterations=-5"], ["-5"]),
            (["--iterations=20000000"], ["20000000 iterations; possible are"]),
            (["--size=0"], ["--size", "smallest size is 1 byte"]),
            (["--size=4X"], ["--size", '"4X" is not a size']),
            (["--size=2G"], ["2147483648"]),
            (["--polling=never"], ["--polling=never"]),
            (["--threads=many"], ["--threads=many", "shared-cq"]),
            (["--threads=sharded", "--shards=257"], ["--shards=257: possible are 1 to 256"]),
            (["--shards=4", "--threads=none"], ["--shards=4: works only with --threads=sharded, not with --threads=none"]),
        ))

    def test_gid_types_that_exclude_each_other(self):
        server, port = self.start_server(PING_PONG, "--gid-type=v1", "--keep-serving")
        self.assert_one_line(
            self.run_program(PING_PONG, "--role=client", f"--port={port}", "--device=soft0", "--gid-type=v2"),
            "local: RoCE v1", "peer: RoCE v2")
        server.kill()

    def test_help(self):
        out = self.assert_success(self.run_program(PING_PONG, "--help"))
        self.assertEqual(self.run_program(PING_PONG, "-h"), (0, out, ""))
        for text in ("usage: ping_pong_test", "--size=BYTES", "--keep-serving", "--connect-timeout=SECONDS", "--silent-peer-after=SECONDS",
                     "(default 2020)"):
            self.assertIn(text, out)

    def test_a_warning_names_the_chosen_device(self):
        status, out, err = self.run_program(PING_PONG, "--iterations=1")
        self.assertEqual(status, 0, err)
        if "client  soft0" in out:
            self.assertIn("soft0", err)


if __name__ == "__main__":
    os.environ.pop("RCL_MAX_VLOG_LEVEL", None)
    unittest.main()
