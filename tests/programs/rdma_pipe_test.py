#!/usr/bin/env python3
"""Runs rdma_send and rdma_recv as a user does: every size, several receivers, chains, and every way in which they
end."""

import hashlib
import os
import pty
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from program_runs import BIN, PING_PONG, SLOW, TRACES, ProgramTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from held_ports import hold_ports  # noqa: E402
import hosts  # noqa: E402  pylint: disable=wrong-import-position

SEND = os.path.join(BIN, "rdma_send")
RECV = os.path.join(BIN, "rdma_recv")
BLOCK = 512 << 10
DEPTH = 4
MIB = 1 << 20
# "Within a second or so" of a death, plus time to start and read on a busy machine.
SOON = 3


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Pipe:
    """One of the two programs. A thread reads its standard error to the end. Tests read its standard output."""

    def __init__(self, arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options):
        self.process = subprocess.Popen(arguments, stdin=stdin, stdout=stdout, stderr=stderr, **options)
        self.pid = self.process.pid
        self.err = b""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read_err)
        if self.process.stderr:
            self.reader.start()

    def _read_err(self):
        for line in self.process.stderr:
            with self.changed:
                self.err += line
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, pattern, seconds=20):
        """Waits until a line on standard error matches. Returns the match."""
        with self.changed:
            self.changed.wait_for(lambda: re.search(pattern, self.err.decode()) or not self.reader.is_alive(), seconds * SLOW)
        match = re.search(pattern, self.err.decode())
        if not match:
            raise AssertionError(f"no {pattern!r} within {seconds} s; there is: {self.err.decode()}")
        return match

    def read(self, count, seconds=20):
        """Reads `count` bytes of standard output."""
        data = b""
        deadline = time.monotonic() + seconds * SLOW
        selector = selectors.DefaultSelector()
        selector.register(self.process.stdout, selectors.EVENT_READ)
        while len(data) < count:
            if not selector.select(max(0, deadline - time.monotonic())):
                raise AssertionError(f"{len(data)} bytes of {count} within {seconds} s")
            more = os.read(self.process.stdout.fileno(), count - len(data))
            if not more:
                raise AssertionError(f"it ended after {len(data)} bytes of {count}: {self.err.decode()}")
            data += more
        return data

    def finish(self, seconds=60):
        """Waits for the end. Returns exit status and standard error."""
        self.process.wait(seconds * SLOW)
        if self.process.stderr:
            self.reader.join(seconds)
        return self.process.returncode, self.err.decode()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        if self.process.stderr:
            self.reader.join()
            self.process.stderr.close()


class PipeTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def file(self, data, name="in"):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return open(self.path(name), "rb")  # pylint: disable=consider-using-with

    def begin(self, *arguments, **options):
        pipe = Pipe(list(arguments), **options)
        self.addCleanup(pipe.end)
        return pipe

    def recv(self, *arguments, **options):
        """A receiver, and the port that it listens at."""
        pipe = self.begin(RECV, "-p", "0", "-v", "--device=soft0", *arguments, **options)
        return pipe, int(pipe.wait_for(r"listening on port (\d+)").group(1))

    def recv_to(self, name, *arguments):
        with open(self.path(name), "wb") as file:
            return self.recv(*arguments, stdout=file)

    def send(self, *arguments, **options):
        words = [f"127.0.0.1:{word}" if isinstance(word, int) else word for word in arguments]
        return self.begin(SEND, *words, "--device=soft0", **options)

    def written(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def assert_fine(self, pipe):
        status, err = pipe.finish()
        self.assertEqual(status, 0, err)
        for line in err.splitlines():
            self.assertRegex(line, r"^rdma_recv: (listening on|the sender is) ")

    def assert_failed(self, pipe, *parts, seconds=SOON):
        """Expects exit status 1 within `seconds`, and one line that contains all `parts`, apart from the lines of
        -v."""
        status, err = pipe.finish(seconds)
        self.assertEqual(status, 1, err)
        lines = [line for line in err.splitlines() if not re.match(r"rdma_recv: (listening on|the sender is) ", line)]
        self.assertEqual(len(lines), 1, err)
        for trace in TRACES:
            self.assertNotIn(trace, err)
        for part in parts:
            self.assertRegex(lines[0], part)

    def pass_through(self, data, send_options=(), recv_options=()):
        receiver, port = self.recv_to("out", *recv_options)
        with self.file(data) as file:
            sender = self.send(port, *send_options, stdin=file)
        self.assert_fine(sender)
        self.assert_fine(receiver)
        self.assertEqual(sha(self.written("out")), sha(data))

    def fill(self, sender, least=0):
        """Writes zeroes to a sender until it accepts no more. Returns the number of bytes that it has accepted.

        A busy machine may accept nothing for a while. So, for 20 s, this continues until `least` bytes are accepted.
        """
        fd = sender.process.stdin.fileno()
        os.set_blocking(fd, False)
        selector = selectors.DefaultSelector()
        selector.register(fd, selectors.EVENT_WRITE)
        taken = 0
        patience = time.monotonic() + 20 * SLOW
        while selector.select(0.5 * SLOW) or (taken < least and time.monotonic() < patience):
            try:
                taken += os.write(fd, bytes(64 << 10))
            except BlockingIOError:
                pass
        os.set_blocking(fd, True)
        return taken


class Runs(PipeTest):
    def setUp(self):
        super().setUp()
        seed = random.randrange(1 << 32)
        self.random = random.Random(seed)
        print(f"{self.id()}: seed {seed}", file=sys.stderr)

    def test_sizes(self):
        for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, DEPTH * BLOCK, 8 * MIB + 1):
            with self.subTest(size):
                self.pass_through(self.random.randbytes(size))

    def test_small_blocks(self):
        self.pass_through(self.random.randbytes(MIB + 1), ["--block=4K", "--depth=2"])

    def test_large_blocks(self):
        self.pass_through(self.random.randbytes(9 * MIB), ["--block=8M", "--depth=2"])

    def test_without_a_checksum(self):
        self.pass_through(self.random.randbytes(MIB), ["--no-checksum"])

    def test_ways_to_wait(self):
        for polling in ("busy", "adaptive", "epoll"):
            with self.subTest(polling):
                option = [f"--polling={polling}"]
                self.pass_through(self.random.randbytes(3 * MIB), option, option)

    def test_to_the_disk(self):
        self.pass_through(self.random.randbytes(MIB), recv_options=["--fsync"])

    def test_in_parts_from_the_middle_of_a_file(self):
        data = self.random.randbytes(3 * MIB)
        receiver, port = self.recv_to("out")
        with self.file(data) as file:
            os.lseek(file.fileno(), 5, os.SEEK_SET)
            self.assert_fine(self.send(port, stdin=file))
        self.assert_fine(receiver)
        self.assertEqual(sha(self.written("out")), sha(data[5:]))

    def test_the_receiver_may_start_later(self):
        (port,) = hold_ports(self)
        with self.file(b"late") as file:
            sender = self.send("localhost", f"--port={port}", stdin=file)
        with open(self.path("out"), "wb") as out:
            receiver = self.begin(RECV, f"--port={port}", "--device=soft0", stdout=out)
        self.assert_fine(sender)
        self.assert_fine(receiver)
        self.assertEqual(self.written("out"), b"late")

    def test_bytes_of_a_slow_producer_are_sent_at_once(self):
        """Data is passed on at once, even single bytes."""
        receiver, port = self.recv()
        sender = self.send(port, stdin=subprocess.PIPE)
        for size in (1, 1000, 3, BLOCK + 1, 1):
            data = self.random.randbytes(size)
            sender.process.stdin.write(data)
            sender.process.stdin.flush()
            self.assertEqual(receiver.read(size), data)
        sender.process.stdin.close()
        self.assert_fine(sender)
        self.assert_fine(receiver)

    def test_a_slow_producer_through_a_chain(self):
        last, last_port = self.recv()
        middle, port = self.recv(f"--forward=127.0.0.1:{last_port}")
        sender = self.send(port, stdin=subprocess.PIPE)
        for size in (1, 1000, 3, BLOCK + 1, 1):
            data = self.random.randbytes(size)
            sender.process.stdin.write(data)
            sender.process.stdin.flush()
            self.assertEqual(middle.read(size), data)
            self.assertEqual(last.read(size), data)
        sender.process.stdin.close()
        for pipe in (sender, middle, last):
            self.assert_fine(pipe)

    def test_a_slow_consumer_stops_the_producer_and_loses_nothing(self):
        receiver, port = self.recv()
        sender = self.send(port, stdin=subprocess.PIPE)
        taken = self.fill(sender, 2 * DEPTH * BLOCK)
        # The blocks of sender and receiver are full, and so are the pipes. Input, network and output work in parallel.
        self.assertGreaterEqual(taken, 2 * DEPTH * BLOCK)
        self.assertLessEqual(taken, (2 * DEPTH + 2) * BLOCK + 3 * MIB)
        self.assertEqual(receiver.read(taken), bytes(taken))  # no further input is needed to push it
        sender.process.stdin.close()
        self.assert_fine(sender)
        self.assert_fine(receiver)

    def test_several_receivers(self):
        data = self.random.randbytes(8 * MIB + 1)
        receivers = [self.recv_to(f"out{i}") for i in range(3)]
        with self.file(data) as file:
            sender = self.send(*(port for _, port in receivers), stdin=file)
        self.assert_fine(sender)
        for i, (receiver, _) in enumerate(receivers):
            self.assert_fine(receiver)
            self.assertEqual(sha(self.written(f"out{i}")), sha(data))

    def chain(self, size, *middle_options):
        data = self.random.randbytes(size)
        last, port = self.recv_to("out2")
        second, port = self.recv_to("out1", f"--forward=127.0.0.1:{port}", *middle_options)
        first, port = self.recv_to("out0", "--forward", f"127.0.0.1:{port}", *middle_options)
        with self.file(data) as file:
            sender = self.send(port, stdin=file)
        for pipe in (sender, first, second, last):
            self.assert_fine(pipe)
        self.assertEqual(sha(self.written("out2")), sha(data))
        for name in ("out0", "out1"):
            self.assertEqual(sha(self.written(name)), sha(b"" if middle_options else data))

    def test_chains(self):
        for size in (0, 1, BLOCK + 1, 8 * MIB + 1):
            with self.subTest(size):
                self.chain(size)
                self.chain(size, "--no-output")

    def test_a_tree(self):
        data = self.random.randbytes(5 * MIB)
        leaves = [self.recv_to(f"leaf{i}") for i in range(4)]
        addresses = [f"127.0.0.1:{port}" for _, port in leaves]
        nodes = [self.recv_to(f"node{i}", "--forward=" + ",".join(addresses[2 * i:2 * i + 2])) for i in range(2)]
        with self.file(data) as file:
            sender = self.send(*(port for _, port in nodes), stdin=file)
        self.assert_fine(sender)
        for pipe, _ in leaves + nodes:
            self.assert_fine(pipe)
        for name in ("leaf0", "leaf1", "leaf2", "leaf3", "node0", "node1"):
            self.assertEqual(sha(self.written(name)), sha(data))

    def test_a_chain_of_two_programs_and_a_pipe(self):
        """The chain of RDMA cat: rdma_recv | rdma_send C."""
        data = self.random.randbytes(3 * MIB + 17)
        last, last_port = self.recv_to("out")
        middle, port = self.recv()
        hop = self.send(last_port, stdin=middle.process.stdout)
        middle.process.stdout.close()
        with self.file(data) as file:
            sender = self.send(port, stdin=file)
        for pipe in (sender, middle, hop, last):
            self.assert_fine(pipe)
        self.assertEqual(sha(self.written("out")), sha(data))

    def test_verbose_names_the_peer(self):
        receiver, port = self.recv()
        with self.file(b"x") as file:
            sender = self.send(port, "-v", stdin=file)
        self.assertEqual(sender.finish()[0], 0)
        self.assertRegex(sender.err.decode(), rf"rdma_send: sending to 127\.0\.0\.1:{port} \(.*pid {receiver.pid};")
        self.assertEqual(receiver.finish()[0], 0)
        self.assertRegex(receiver.err.decode(), rf"the sender is 127\.0\.0\.1:\d+ \(.*pid {sender.pid};")

    def test_stats(self):
        receiver, port = self.recv("--stats", stdout=subprocess.DEVNULL)
        with self.file(b"x" * 1000) as file:
            sender = self.send(port, "--stats", stdin=file)
        line = r"1000 bytes in [\d.]+ s, [\d.]+ [kM]?B/s, processor [\d.]+ s user [\d.]+ s system, XXH3 ([0-9a-f]{16})\n"
        self.assertEqual((sender.finish()[0], receiver.finish()[0]), (0, 0))
        sums = [re.search(line, pipe.err.decode()).group(1) for pipe in (sender, receiver)]
        self.assertEqual(sums[0], sums[1])

    def test_progress_is_for_terminals(self):
        for options, shown in (([], True), (["--no-progress"], False)):
            with self.subTest(options):
                receiver, port = self.recv(stdout=subprocess.DEVNULL)
                ours, theirs = pty.openpty()
                sender = self.send(port, "--size=1M", *options, stdin=subprocess.PIPE, stderr=theirs)
                os.close(theirs)
                sender.process.stdin.write(bytes(MIB // 2))
                sender.process.stdin.flush()
                text = b""
                if shown:
                    while b"%" not in text:
                        text += os.read(ours, 1000)
                    self.assertRegex(text.decode(), r"\r\x1b\[Krdma_send: 524.3 kB  .*/s  50 %")
                sender.process.stdin.close()
                self.assertEqual(sender.finish()[0], 0)
                try:
                    text += os.read(ours, 1000)
                except OSError:
                    pass  # no more output, and no more writer
                os.close(ours)
                if shown:
                    self.assertTrue(text.endswith(b"\r\x1b[K"), text)
                else:
                    self.assertEqual(text, b"")
                self.assert_fine(receiver)


class Bugs(PipeTest):
    """Bugs of RDMA cat: it waited for more events than arrive; used one list of slices, or one buffer, for both
    directions; copied in the receive loop; did not overlap input and network. Runs also tests the first and the
    last."""

    def test_no_number_of_blocks_hangs(self):
        for blocks in range(0, 21):
            with self.subTest(blocks):
                self.pass_through(os.urandom(blocks * 4096), ["--block=4K", "--depth=4"])

    def test_lengths_and_data_of_each_hop_are_independent(self):
        """Blocks of all lengths are received and sent at the same time. Their lengths and buffers are independent."""
        seed = random.randrange(1 << 32)
        with self.subTest(seed=seed):
            lengths = random.Random(seed)
            last, port = self.recv()
            middle, port = self.recv(f"--forward=127.0.0.1:{port}", "--no-output", stdout=subprocess.DEVNULL)
            sender = self.send(port, "--block=4K", "--depth=4", stdin=subprocess.PIPE)
            data = bytearray()
            for _ in range(300):
                data += lengths.randbytes(lengths.choice((1, 7, 4095, 4096, 4097, 9000)))
            whole = hashlib.sha256(data).hexdigest()

            def write():
                rest = memoryview(data)
                while rest:
                    count = lengths.choice((1, 100, 4096, 5000, 20000))
                    sender.process.stdin.write(rest[:count])
                    sender.process.stdin.flush()
                    rest = rest[count:]
                sender.process.stdin.close()

            writer = threading.Thread(target=write)
            writer.start()
            got = last.read(len(data))
            writer.join()
            self.assertEqual(sha(got), whole)
            for pipe in (sender, middle, last):
                self.assert_fine(pipe)

    @unittest.skipIf(SLOW > 1 or os.environ.get("RDMACOMM_SOFT0_WIRE") or os.environ.get("RDMACOMM_SOFT0_LATE"),
                     "speed is that of a plain build, through shared memory")
    def test_the_receiver_does_not_copy(self):
        """The receiver's CPU time, without a checksum, is less than that of one copy of the bytes."""
        size = 512 * MIB
        source = bytearray(64 * MIB)
        bytes(source)
        began = time.process_time()
        for _ in range(size // len(source)):
            bytes(source)
        copying = time.process_time() - began
        receiver, port = self.recv("--stats", stdout=subprocess.DEVNULL)
        producer = subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE)
        sender = self.send(port, "--no-checksum", "--block=1M", stdin=producer.stdout)
        producer.stdout.close()
        producer.wait()
        self.assertEqual((sender.finish()[0], receiver.finish()[0]), (0, 0), sender.err + receiver.err)
        used = re.search(r"processor ([\d.]+) s user ([\d.]+) s system", receiver.err.decode())
        self.assertLess(float(used.group(1)) + float(used.group(2)), copying)


class Ends(PipeTest):
    """If one program ends, the others report it in one line, within a second or so."""

    def flowing(self, *send_options, **recv_options):
        """A sender of endless zeroes and its receiver, in the middle of the transfer."""
        receiver, port = self.recv(**recv_options)
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(port, *send_options, stdin=zeroes)
        receiver.read(4 * MIB)
        return sender, receiver

    def idle_chain(self):
        """A chain through which one byte has been sent, and whose producer is now idle."""
        last, port = self.recv()
        first, port = self.recv(f"--forward=127.0.0.1:{port}", "--no-output", stdout=subprocess.DEVNULL)
        sender = self.send(port, stdin=subprocess.PIPE)
        sender.process.stdin.write(b"x")
        sender.process.stdin.flush()
        self.assertEqual(last.read(1), b"x")
        return sender, first, last

    def idle(self, *recv_options):
        """A sender and a receiver, with a producer that is now idle."""
        receiver, port = self.recv(*recv_options)
        sender = self.send(port, stdin=subprocess.PIPE)
        sender.process.stdin.write(b"x" * 1000)
        sender.process.stdin.flush()
        receiver.read(1000)
        return sender, receiver

    def test_the_receiver_is_killed(self):
        for begin in (self.flowing, self.idle):
            with self.subTest(begin.__name__):
                sender, receiver = begin()
                receiver.process.kill()
                self.assert_failed(sender, f"pid {receiver.pid}")

    def test_the_sender_is_killed(self):
        for begin in (self.flowing, self.idle):
            with self.subTest(begin.__name__):
                sender, receiver = begin()
                sender.process.kill()
                drain = threading.Thread(target=receiver.process.stdout.read)
                drain.start()
                self.assert_failed(receiver, f"pid {sender.pid}")
                drain.join()

    def test_the_sender_is_killed_while_the_output_is_not_read(self):
        sender, receiver = self.flowing()
        sender.process.kill()
        self.assert_failed(receiver, f"pid {sender.pid}")

    def test_the_reader_closes(self):
        for begin in (self.flowing, self.idle):
            with self.subTest(begin.__name__):
                sender, receiver = begin()
                receiver.process.stdout.close()
                self.assert_failed(receiver, "the process that reads standard output has closed it")
                self.assert_failed(sender, "the process that reads standard output has closed it")

    def test_the_reader_closes_before_a_sender_connects(self):
        receiver, _ = self.recv()
        receiver.process.stdout.close()
        self.assert_failed(receiver, "the process that reads standard output has closed it")

    def test_head(self):
        receiver, port = self.recv()
        head = subprocess.Popen(["head", "-c", "1000"], stdin=receiver.process.stdout, stdout=subprocess.PIPE)
        receiver.process.stdout.close()
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(port, stdin=zeroes)
        self.assertEqual(head.communicate()[0], bytes(1000))
        self.assert_failed(receiver, "the process that reads standard output has closed it")
        self.assert_failed(sender, "the process that reads standard output has closed it")

    def test_the_disk_is_full(self):
        with open("/dev/full", "wb") as full:
            receiver, port = self.recv(stdout=full)
        for_all = "No space left on device"
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(port, stdin=zeroes)
        self.assert_failed(receiver, for_all)
        self.assert_failed(sender, f"pid {receiver.pid}", for_all)

    def test_if_one_receiver_fails_the_others_get_the_reason(self):
        """The line ends with the peer's reason. The general text of the error code is not added."""
        with open("/dev/full", "wb") as full:
            failing, port = self.recv(stdout=full)
        other, other_port = self.recv(stdout=subprocess.DEVNULL)
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(port, other_port, stdin=zeroes)
        self.assert_failed(failing, "No space left on device")
        self.assert_failed(sender, "No space left on device")
        self.assert_failed(other, r"has lost another receiver: .*No space left on device\S*$")

    def test_if_one_receiver_fails_a_blocked_chain_gets_the_reason(self):
        last, port = self.recv()
        first, chain_port = self.recv(f"--forward=127.0.0.1:{port}", "--no-output", stdout=subprocess.DEVNULL)
        failing, port = self.recv()
        sender = self.send(port, chain_port, stdin=subprocess.PIPE)
        self.fill(sender)
        failing.process.stdout.close()
        self.assert_failed(failing, "the process that reads standard output has closed it")
        self.assert_failed(sender, "the process that reads standard output has closed it")
        for pipe in (first, last):
            self.assert_failed(pipe, r"has lost another receiver: .*the process that reads standard output has closed it")

    def test_the_disk_is_full_at_the_end(self):
        """One byte: the sender has read all of its input long before the error arrives."""
        with open("/dev/full", "wb") as full:
            receiver, port = self.recv(stdout=full)
        with self.file(b"x") as file:
            sender = self.send(port, stdin=file)
        self.assert_failed(receiver, "No space left on device")
        self.assert_failed(sender, "No space left on device")

    def test_the_sender_cannot_read(self):
        receiver, port = self.recv(stdout=subprocess.DEVNULL)
        sender = self.send(port, stdin=os.open(self.folder.name, os.O_RDONLY))
        self.assert_failed(sender, "standard input", "Is a directory")
        receiver.end()

    def test_the_receiver_hangs(self):
        sender, receiver = self.flowing("--silent-peer-after=3")
        receiver.process.send_signal(signal.SIGSTOP)
        self.assert_failed(sender, f"pid {receiver.pid}", "sent nothing for", seconds=3 + 2 * SOON)

    def test_a_chain_that_breaks(self):
        for who in ("sender", "first", "second", "last"):
            with self.subTest(who):
                last, last_port = self.recv()
                second, port = self.recv(f"--forward=127.0.0.1:{last_port}", stdout=subprocess.DEVNULL)
                first, port = self.recv(f"--forward=127.0.0.1:{port}", "--no-output", stdout=subprocess.DEVNULL)
                with open("/dev/zero", "rb") as zeroes:
                    sender = self.send(port, stdin=zeroes)
                last.read(4 * MIB)
                chain = {"sender": sender, "first": first, "second": second, "last": last}
                dead = chain.pop(who)
                dead.process.kill()
                for pipe in chain.values():
                    self.assert_failed(pipe, f"pid {dead.pid}")

    def test_a_chain_that_breaks_while_it_is_idle(self):
        for who in ("sender", "first", "last"):
            with self.subTest(who):
                sender, first, last = self.idle_chain()
                chain = {"sender": sender, "first": first, "last": last}
                dead = chain.pop(who)
                dead.process.kill()
                for pipe in chain.values():
                    self.assert_failed(pipe, f"pid {dead.pid}")

    def test_the_reader_at_the_end_of_a_chain_closes(self):
        last, port = self.recv()
        first, port = self.recv(f"--forward=127.0.0.1:{port}", "--no-output", stdout=subprocess.DEVNULL)
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(port, stdin=zeroes)
        last.read(MIB)
        last.process.stdout.close()
        for pipe in (last, first, sender):
            self.assert_failed(pipe, "the process that reads standard output has closed it")

    def test_the_reader_at_the_end_of_a_chain_closes_while_it_is_idle(self):
        sender, first, last = self.idle_chain()
        last.process.stdout.close()
        for pipe in (last, first, sender):
            self.assert_failed(pipe, "the process that reads standard output has closed it")

    def test_one_of_three_dies(self):
        receivers = [self.recv() for _ in range(3)]
        with open("/dev/zero", "rb") as zeroes:
            sender = self.send(*(port for _, port in receivers), stdin=zeroes)
        for receiver, _ in receivers:
            receiver.read(MIB)
        dead = receivers.pop(1)[0]
        dead.process.kill()
        self.assert_failed(sender, f"pid {dead.pid}")
        for receiver, _ in receivers:
            self.assert_failed(receiver, f"pid {dead.pid}")

    def test_one_of_three_dies_and_the_others_continue(self):
        receivers = [self.recv() for _ in range(3)]
        sender = self.send(*(port for _, port in receivers), "--on-failure=continue", stdin=subprocess.PIPE)
        sender.process.stdin.write(b"before")
        sender.process.stdin.flush()
        for receiver, _ in receivers:
            self.assertEqual(receiver.read(6), b"before")
        dead = receivers.pop(1)[0]
        dead.process.kill()
        sender.wait_for(f"receiver .*pid {dead.pid}.* has failed, 2 receivers remain: ")
        sender.process.stdin.write(b"after")
        sender.process.stdin.close()
        for receiver, _ in receivers:
            self.assertEqual(receiver.read(5), b"after")
            self.assert_fine(receiver)
        status, err = sender.finish()
        self.assertEqual(status, 1, err)
        self.assertEqual(len(err.splitlines()), 2, err)
        self.assertIn("1 of 3 receivers did not get all data; the others did", err)

    def test_all_die(self):
        receivers = [self.recv() for _ in range(2)]
        sender = self.send(*(port for _, port in receivers), "--on-failure=continue", stdin=subprocess.PIPE)
        for receiver, _ in receivers:
            receiver.wait_for("the sender is")
            receiver.process.kill()
        self.assertEqual(sender.finish(SOON)[0], 1)


class Errors(PipeTest):
    def refused(self, program, *arguments):
        pipe = self.begin(program, "--device=soft0", *arguments)
        status, err = pipe.finish()
        return status, pipe.process.stdout.read().decode(), err

    def test_arguments(self):
        for program, arguments, parts in (
                (SEND, [], ["no receiver"]),
                (SEND, ["host:0"], ['"host:0"', "1 to 65535"]),
                (SEND, [""], ["the host is missing"]),
                (SEND, ["h", "--block=1K"], ["--block=1K", "4K to 64M"]),
                (SEND, ["h", "--block=1X"], ["--block", "1X"]),
                (SEND, ["h", "--block=1G"], ["--block=1G"]),
                (SEND, ["h", "--depth=1"], ["--depth=1", "2 to 256"]),
                (SEND, ["h", "--block=64M", "--depth=256"], ["1G bytes in total"]),
                (SEND, ["h", "--size=many"], ["--size", "many"]),
                (SEND, ["h", "--on-failure=hope"], ["--on-failure=hope", "stop and continue"]),
                (SEND, ["h", "--role=both"], ["--role is not an option"]),
                (SEND, ["h", "--threads=per-qp"], ["--threads is not an option"]),
                (SEND, ["h", "--shards=2"], ["--shards is not an option"]),
                (SEND, ["h", "--bogus"], ["bogus"]),
                (SEND, ["h", "-p", "70000"], ["70000"]),
                (SEND, ["no-such-host.invalid", "--connect-timeout=1"], ["no-such-host.invalid"]),
                (RECV, ["extra"], ["extra"]),
                (RECV, ["--timeout=-1"], ["--timeout"]),
                (RECV, ["--timeout=nan"], ["--timeout"]),
                (RECV, ["--no-output"], ["--no-output", "--forward"]),
                (RECV, ["--forward=a,,b"], ["--forward", "the host is missing"]),
                (RECV, ["--keep-serving"], ["--keep-serving is not an option"]),
                (RECV, ["--fsync"], ["--fsync", "not a file"]),
                (RECV, ["--listen=192.0.2.77", "-p", "0"], ["192.0.2.77"])):
            with self.subTest(arguments):
                self.assert_one_line(self.refused(program, *arguments), *parts)

    def test_no_sender_connects(self):
        receiver, _ = self.recv("--timeout=0.2")
        self.assert_failed(receiver, r"no sender has sent anything within --timeout=0\.2 s")

    def test_no_listener(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            self.assert_one_line(self.refused(SEND, f"127.0.0.1:{port}", "--connect-timeout=0.5"), f"127.0.0.1:{port}")

    def test_a_server_of_another_program(self):
        server, port = self.start_server(PING_PONG, "--keep-serving")
        self.assert_one_line(self.refused(SEND, f"127.0.0.1:{port}"), "the client is not ping_pong_test")
        server.kill()

    def test_a_client_of_another_program(self):
        receiver, port = self.recv()
        self.assert_one_line(self.run_program(PING_PONG, "--role=client", f"--port={port}", "--device=soft0"),
                             "the sender is not rdma_send")
        with self.file(b"x") as file:
            self.assert_fine(self.send(port, stdin=file))
        self.assertEqual(receiver.finish()[0], 0)

    def test_port_in_use(self):
        with socket.create_server(("", 0)) as other:
            port = other.getsockname()[1]
            self.assert_one_line(self.refused(RECV, "-p", str(port)), str(port), "in use")

    def test_a_second_sender(self):
        receiver, port = self.recv()
        sender = self.send(port, stdin=subprocess.PIPE)
        sender.process.stdin.write(b"fir")
        sender.process.stdin.flush()
        self.assertEqual(receiver.read(3), b"fir")
        self.assert_one_line(self.refused(SEND, f"127.0.0.1:{port}"), "already has a sender")
        sender.process.stdin.write(b"st")
        sender.process.stdin.close()
        self.assertEqual(receiver.read(2), b"st")
        self.assert_fine(sender)
        self.assertEqual(receiver.finish()[0], 0)

    def test_closed_descriptors(self):
        for program, closed in ((f"{SEND} localhost <&-", "standard input"), (f"{RECV} -p 0 >&-", "standard output")):
            with self.subTest(closed):
                self.assert_one_line(self.run_program("sh", "-c", program + " --device=soft0"), closed, "Bad file descriptor")

    def test_the_next_receiver_of_a_chain_is_missing(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{probe.getsockname()[1]}"
            receiver, port = self.recv(f"--forward={nobody}", "--connect-timeout=0.5")
            sender = self.send(port, stdin=subprocess.PIPE)
            sender.process.stdin.write(b"x")  # before that, no receiver may be connected
            sender.process.stdin.flush()
            self.assert_failed(receiver, nobody)
            self.assert_failed(sender, nobody)

    def test_help(self):
        for program, parts in ((SEND, ("usage: rdma_send HOST", "--on-failure=stop|continue", "--no-checksum")),
                               (RECV, ("usage: rdma_recv [-p PORT]", "--forward=HOST[:PORT],...", "--no-output", "--fsync"))):
            out = self.assert_success(self.run_program(program, "--help"))
            self.assertEqual(self.run_program(program, "-h"), (0, out, ""))
            for text in parts + ("--device=NAME", "--connector=KIND", "--stats", "Exit status"):
                self.assertIn(text, out)


class SeveralHosts(PipeTest):
    def setUp(self):
        super().setUp()
        reason = hosts.why_not(loss=True)
        if reason:
            self.skipTest(reason)

    def through(self, size, count, loss):
        data = os.urandom(size)
        with hosts.Hosts(count) as network:
            network.loss(loss)
            pipes = []
            for number in range(count - 1, 0, -1):
                more = [] if number == count - 1 else [f"--forward={network[number + 1].ipv4}"]
                with open(self.path(f"out{number}"), "wb") as file:
                    pipes.append(self.begin("ip", "netns", "exec", network[number].namespace, RECV, "--device=soft0", *more,
                                            stdout=file))
            with self.file(data) as file:
                pipes.append(self.begin("ip", "netns", "exec", network[0].namespace, SEND, "--device=soft0",
                                        network[1].ipv4, stdin=file))
            for pipe in reversed(pipes):
                self.assert_fine(pipe)
        for number in range(1, count):
            self.assertEqual(sha(self.written(f"out{number}")), sha(data))

    def test_sizes_with_loss(self):
        for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 8 * MIB + 1):
            with self.subTest(size):
                self.through(size, 2, 1)

    def test_the_link_is_down_for_three_seconds(self):
        with hosts.Hosts(2) as network:
            receiver = self.begin("ip", "netns", "exec", network[1].namespace, RECV, "--device=soft0", "-v")
            receiver.wait_for("listening")
            sender = self.begin("ip", "netns", "exec", network[0].namespace, SEND, "--device=soft0", network[1].ipv4,
                                stdin=subprocess.PIPE)
            data = os.urandom(4 * MIB)
            sender.process.stdin.write(data[:2 * MIB])
            self.assertEqual(receiver.read(2 * MIB), data[:2 * MIB])
            network.link(1, "down")
            writer = threading.Thread(target=sender.process.stdin.write, args=(data[2 * MIB:],))
            writer.start()
            time.sleep(3)  # longer than the limit under test
            network.link(1, "up")
            self.assertEqual(receiver.read(2 * MIB, 60), data[2 * MIB:])
            writer.join()
            sender.process.stdin.close()
            self.assert_fine(sender)
            self.assert_fine(receiver)

    def test_a_chain_with_loss(self):
        self.through(3 * MIB + 1, 3, 1)


if __name__ == "__main__":
    os.environ.pop("RCL_MAX_VLOG_LEVEL", None)
    unittest.main()
