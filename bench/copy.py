#!/usr/bin/env python3
"""rdma_copy against cp and rsync: a large file, a tree of small files, and a second --delta run, in one table.

usage: bench/copy.py [--runs=N] [--bytes=BYTES] [--files=N] [--folder=DIR] [--output=FILE]

All files are below --folder (default: build, because people copy on a disk's file system; all files are in the page
cache. In /dev/shm each page has 4 KiB, and costs more than the copying). rdma_copy copies to an rdma_copy --serve, and
rsync -aW to an rsync --daemon; both servers use loopback and are started before. cp --reflink=never copies within the
machine. Each of N runs (default 5) measures all of them, in an order that is random but always uses the same seed, each
into an empty directory. The result is the median. Time is measured from the start of the program to its end. User and
system time are the sums of client and server. "delta" changes 1 % of the pages of the file, at random places, and
copies it over the old one: its result is the share of the bytes that were sent, including hashes.

Three effects that do not belong to the programs would otherwise decide the result. First, a program pays for the memory
that its predecessor has left: hence the different orders. Second, in a virtual machine free memory may belong to the
host, and getting a GiB of it back takes seconds: so that amount is allocated and freed before each measurement. Third,
ext4 without a journal does not reuse an inode number for a minute (six minutes if the deletion is not on the disk yet).
Whenever it creates a file, it looks at all these inodes (recently_deleted() in fs/ext4/ialloc.c), which takes longer
than the copying. So trees are deleted only at the end, and you should wait for that time before you measure again.

The table is written to standard output and to --output (default bench/results/copy.md). Needs a Release build, rsync,
and a quiet machine. Exit status 1: a bound is not kept, or a program failed.
"""
import argparse
import datetime
import json
import mmap
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
COPY = os.path.join(ROOT, "build/release/bin/rdma_copy")
SECONDS = 300
PAGE = 4096
MADV_POPULATE_WRITE = 23
# (contestant, compared with, largest ratio of the times)
BOUNDS = (("file, rdma_copy", "file, cp", 1.3), ("file, rdma_copy", "file, rsync", 1 / 5),
          ("tree, rdma_copy", "tree, rsync", 1 / 2))
DELTA_BOUND = 0.03


class Failed(Exception):
    """A program failed; the text says which one and why."""


class Figure(NamedTuple):
    seconds: float
    user: float  # seconds, client and server together
    system: float


def processor_time(pid):
    """User and system time in ticks of a process and all its children, ended ones too."""
    user = system = 0
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    user, system = int(fields[11]) + int(fields[13]), int(fields[12]) + int(fields[14])
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        for child in file.read().split():
            more = processor_time(child)
            user, system = user + more[0], system + more[1]
    return user, system


def warm(count):
    """Allocates `count` bytes of memory, in large pages and in small ones, and frees them."""
    for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_NOHUGEPAGE):
        with mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(advice)
            memory.madvise(MADV_POPULATE_WRITE)


def measure(command, server=None):
    tick = os.sysconf("SC_CLK_TCK")
    served = processor_time(server.pid) if server else (0, 0)
    before = os.times()
    began = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    seconds = time.monotonic() - began
    after = os.times()
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)} has failed: {done.stderr.strip()}")
    time.sleep(0.2)  # an rsync daemon's child is counted after it has ended
    spent = processor_time(server.pid) if server else (0, 0)
    return Figure(seconds, after.children_user - before.children_user + (spent[0] - served[0]) / tick,
                  after.children_system - before.children_system + (spent[1] - served[1]) / tick), done.stdout


