#!/usr/bin/env python3
"""What the library costs on the kernel's rxe: lat_bw_benchmark against perftest, in one guest, in turns.

usage: bench/kernel_vm_perftest.py [--runs N] [lat_bw_benchmark]

Boots a virtual machine (tests/kernel_vm/run) and measures there, N times (default 5), by turns with both programs: latency
and bandwidth of SEND, WRITE and READ at 8 B, 4 KiB and 64 KiB. Both get the same: one processor for each side, MTU 4096, no
inline data, 64 requests outstanding of which every 16th is signaled. Latency is the smallest one of a run's: on two emulated
processors, both of which spin, the usual one says how often the driver was let in between (50 us, or 4 ms).

The noise is what the runs of one program differ by: their largest minus their smallest, in percent of their median, the
larger one of both programs. Exit status 1: the library's median is worse than perftest's by more than that. Wants a quiet
machine. Nothing here says how fast RDMA is: the driver and the processors are emulated.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPS = ("send", "write", "read")
SIZES = (8, 4096, 65536)
# How often each size is measured in one run: a second or so at rxe's pace.
ITERATIONS = {"lat": 500, "bw": 2000}
# What lat_bw_benchmark calls what perftest measures.
MEASURES = {("send", "lat"): "half-rt", ("write", "lat"): "half-rt", ("read", "lat"): "post-done"}
SERVER_CPU, CLIENT_CPU = "1", "0"
PERFTEST_PORT = 18515
SECONDS = 120


@contextlib.contextmanager
def started(words):
    """A process that does not outlive what is inside."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        sys.exit(f"kernel_vm_perftest.py: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def is_listening(port):
    """From the kernel's table: a connection would be taken for the client's."""
    tables = "".join(pathlib.Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    return re.search(rf":{port:04X} \S+ 0A ", tables) is not None


def library_run(program, op, test):
    """One run of lat_bw_benchmark: {bytes: us or GB/s}."""
    peer = os.environ["RDMACOMM_TEST_PEER_ADDRESS"]
    with started([program, "--role=server", "--port=0", "--device=" + os.environ["RDMACOMM_TEST_PEER_DEVICE"]]) as server, \
            tempfile.TemporaryDirectory() as folder:
        port = server.stdout.readline().split()[-1]
        report = pathlib.Path(folder) / "figures.json"
        run([program, "--role=client", f"--server={peer}", f"--port={port}",
             "--device=" + os.environ["RDMACOMM_TEST_DEVICE"], f"--ops={op}", f"--tests={test}", "--rounds=1",
             "--sizes=" + ",".join(map(str, SIZES)), f"--iterations={ITERATIONS[test]}", f"--json={report}"])
        results = json.loads(report.read_text(encoding="utf-8"))["results"]
    wanted = MEASURES.get((op, test), "one-way")
    return {r["bytes"]: r["latency_us"]["min"] if test == "lat" else r["GB_per_s"] for r in results if r["measures"] == wanted}


def perftest_run(op, test, size):
    """One run of ib_OP_TEST: us or GB/s (average)."""
    def words(end, cpu, device):
        gid = run(["pair", "gid", "rxe", end]).strip()
        options = ["-F", "-d", device, "-x", gid, "-m", "4096", "-s", str(size), "-n", str(ITERATIONS[test]), "-p", str(PERFTEST_PORT)]
        options += ["-t", "64", "-Q", "16"] if test == "bw" else []
        options += ["-I", "0"] if op != "read" else ["-o", "16"]
        return ["taskset", "-c", cpu, f"ib_{op}_{test}", *options]

    with started(words("b", SERVER_CPU, os.environ["RDMACOMM_TEST_PEER_DEVICE"])) as server:
        while not is_listening(PERFTEST_PORT):
            if server.poll() is not None:
                sys.exit("kernel_vm_perftest.py: perftest's server ended: " + server.stdout.read())
        out = run([*words("a", CLIENT_CPU, os.environ["RDMACOMM_TEST_DEVICE"]), os.environ["RDMACOMM_TEST_PEER_ADDRESS"]])
    figures = re.search(rf"^\s*{size}\s+\d+\s+([\d. \t]+)$", out, re.M)
    if not figures:
        sys.exit("kernel_vm_perftest.py: perftest printed no figures:\n" + out)
    columns = [float(column) for column in figures.group(1).split()]
    # latency: min, max, typical, ...; bandwidth: peak, average, in MiB/s.
    return columns[0] if test == "lat" else columns[1] * 2**20 / 1e9


def measure(program, runs):
    """{(op, test, bytes): (the library's figures, perftest's)}, taken in turns."""
    figures = {(op, test, size): ([], []) for op in OPS for test in ITERATIONS for size in SIZES}
    for number in range(runs):
        for op in OPS:
            for test in ITERATIONS:
                for size, figure in library_run(program, op, test).items():
                    figures[op, test, size][0].append(figure)
                for size in SIZES:
                    figures[op, test, size][1].append(perftest_run(op, test, size))
        print(f"run {number + 1} of {runs} done", file=sys.stderr, flush=True)
    return figures


def spread_percent(values):
    return 100 * (max(values) - min(values)) / statistics.median(values)


def judge(figures):
    """Prints the table. Returns whether the library is worse nowhere by more than the noise."""
    good = True
    print(f"{'op':6} {'test':4} {'bytes':>6}  {'library':>9} {'perftest':>9} {'unit':4} {'worse by':>9} {'noise':>8}")
    for (op, test, size), (library, perftest) in figures.items():
        mine, theirs = statistics.median(library), statistics.median(perftest)
        worse = 100 * (mine / theirs - 1 if test == "lat" else theirs / mine - 1)
        noise = max(spread_percent(library), spread_percent(perftest))
        good = good and worse <= noise
        unit, digits = ("us", 1) if test == "lat" else ("GB/s", 5)
        print(f"{op:6} {test:4} {size:>6}  {mine:>9.{digits}f} {theirs:>9.{digits}f} {unit:4} {worse:>8.1f}% {noise:>7.1f}%"
              f"{'' if worse <= noise else '   MORE THAN THE NOISE'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="how often to measure (default 5)")
    parser.add_argument("--in-guest", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=ROOT / "build/release/bin/lat_bw_benchmark")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"kernel_vm_perftest.py: no program {options.program}; build it with: "
                 "cmake --preset release && cmake --build --preset release")
    program = options.program.resolve()
    if not options.in_guest:
        return subprocess.run([ROOT / "tests/kernel_vm/run", "--device=rxe", "--timeout=1800", "--", "python3",
                               pathlib.Path(__file__).resolve(), "--in-guest", f"--runs={options.runs}", program], check=False).returncode
    return 0 if judge(measure(program, options.runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
