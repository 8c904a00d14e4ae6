#!/usr/bin/env python3
"""The examples 01 to 12: each runs as its server and as clients, and must print the expected output."""

import os
import re
import subprocess
import unittest

from program_runs import BIN, SLOW, ProgramTest


def own_lines(err):
    """Lines of standard error except log lines (for example that RDMA hardware is missing)."""
    return [line for line in err.splitlines() if not re.match(r"[IW]\d{8} ", line)]


class Examples(ProgramTest):
    def serve(self, name):
        server = self.start(os.path.join(BIN, name))
        return server, server.wait_for(r"listening on port (\d+)").group(1)

    def use(self, name, port, given=b""):
        """Runs a client to its end. Returns its standard output."""
        client = subprocess.run([os.path.join(BIN, name), f"127.0.0.1:{port}"], input=given, capture_output=True,
                                timeout=60 * SLOW, check=False)
        err = client.stderr.decode()
        self.assertEqual((client.returncode, own_lines(err)), (0, []), err)
        return client.stdout

    def pipe(self, *command, **streams):
        """Starts a process whose pipes the test reads and writes itself."""
        process = self.enterContext(subprocess.Popen(command, **streams))
        self.addCleanup(process.kill)
        return process

    def end(self, server, interrupted=False):
        """The standard output of a server, which must end with success."""
        if interrupted:
            server.process.terminate()
        status, out, err = server.finish()
        self.assertEqual((status, own_lines(err)), (0, []), out + err)
        return out

    def test_01_hello(self):
        server, port = self.serve("01_hello")
        self.use("01_hello", port)
        self.assertTrue(self.end(server).endswith("notified of 42: hello\n"))

    def test_02_send_receive(self):
        server, port = self.serve("02_send_receive")
        lines = [f"line {i}" for i in range(20)]  # more than posted receives
        self.use("02_send_receive", port, "\n".join(lines).encode())
        self.assertEqual(self.end(server).splitlines()[1:], lines)

    def test_lines_longer_than_a_block_are_refused(self):
        for name in ("02_send_receive", "05_many_clients"):
            server, port = self.serve(name)
            client = subprocess.run([os.path.join(BIN, name), f"127.0.0.1:{port}"], input=b"x" * 4097, capture_output=True,
                                    timeout=60 * SLOW, check=False)
            self.assertEqual(client.returncode, 1)
            self.assertIn(b"a line is longer than a block", client.stderr)
            self.end(server, interrupted=name.startswith("05"))

    def test_03_immediates(self):
        server, port = self.serve("03_immediates")
        self.use("03_immediates", port)
        self.assertEqual(self.end(server).splitlines()[1:], ["slot 3: 9", "slot 1: 1", "slot 7: 49"])

    def test_04_atomics(self):
        server, port = self.serve("04_atomics")
        for first in (0, 3):
            drawn = self.use("04_atomics", port).decode().splitlines()
            self.assertEqual(drawn, [f"number {first + i}" for i in range(3)] +
                             ["not the first client" if first else "the first client"])
        self.end(server, interrupted=True)

    def test_05_many_clients(self):
        server, port = self.serve("05_many_clients")
        clients = [subprocess.Popen([os.path.join(BIN, "05_many_clients"), f"127.0.0.1:{port}"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
        for number, client in enumerate(clients):  # all are connected at the same time
            client.stdin.write(f"first of {number}\n".encode())
            client.stdin.flush()
            self.assertEqual(client.stdout.readline(), f"first of {number}\n".encode())
        for number, client in enumerate(clients):
            out, err = client.communicate(f"second of {number}\n".encode() + b"x" * 4096, timeout=60 * SLOW)
            self.assertEqual((client.returncode, out), (0, f"second of {number}\n".encode() + b"x" * 4096 + b"\n"), err)
        server.wait_for(r"(has disconnected: ok\n.*){3}")
        self.end(server, interrupted=True)

    def test_06_receive_pool(self):
        server, port = self.serve("06_receive_pool")
        for total in (100, 200):
            self.use("06_receive_pool", port)
            server.wait_for(f"{total} messages so far, {total // 100 * (sum(range(64)) + sum(range(36)))} bytes")
        self.end(server, interrupted=True)

    def test_07_modes(self):
        server, port = self.serve("07_modes")
        self.use("07_modes", port)
        server.wait_for("(adaptive has.*\n(.*\n)*){3}")
        out = self.end(server, interrupted=True)
        self.assertEqual(out.count("busy poll has not slept\n"), 3, out)
        for mode in ("completion channel", "epoll"):
            self.assertEqual(out.count(f"{mode} has slept\n"), 3, out)

    def test_08_own_loop(self):
        server, port = self.serve("08_own_loop")
        self.assertEqual(self.use("08_own_loop", port), b"ten answers\n")
        self.end(server)

    def test_09_stream(self):
        server = self.pipe(os.path.join(BIN, "09_stream"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        lines = iter(server.stderr.readline, b"")
        port = next(found.group(1) for found in (re.match(rb"listening on port (\d+)", line) for line in lines) if found)
        given = b"".join(b"%d\n" % i for i in range(1_000_000))  # more than its streams can hold
        client = self.pipe(os.path.join(BIN, "09_stream"), f"127.0.0.1:{port.decode()}", stdin=subprocess.PIPE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        reader = self.pipe("cksum", stdin=server.stdout, stdout=subprocess.PIPE)
        client.stdin.write(given)
        client.stdin.close()
        read = reader.communicate(timeout=60 * SLOW)[0]
        self.assertEqual(read, subprocess.run(["cksum"], input=given, capture_output=True, check=True).stdout)
        self.assertEqual((client.wait(60 * SLOW), server.wait(60 * SLOW)), (0, 0))

    def test_10_messages(self):
        server, port = self.serve("10_messages")
        large = "0123456789" * 1_000_000  # larger than the pool's largest block
        answers = self.use("10_messages", port, f"stressed\n\n{large}\nx".encode()).decode().split("\n")
        self.assertEqual(answers, ["desserts", large[::-1], "x", ""])
        self.end(server)

    def test_11_channels_and_devices(self):
        server, port = self.serve("11_channels_and_devices")
        self.use("11_channels_and_devices", port)
        self.assertEqual(self.end(server).splitlines()[1:], ["a short message", "1048576 bytes on 'bulk'"])

    def test_12_errors_and_ends(self):
        server, port = self.serve("12_errors_and_ends")
        self.assertRegex(self.use("12_errors_and_ends", port).decode(), "^refused: WRITE with id 0 on channel \"data\"")
        server.wait_for("lost: .*\n")
        out = self.end(server, interrupted=True)
        # The third end may also be reported by the server's device. That may happen after the client has disconnected, or
        # before the server has established the connection.
        self.assertRegex(" ".join(line.split(":")[0] for line in out.splitlines()[1:]),
                         "^in order given up (in order|broken|not connected) lost$")
        self.assertIn("the disk is full", out)

    def test_invalid_arguments_are_reported_in_one_line(self):
        for words, told in ((("--help",), "usage: "), (("a", "b"), "usage: "), (("host:0",), "its port is not a number from")):
            with self.subTest(words):
                refused = self.run_program(os.path.join(BIN, "10_messages"), *words)
                self.assertEqual((refused[0], refused[1], len(own_lines(refused[2]))), (1, "", 1), refused)
                self.assertIn(told, refused[2])

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            ran = subprocess.run([os.path.join(BIN, "02_send_receive")], stdin=subprocess.DEVNULL, stdout=full,
                                 stderr=subprocess.PIPE, timeout=60 * SLOW, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("cannot write to standard output", ran.stderr.decode())


if __name__ == "__main__":
    unittest.main()
