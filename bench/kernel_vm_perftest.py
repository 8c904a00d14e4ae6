#!/usr/bin/env python3
"""The cost of the library on the kernel's rxe: lat_bw_benchmark against perftest, in one guest, in turns.

usage: bench/kernel_vm_perftest.py [--runs N] [lat_bw_benchmark]

Boots a virtual machine (tests/kernel_vm/run) and measures both programs there in turn, N times (default 5, at least 2).
The program that runs first changes each time. It measures latency and bandwidth of SEND, WRITE and READ at 8 B, 4 KiB
and 64 KiB. Both programs get the same: one processor each for client and server, MTU 4096, no inline data, 64 requests
outstanding of which every 16th is signaled. Latency is the smallest one of a run. The usual one depends on how often
the driver ran in between (50 us, or 4 ms), because both emulated processors spin.

Each line has the medians of both programs' runs, and the library's cost as their ratio: above 1 the library is slower.
The spread of a program is its largest minus its smallest result, in percent of its median. The noise is the larger one
of both spreads. A cost within the noise says nothing. Exit status 1: some result of the library is slower by more than
the noise. Needs a quiet machine. The figures do not say how fast RDMA is: the driver and the processors are emulated.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import selectors
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPS = ("send", "write", "read")
SIZES = (8, 4096, 65536)
# Repetitions of each size in one run: about a second at rxe's speed.
ITERATIONS = {"lat": 500, "bw": 2000}
# The result of lat_bw_benchmark that corresponds to perftest's.
MEASURES = {("send", "lat"): "half-rt", ("write", "lat"): "half-rt", ("read", "lat"): "post-done"}
SERVER_CPU, CLIENT_CPU = "1", "0"
PERFTEST_PORT = 18515
SECONDS = 120


def give_up(why):
    sys.exit(f"kernel_vm_perftest.py: {why}")


@contextlib.contextmanager
def started(words):
    """Starts a process that ends with the `with` block at the latest."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(words):
    """Returns the output of a command, which must succeed within SECONDS."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        give_up(f"not finished after {SECONDS} s: {' '.join(words)}")
    if done.returncode != 0:
        give_up(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for_text(process, pattern, seconds):
    """Reads what a process prints until a regular expression matches it. Returns the match."""
    printed, deadline = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0, deadline - time.monotonic())):
            more = os.read(process.stdout.fileno(), 65536)
            printed += more
            match = re.search(pattern, printed.decode(errors="replace"))
            if match:
                return match
            if not more:
                break
    return give_up(f"no {pattern!r} within {seconds} s from {' '.join(map(str, process.args))}; it printed:\n"
                   + printed.decode(errors="replace"))


def is_listening(port):
    """Reads the kernel's table: the server would take a test connection for the client."""
    tables = "".join(pathlib.Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    return re.search(rf":{port:04X} \S+ 0A ", tables) is not None


def wait_for_listener(process, port, seconds):
    deadline = time.monotonic() + seconds
    while not is_listening(port):
        if process.poll() is not None:
            give_up("perftest's server ended: " + process.stdout.read().decode(errors="replace"))
        if time.monotonic() > deadline:
            give_up(f"perftest's server does not listen after {seconds} s")
        time.sleep(0.01)  # the server needs the processor


def run_of_ours(program, op, test):
    """One run of lat_bw_benchmark: {bytes: us or GB/s}."""
    peer = os.environ["RDMACOMM_TEST_PEER_ADDRESS"]
    with started([program, "--role=server", "--port=0", "--device=" + os.environ["RDMACOMM_TEST_PEER_DEVICE"]]) as server, \
            tempfile.TemporaryDirectory() as folder:
        port = wait_for_text(server, r"listening on port (\d+)\n", SECONDS).group(1)
        report = pathlib.Path(folder) / "figures.json"
        run([program, "--role=client", f"--server={peer}", f"--port={port}",
             "--device=" + os.environ["RDMACOMM_TEST_DEVICE"], f"--ops={op}", f"--tests={test}", "--rounds=1",
             "--sizes=" + ",".join(map(str, SIZES)), f"--iterations={ITERATIONS[test]}", f"--json={report}"])
        results = json.loads(report.read_text(encoding="utf-8"))["results"]
    wanted = MEASURES.get((op, test), "one-way")
    figures = {r["bytes"]: r["latency_us"]["min"] if test == "lat" else r["GB_per_s"] for r in results if r["measures"] == wanted}
    if set(figures) != set(SIZES):
        give_up(f"{program} has no {wanted} of {op} at each of {SIZES}: {results}")
    return figures


def perftest_run(op, test, size):
    """One run of ib_OP_TEST: us or GB/s (average)."""
    def words(end, cpu, device):
        gid = run(["pair", "gid", "rxe", end]).strip()
        options = ["-F", "-d", device, "-x", gid, "-m", "4096", "-s", str(size), "-n", str(ITERATIONS[test]), "-p", str(PERFTEST_PORT)]
        options += ["-t", "64", "-Q", "16"] if test == "bw" else []
        options += ["-I", "0"] if op != "read" else ["-o", "16"]
        return ["taskset", "-c", cpu, f"ib_{op}_{test}", *options]

    with started(words("b", SERVER_CPU, os.environ["RDMACOMM_TEST_PEER_DEVICE"])) as server:
        wait_for_listener(server, PERFTEST_PORT, SECONDS)
        out = run([*words("a", CLIENT_CPU, os.environ["RDMACOMM_TEST_DEVICE"]), os.environ["RDMACOMM_TEST_PEER_ADDRESS"]])
    figures = re.search(rf"^\s*{size}\s+\d+\s+([\d. \t]+)$", out, re.M)
    if not figures:
        give_up("perftest printed no figures:\n" + out)
    columns = [float(column) for column in figures.group(1).split()]
    # latency: min, max, typical, ...; bandwidth: peak, average, in MiB/s.
    return columns[0] if test == "lat" else columns[1] * 2**20 / 1e9


def perftest_runs(op, test):
    return {size: perftest_run(op, test, size) for size in SIZES}


def measure(program, runs):
    """{(op, test, bytes): (the library's figures, perftest's)}, taken in turns."""
    figures = {(op, test, size): ([], []) for op in OPS for test in ITERATIONS for size in SIZES}
    for number in range(runs):
        began = time.monotonic()
        for op in OPS:
            for test in ITERATIONS:
                both = [(0, lambda: run_of_ours(program, op, test)), (1, lambda: perftest_runs(op, test))]
                for which, one in both if number % 2 == 0 else reversed(both):
                    for size, figure in one().items():
                        figures[op, test, size][which].append(figure)
        print(f"run {number + 1} of {runs} done in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return figures


def spread_percent(values):
    return 100 * (max(values) - min(values)) / statistics.median(values)


def cost_of(test, library, perftest):
    """The library's median divided by the median of perftest."""
    mine, theirs = statistics.median(library), statistics.median(perftest)
    return mine / theirs if test == "lat" else theirs / mine


def verdict_of(cost, noise_percent):
    if 100 * abs(cost - 1) <= noise_percent:
        return "within the noise"
    return "SLOWER, beyond the noise" if cost > 1 else "faster, beyond the noise"


def judge(figures):
    """Prints the table. Returns whether no result of the library is slower by more than the noise."""
    verdicts = []
    print(f"{'op':5} {'test':4} {'bytes':>6} {'library':>10} {'perftest':>10} {'unit':4} {'cost':>6}"
          f" {'spreads of library, perftest':>29}")
    for (op, test, size), (library, perftest) in figures.items():
        cost = cost_of(test, library, perftest)
        spreads = [spread_percent(library), spread_percent(perftest)]
        verdicts.append(verdict_of(cost, max(spreads)))
        unit, digits = ("us", 1) if test == "lat" else ("GB/s", 5)
        print(f"{op:5} {test:4} {size:>6} {statistics.median(library):>10.{digits}f} {statistics.median(perftest):>10.{digits}f}"
              f" {unit:4} {cost:>6.3f} {spreads[0]:>19.1f}% {spreads[1]:>7.1f}%  {verdicts[-1]}")
    within = verdicts.count("within the noise")
    slower = sum("SLOWER" in verdict for verdict in verdicts)
    print(f"{within} of {len(verdicts)} within the noise, {slower} slower than the noise, {len(verdicts) - within - slower} faster")
    return slower == 0


def at_least_two(text):
    runs = int(text)
    if runs < 2:
        raise argparse.ArgumentTypeError("at least 2 runs are needed, because one run shows no noise")
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=at_least_two, default=5, help="number of measurements (default 5)")
    parser.add_argument("--in-guest", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=ROOT / "build/release/bin/lat_bw_benchmark")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        give_up(f"no program {options.program}; build it with: cmake --preset release && cmake --build --preset release")
    program = options.program.resolve()
    if not options.in_guest:
        return subprocess.run([ROOT / "tests/kernel_vm/run", "--device=rxe", "--timeout=1800", "--", "python3",
                               pathlib.Path(__file__).resolve(), "--in-guest", f"--runs={options.runs}", program], check=False).returncode
    return 0 if judge(measure(program, options.runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
