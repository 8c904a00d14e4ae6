#!/usr/bin/env python3
"""rdma_send | rdma_recv against lat_bw_benchmark's WRITE, nc, socat, and reading alone, in one table.

usage: bench/pipes.py [--runs=N] [--bytes=BYTES] [--block=BLOCK[,BLOCK...]] [--depth=N] [--polling=WAY]
                      [--folder=DIR] [--output=FILE]

Each run sends a file of random bytes below --folder (default: build; the whole file is in the page cache) through the
pipe on this host to /dev/null. In /dev/shm reading takes twice as long, because each page has 4 KiB. Each of N runs
(default 5) measures all contestants, in an order that is random but always uses the same seed. The result is the
median. Time is measured from the start of the sending program to the end of both programs, including all that is done
to connect. Processor time is the sum of both programs, per 10^9 bytes.

"WRITE" is the rate of lat_bw_benchmark at the same block size. It sends one buffer again and again, which stays in the
processor's cache, and the receiver does not read the data. "WRITE, round robin" sends from 32 MiB into 32 MiB, which
fit a cache no better than a file does. "reading" is dd, which reads the file and discards the data: no program that
uses read() is faster.

The table is written to standard output and to --output (default bench/results/pipes.md). Needs a Release build, nc
(package netcat-openbsd), socat, and a quiet machine. Exit status 1: a bound is not kept, or a program failed.
"""
import argparse
import datetime
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from machine import processor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
SECONDS = 120
# (contestant, compared with, least ratio)
BOUNDS = (("one hop", "WRITE", 0.9), ("one hop", "WRITE, round robin", 0.9),
          ("one hop, no checksum", "WRITE, round robin", 0.9), ("one hop", "nc", 3), ("one hop", "socat", 1.3),
          ("two hops", "one hop", 0.85))


class Failed(Exception):
    """A program failed; the text says which one and why."""


class Figure(NamedTuple):
    rate: float  # 10^9 bytes a second
    cpu: float = 0  # seconds per 10^9 bytes, of all processes together


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(process, port):
    """Reads the kernel's table: the program would take a test connection for the sender."""
    wanted = f":{port:04X}"
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for table in ("tcp", "tcp6"):
            with open(f"/proc/self/net/{table}", encoding="ascii") as file:
                fields = [line.split() for line in file.read().splitlines()[1:]]
            if any(one[1].endswith(wanted) and one[3] == "0A" for one in fields):
                return
        time.sleep(0.01)
    process.kill()
    raise Failed(f"{process.args} does not listen")


