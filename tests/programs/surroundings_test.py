#!/usr/bin/env python3
"""The environment in which programs start: closed or full standard streams, ignored signals, limits, listening
addresses."""

import fcntl
import json
import os
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

from program_runs import BIN, LAT_BW, MESH, PING_PONG, SLOW, ProgramTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from held_ports import hold_ports  # noqa: E402

SEND, RECV, COPY = (os.path.join(BIN, name) for name in ("rdma_send", "rdma_recv", "rdma_copy"))
SCRIPT_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/lib/common.sh")
PLAY = (PING_PONG, "--device=soft0", "--iterations=10")
MEASURE = (LAT_BW, "--device=soft0", "--ops=write", "--tests=lat", "--sizes=8", "--iterations=10", "--rounds=1")
EXCHANGE = (MESH, "--local=2", "--device=soft0", "--total=4K")


def run(command, seconds=60, **options):
    """Returns exit status and standard error."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options) as process:
        try:
            err = process.communicate(timeout=seconds * SLOW)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, err.decode()


def with_closed(numbers, *command):
    return ("sh", "-c", 'exec "$@" ' + " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in numbers), "sh", *command)


class Streams(ProgramTest):
    def assert_full(self, command):
        with self.subTest(command), open("/dev/full", "wb") as full:
            status, err = run(command, stdout=full)
            self.assertEqual((status, len(err.splitlines())), (1, 1), err)
            self.assertRegex(err, "cannot write")
            return err

    def test_output_that_cannot_be_written_is_a_failure(self):
        for command in (PLAY, MEASURE, EXCHANGE):
            err = self.assert_full(command)
            self.assertRegex(err, r"cannot write to standard output:? .*No space left on device")

    def test_help_that_cannot_be_written_is_a_failure(self):
        for program in (PING_PONG, LAT_BW, MESH, SEND, RECV, COPY):
            for flag in ("--help", "--version"):
                self.assertIn("cannot write to standard output (No space left on device)", self.assert_full((program, flag)))

    def test_version(self):
        for program in (PING_PONG, LAT_BW, MESH, SEND, RECV, COPY):
            self.assertRegex(self.assert_success(self.run_program(program, "--version")),
                             rf"^{os.path.basename(program)} version \d+\.\d+\.\d+\n$")

    def test_results_that_cannot_be_written_are_a_failure(self):
        for command, flag in ((MEASURE, "json"), (EXCHANGE, "json"), (EXCHANGE, "heatmap")):
            with self.subTest(flag):
                self.assert_one_line(self.run_program(*command, f"--{flag}=/dev/full"), "/dev/full", "No space left")

    def test_results_are_added_to_the_file_that_standard_output_is(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            for command in (MEASURE, EXCHANGE):
                for name in ("stdout", "stderr"):
                    with self.subTest((command, name)):
                        with open(log, "w", encoding="utf-8") as file:
                            file.write("former\n")
                        with open(log, "ab") as out:
                            status = subprocess.run([*command, f"--json=/dev/{name}"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                    timeout=60 * SLOW, check=False).returncode
                        with open(log, encoding="utf-8") as file:
                            text = file.read()
                        self.assertEqual(status, 0, text)
                        begin, end = text.index("\n{\n") + 1, text.rindex("\n}\n") + 3
                        self.assertIsInstance(json.loads(text[begin:end]), dict)
                        # Nodes of a mesh print the rest at any time, before or after the result.
                        self.assertRegex(text[:begin] + text[end:], r"^former\n(.+\n)")

    def test_closed_streams_are_not_reused_for_other_files(self):
        """A log line would overwrite the library's data if it used the same descriptor number."""
        without_device = tuple(word for word in PLAY if not word.startswith("--device"))  # so that something is logged
        for numbers in ((2,), (0, 2)):
            with self.subTest(numbers):
                status, _ = run(with_closed(numbers, *without_device), stdout=subprocess.DEVNULL)
                self.assertEqual(status, 0)
        for command in (without_device, MEASURE, EXCHANGE):
            with self.subTest(command):  # its output is lost, which its exit status reports
                self.assertEqual(run(with_closed((0, 1, 2), *command), stdout=subprocess.DEVNULL)[0], 1)

    def test_a_copy_without_standard_streams(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/root")
            with open(f"{folder}/root/file", "wb") as file:
                file.write(os.urandom(1 << 20))
            server = self.start(COPY, "--serve", f"--root={folder}/root", "--port=0", "--device=soft0")
            port = server.wait_for(r"port (\d+)").group(1)
            copy = with_closed((0, 1, 2), COPY, "--device=soft0", f"--port={port}", "127.0.0.1:file", f"{folder}/copy")
            self.assertEqual(run(copy)[0], 0)
            with open(f"{folder}/root/file", "rb") as one, open(f"{folder}/copy", "rb") as other:
                self.assertEqual(one.read(), other.read())


class Terminals(ProgramTest):
    def on_terminal(self, columns, *command):
        """The text that the program writes to a terminal with `columns` columns."""
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0) as screen:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE) as process:
                os.close(theirs)
                written = b""
                try:
                    while more := screen.read(65536):
                        written += more
                except OSError:  # the terminal is closed
                    pass
                process.communicate(timeout=60 * SLOW)
        self.assertEqual(process.returncode, 0, written)
        return written.decode().replace("\r", "").splitlines()

    def test_tables_fit(self):
        for columns in (80, 120, 200):
            for command, table in ((MEASURE, r"(op|write) "), (EXCHANGE, r"(\[\d\] )?(to|all|\d) ")):
                lines = [line for line in self.on_terminal(columns, *command) if re.match(table, line)]
                self.assertGreaterEqual(len(lines), 2)
                for line in lines:
                    self.assertLessEqual(len(line), columns, line)

    def test_without_a_terminal_nothing_is_omitted(self):
        out = self.assert_success(self.run_program(*MEASURE, env={**os.environ, "COLUMNS": "80"}))
        self.assertRegex(out, "op +measures +bytes +iterations +min us .*mean us +GB/s +Gb/s +Mops/s +ratio")

    def test_no_error_about_the_command_line_steers_the_terminal(self):
        esc = "\x1b[1mx"
        anywhere = ((f"--{esc}=1",), (f"-{esc}",), (f"--port={esc}",), ("--port", esc))
        read_later = ((f"--role={esc}",), (f"--device={esc}",), (f"--connector={esc}",), (f"--listen={esc}",), (f"--polling={esc}",))
        for program in (PING_PONG, LAT_BW, MESH, SEND, RECV, COPY):
            for words in anywhere + (read_later if program in (PING_PONG, LAT_BW) else ()):
                with self.subTest((program, words)):
                    status, err = run((program, *words), stdout=subprocess.DEVNULL)
                    self.assertEqual(status, 1, err)
                    self.assertNotRegex(err, r"[^\n\x20-\x7e]")
        status, err = run((PING_PONG, esc), stdout=subprocess.DEVNULL)
        self.assertEqual((status, err), (1, 'ping_pong_test: unexpected argument "?[1mx"; options begin with --, see --help\n'))

    def test_flag_files_and_the_environment_are_checked_as_the_command_line_is(self):
        esc = "\x1b[1mx"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "flags")
            for program in (PING_PONG, LAT_BW, MESH, SEND, RECV, COPY):
                for line in (f"--{esc}=1", f"--port={esc}", "--there-is-no-such-option=1", "--port"):
                    with self.subTest((program, line)):
                        with open(path, "w", encoding="utf-8") as file:
                            file.write(line + "\n")
                        status, err = run((program, f"--flagfile={path}"), stdout=subprocess.DEVNULL)
                        self.assertEqual((status, len(err.splitlines())), (1, 1), err)
                        self.assertRegex(err, rf"^{os.path.basename(program)}: {path} line 1: ")
                        self.assertNotRegex(err, r"[^\n\x20-\x7e]")
                with self.subTest((program, "environment")):
                    status, err = run((program, "--fromenv=port"), stdout=subprocess.DEVNULL,
                                      env={**os.environ, "FLAGS_port": esc})
                    self.assertEqual((status, len(err.splitlines())), (1, 1), err)
                    self.assertNotRegex(err, r"[^\n\x20-\x7e]")
            with open(path, "w", encoding="utf-8") as file:
                file.write("--iterations=1\n--device=soft0\n")
            self.assert_success(self.run_program(PING_PONG, f"--flagfile={path}"))

    def test_gflags_own_help_shows_values_printably(self):
        for words in (["--helpxml"], ["--helpmatch=mode_flags"], ["--helpon=mode_flags"]):
            with self.subTest(words):
                _, out, err = self.run_program(PING_PONG, "--polling=\x1b]0;x\x07", *words)
                self.assertIn("polling", out)
                self.assertNotIn("Warning", out)
                self.assertNotRegex(out + err, r"[^\n\t\x20-\x7e]")