def file_system(folder):
    found = subprocess.run(["findmnt", "--noheadings", "--output=FSTYPE", f"--target={folder}"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "a file system"


def wait_until_listening(port):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with open("/proc/self/net/tcp", encoding="ascii") as file:
            if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in file.read().splitlines()[1:]):
                return
        time.sleep(0.01)
    raise Failed(f"no process listens at port {port}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bench:
    def __init__(self, folder, arguments):
        self.folder = folder
        self.file = os.path.join(folder, "in/file")
        self.tree = os.path.join(folder, "in/tree")
        self.into = os.path.join(folder, "root")
        os.makedirs(self.tree)
        os.mkdir(self.into)
        self.bytes = arguments.bytes
        with open(self.file, "wb") as file:
            for left in range(arguments.bytes, 0, -(1 << 20)):
                file.write(os.urandom(min(left, 1 << 20)))
        self.random = random.Random(1)
        for number in range(arguments.files):
            name = os.path.join(self.tree, f"d{number % 100}", f"f{number}")
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "wb") as file:
                file.write(self.random.randbytes(self.random.randrange(1, 8192)))
        self.rdma_port, self.rsync_port = free_port(), free_port()
        config = os.path.join(folder, "rsyncd.conf")
        with open(config, "w", encoding="ascii") as file:
            owner = "uid = root\ngid = root\n" if os.geteuid() == 0 else ""
            file.write(f"port = {self.rsync_port}\naddress = 127.0.0.1\nuse chroot = no\n{owner}[m]\npath = {self.into}\nread only = no\n")
        self.rsync_server = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={config}"])
        self.rdma_server = subprocess.Popen([COPY, "--serve", f"--root={self.into}", f"--port={self.rdma_port}",
                                             "--device=soft0"], stdout=subprocess.DEVNULL)
        for port in (self.rdma_port, self.rsync_port):
            wait_until_listening(port)

    def end(self):
        for server in (self.rdma_server, self.rsync_server):
            server.terminate()
            server.wait()

    def fresh(self):
        for name in os.listdir(self.into):
            path = os.path.join(self.into, name)
            if os.path.isdir(path):
                os.rename(path, tempfile.mkdtemp(dir=self.folder))
            else:
                os.unlink(path)
        os.sync()  # unwritten data must not slow down the next program
        warm(2 * self.bytes)

    def rdma(self, *words):
        return measure([COPY, f"--port={self.rdma_port}", "--device=soft0", *words, "127.0.0.1:"], self.rdma_server)

    def rsync(self, source):
        return measure(["rsync", "-aW", source, f"rsync://127.0.0.1:{self.rsync_port}/m/"], self.rsync_server)[0]

    def contestants(self):
        return {"file, cp": lambda: measure(["cp", "--reflink=never", self.file, self.into])[0],
                "file, rdma_copy": lambda: self.rdma(self.file)[0],
                "file, rdma_copy --no-checksum": lambda: self.rdma("--no-checksum", self.file)[0],
                "file, rsync": lambda: self.rsync(self.file),
                "tree, cp": lambda: measure(["cp", "-a", self.tree, self.into])[0],
                "tree, rdma_copy": lambda: self.rdma("-ra", self.tree)[0],
                "tree, rsync": lambda: self.rsync(self.tree)}

    def delta(self):
        """Time, and the share of the bytes that were sent, if 1 % of the pages have one changed byte."""
        self.fresh()
        self.rdma(self.file)
        warm(2 * self.bytes)
        pages = self.bytes // PAGE
        with open(self.file, "r+b") as file:
            for page in self.random.sample(range(pages), pages // 100):
                file.seek(page * PAGE + self.random.randrange(PAGE))
                file.write(self.random.randbytes(1))
        figure, out = self.rdma("--delta", "--json", self.file)
        subprocess.run(["cmp", self.file, os.path.join(self.into, "file")], check=True)
        moved = json.loads(out)["bytes_sent"] + pages * 20  # the server sends block checksums back
        return figure, moved / self.bytes


def shown(values, digits=2):
    median, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} to {most})"


def table_of(figures):
    text = "| | seconds | user seconds | system seconds |\n|---|---|---|---|\n"
    for name, measured in figures.items():
        columns = [shown([getattr(one, column) for one in measured]) for column in Figure._fields]
        text += f"| {name} | {' | '.join(columns)} |\n"
    return text


def verdicts(figures, share):
    text, good = "| | | bound | kept |\n|---|---|---|---|\n", True
    for what, of_what, most in BOUNDS:
        ratio = statistics.median(one.seconds for one in figures[what]) / statistics.median(one.seconds for one in figures[of_what])
        good = good and ratio <= most
        text += f"| time of {what} / {of_what} | {ratio:.2f} | <= {most:.2f} | {'yes' if ratio <= most else 'NO'} |\n"
    good = good and share < DELTA_BOUND
    text += f"| share of the bytes moved by --delta | {share:.4f} | < {DELTA_BOUND} | {'yes' if share < DELTA_BOUND else 'NO'} |\n"
    return text, good


def main():
    parser = argparse.ArgumentParser(description="rdma_copy against cp and rsync")
    parser.add_argument("--runs", type=int, default=5, help="number of measurements of each program (default 5)")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the file (default 1 GiB)")
    parser.add_argument("--files", type=int, default=20000, help="number of files in the tree (default 20000)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build"), help="folder for all files (default build)")
    parser.add_argument("--output", default=os.path.join(ROOT, "bench/results/copy.md"), help="file for the table")
    arguments = parser.parse_args()
    for program, advice in ((COPY, "cmake --preset release && cmake --build --preset release"), ("rsync", "apt-get install rsync")):
        if shutil.which(program) is None:
            sys.exit(f"copy.py: no program {program}; get it with: {advice}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        bench = Bench(folder, arguments)
        try:
            contestants = bench.contestants()
            figures = {name: [] for name in [*contestants, "file, rdma_copy --delta"]}
            shares = []
            orders = random.Random(1)
            for _ in range(arguments.runs):
                for name in orders.sample(list(contestants), len(contestants)):
                    bench.fresh()
                    figures[name].append(contestants[name]())
                figure, share = bench.delta()
                figures["file, rdma_copy --delta"].append(figure)
                shares.append(share)
        except (Failed, subprocess.SubprocessError) as error:
            sys.exit(f"copy.py: {error}")
        finally:
            bench.end()
    bounds, good = verdicts(figures, statistics.median(shares))
    text = (f"# Copies\n\nMade by `bench/copy.py`, {datetime.date.today()}: a file of {arguments.bytes} bytes, a tree of {arguments.files} "
            f"files, on {file_system(arguments.folder)}, medians of {arguments.runs} runs, each in another order, on {processor()}; "
            f"after each median, the smallest and the largest value. User and system time are sums of client and server.\n\n{table_of(figures)}\n{bounds}")
    print(text, end="")
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