def run(path, size, receivers, sender):
    """Starts `receivers` (pairs of port and command). The sender connects to the last one."""
    running = []
    with open(path, "rb") as source:
        for port, command in receivers:
            running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE))
            wait_until_listening(running[-1], port)
        before = os.times()
        began = time.monotonic()
        running.append(subprocess.Popen(sender, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        for process in reversed(running):
            err = process.communicate(timeout=SECONDS)[1]
            if process.returncode != 0:
                raise Failed(f"{' '.join(process.args)} has failed: {err.decode().strip()}")
        seconds = time.monotonic() - began
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Figure(size / seconds / 1e9, cpu / (size / 1e9))


def pipe(path, size, hops, options, polling):
    common = ["--device=soft0", f"--polling={polling}"]
    ports = [free_port() for _ in range(hops)]
    receivers = []
    for hop, port in enumerate(ports):
        more = [] if hop == 0 else [f"--forward=127.0.0.1:{ports[hop - 1]}", "--no-output"]
        receivers.append((port, [f"{BIN}/rdma_recv", "-p", str(port), *common, *more]))
    return run(path, size, receivers, [f"{BIN}/rdma_send", f"127.0.0.1:{ports[-1]}", *common, *options])


def nc(path, size):
    port = str(free_port())
    return run(path, size, [(int(port), ["nc", "-l", "127.0.0.1", port])], ["nc", "-N", "127.0.0.1", port])


def socat(path, size):
    port = free_port()
    common = ["socat", "-u", "-b", "1048576"]
    return run(path, size, [(port, [*common, f"TCP-LISTEN:{port},reuseaddr", "STDOUT"])],
               [*common, "STDIN", f"TCP:127.0.0.1:{port}"])


def reading(path, size):
    return run(path, size, [], ["dd", "of=/dev/null", "bs=1M", "status=none"])


def write_rate(block, buffers):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        done = subprocess.run([f"{BIN}/lat_bw_benchmark", "--device=soft0", "--ops=write", "--tests=bw", f"--sizes={block}",
                               f"--buffers={buffers}", "--duration=0.3", "--rounds=3", "--json=" + path],
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 0:
            raise Failed(f"lat_bw_benchmark has failed: {done.stderr.strip()}")
        with open(path, encoding="utf-8") as file:
            return Figure(json.load(file)["results"][0]["GB_per_s"])


def shown(values, digits=2):
    median, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} to {most})"


def table_of(figures):
    text = "| | GB/s | processor seconds per GB |\n|---|---|---|\n"
    for name, measured in figures.items():
        cpu = shown([one.cpu for one in measured]) if any(one.cpu for one in measured) else "-"
        text += f"| {name} | {shown([one.rate for one in measured])} | {cpu} |\n"
    return text


def verdicts(figures):
    text, good = "| | ratio | bound | kept |\n|---|---|---|---|\n", True
    for what, of_what, least in BOUNDS:
        ratio = statistics.median(one.rate for one in figures[what]) / statistics.median(one.rate for one in figures[of_what])
        kept = ratio >= least
        good = good and kept
        text += f"| {what} / {of_what} | {ratio:.2f} | >= {least} | {'yes' if kept else 'NO'} |\n"
    return text, good


def make_file(folder, size):
    path = os.path.join(folder, "random")
    with open(path, "wb") as file:
        for left in range(size, 0, -(1 << 20)):
            file.write(os.urandom(min(left, 1 << 20)))
        file.flush()
        os.fsync(file.fileno())  # so that the write-back does not disturb the measurements
    return path


def main():
    parser = argparse.ArgumentParser(description="pipes against nc and socat")
    parser.add_argument("--runs", type=int, default=5, help="number of measurements of each program (default 5)")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the file (default 1 GiB)")
    parser.add_argument("--block", default="512K", help="block size of rdma_send; a list is compared (default 512K)")
    parser.add_argument("--depth", type=int, default=4, help="depth of rdma_send (default 4)")
    parser.add_argument("--polling", default="channel", help="polling mode of both programs (default channel)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build"), help="folder of the file (default build)")
    parser.add_argument("--output", default=os.path.join(ROOT, "bench/results/pipes.md"), help="file for the table")
    arguments = parser.parse_args()
    for program, advice in ((f"{BIN}/rdma_send", "cmake --preset release && cmake --build --preset release"),
                            ("nc", "apt-get install netcat-openbsd"), ("socat", "apt-get install socat")):
        if shutil.which(program) is None:
            sys.exit(f"pipes.py: no program {program}; get it with: {advice}")
    blocks = arguments.block.split(",")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = make_file(folder, arguments.bytes)

        def through(hops, block, *more):
            return lambda: pipe(path, arguments.bytes, hops, [f"--block={block}", f"--depth={arguments.depth}", *more],
                                arguments.polling)

        contestants = {"one hop": through(1, blocks[0]), "one hop, no checksum": through(1, blocks[0], "--no-checksum"),
                       "two hops": through(2, blocks[0]),
                       **{f"one hop, {block}": through(1, block) for block in blocks[1:]},
                       "WRITE": lambda: write_rate(blocks[0], "one"),
                       "WRITE, round robin": lambda: write_rate(blocks[0], "roundrobin"), "nc": lambda: nc(path, arguments.bytes),
                       "socat": lambda: socat(path, arguments.bytes), "reading": lambda: reading(path, arguments.bytes)}
        figures = {name: [] for name in contestants}
        try:
            orders = random.Random(1)
            for _ in range(arguments.runs):
                for name in orders.sample(list(contestants), len(contestants)):
                    figures[name].append(contestants[name]())
        except (Failed, subprocess.TimeoutExpired) as error:
            sys.exit(f"pipes.py: {error}")
    bounds, good = verdicts(figures)
    text = (f"# Pipes\n\nMade by `bench/pipes.py`, {datetime.date.today()}: {arguments.bytes} bytes, blocks of {blocks[0]}, "
            f"medians of {arguments.runs} runs, each in another order, on {processor()}; after each median, the smallest and the largest value.\n\n"
            f"{table_of(figures)}\n{bounds}")
    print(text, end="")
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