class Signals(ProgramTest):
    def test_ignored_ends_of_child_processes(self):
        ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for command in (PLAY, MEASURE, EXCHANGE):
            with self.subTest(command):
                self.assert_success(self.run_program(*command, preexec_fn=ignore))


MOST = 64 << 20


def small_files():
    """Limits the file size. soft0's shared memory files count, too."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))


class Limits(ProgramTest):
    """Files that grow beyond the process's limit."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.large = f"{self.folder.name}/large"
        with open(self.large, "wb") as file:
            file.truncate(MOST + (4 << 20))

    def test_a_receiver(self):
        (port,) = hold_ports(self)
        with open(f"{self.folder.name}/out", "wb") as out, open(self.large, "rb") as large:
            receiver = subprocess.Popen((RECV, "-p", str(port), "--device=soft0"), stdin=subprocess.DEVNULL, stdout=out,
                                        stderr=subprocess.PIPE, preexec_fn=small_files)
            self.addCleanup(receiver.kill)
            sender = subprocess.run((SEND, f"127.0.0.1:{port}", "--device=soft0"), stdin=large, stderr=subprocess.PIPE,
                                    timeout=60 * SLOW, check=False)
            err = receiver.communicate(timeout=60 * SLOW)[1].decode()
        self.assertEqual(receiver.returncode, 1, err)
        self.assertRegex(err, r"^rdma_recv: listening on .*\nrdma_recv: cannot write to standard output.*File too large.*\n$")
        self.assertEqual(sender.returncode, 1)
        self.assertIn("File too large", sender.stderr.decode())

    def test_a_server_of_copies(self):
        server = self.start(COPY, "--serve", f"--root={self.folder.name}", "--port=0", "--device=soft0",
                            preexec_fn=small_files)
        port = server.wait_for(r"port (\d+)").group(1)
        copy = (COPY, "--device=soft0", f"--port={port}")
        result = self.run_program(*copy, self.large, "127.0.0.1:copy")
        self.assertEqual(result[0], 1)
        self.assertIn("File too large", result[2])
        self.assertEqual(self.run_program(*copy, "/etc/hostname", "127.0.0.1:small")[0], 0, "the server goes on")


class Listening(ProgramTest):
    def reaches(self, host, port):
        try:
            socket.create_connection((host, port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    def test_a_server_prints_its_address_and_access(self):
        for program in (PING_PONG, LAT_BW):
            with self.subTest(program):
                server, port = self.start_server(program)
                server.wait_for(r"listening on port \d+ at every address of this host: every client that can reach it can connect")
                self.assertTrue(self.reaches("::1", port))
                server, port = self.start_server(program, "--listen=127.0.0.1")
                server.wait_for(r"listening on port \d+ at 127\.0\.0\.1: every client that can reach it can connect")
                self.assertTrue(self.reaches("127.0.0.1", port))
                self.assertFalse(self.reaches("::1", port))

    def test_a_server_of_files_prints_its_address(self):
        for flags, where in (((), r"at 127\.0\.0\.1: every client that can reach it can connect"),
                             (("--listen=::",), "at every address of this host: every client that can reach it can connect")):
            with self.subTest(flags):
                server = self.start(COPY, "--serve", f"--root={os.getcwd()}", "--port=0",
                                    "--device=soft0", *flags)
                server.wait_for(rf"serving .*, listening on port \d+ {where}")

    def test_scripts_find_the_port_in_the_output_of_a_server(self):
        """Does the same as scripts/demo.sh, which takes too long for a test."""
        server = self.start(COPY, "--serve", f"--root={os.getcwd()}", "--port=0", "--device=soft0")
        line, port = server.wait_for(r"(serving .* port (\d+) .*)\n").groups()
        for said, expected in ((line, (0, port + "\n")), ("serving nothing", (1, ""))):
            ran = subprocess.run(["bash", "-euc", '. "$0"; listening_port "$1"', SCRIPT_LIBRARY, said], capture_output=True, text=True,
                                 check=False)
            self.assertEqual((ran.returncode, ran.stdout), expected, ran.stderr)

    def test_a_receiver_prints_its_address(self):
        for flags, where in (((), "every address"), (("--listen=::1",), "::1: every client")):
            receiver = subprocess.Popen((RECV, "-p", "0", "--timeout=0.1", "--device=soft0", *flags),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            err = receiver.communicate(timeout=60 * SLOW)[1].decode()
            self.assertRegex(err, rf"^rdma_recv: listening on port \d+ at {where}")

    def test_only_servers_listen(self):
        for command, why in (((PING_PONG, "--role=client"), "a client does not listen"), ((PING_PONG,), "works only with --role=server"),
                             ((LAT_BW,), "works only with --role=server"), (EXCHANGE, "with --local all nodes listen at 127.0.0.1")):
            with self.subTest(command):
                self.assert_one_line(self.run_program(*command, "--listen=127.0.0.1"), "--listen", why)

    def test_a_node_of_a_mesh(self):
        ports = hold_ports(self, 2)
        cluster = f"--cluster=localhost:{ports[0]},localhost:{ports[1]}"
        nodes = [self.start(MESH, cluster, f"--rank={rank}", "--device=soft0", "--total=4K", "--listen=127.0.0.1")
                 for rank in range(2)]
        for rank, node in enumerate(nodes):
            node.wait_for(rf"node {rank}: listening on port {ports[rank]} at 127\.0\.0\.1: every client")
            self.assertEqual(node.finish()[0], 0)


if __name__ == "__main__":
    unittest.main()
