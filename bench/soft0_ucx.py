#!/usr/bin/env python3
"""soft0 against UCX, and against iperf3 between hosts: the same seconds, the same machine, two tables.

usage: bench/soft0_ucx.py [--only=memory|network] [--runs=N] [--output=FILE] [lat_bw_benchmark]

memory   two processes of one host: soft0's shared memory against UCX_TLS=posix and UCX_TLS=cma,posix network  two
network namespaces joined by veth (tests/support/hosts.py, as root): soft0's wire against UCX_TLS=tcp and one
         TCP stream of iperf3

Each cell is measured N times (default 5), in turns with its rivals; a latency five times as often, because these
programs take little time, and a bandwidth about twice. Each turn gives a ratio to the rival that has the best median.
The result is the median of these ratios. They are used because a hypervisor may run the two CPUs on one core for a
while and then on two. This affects all programs of a turn alike. After the ratio the table has the interval that
contains the true median with a probability of 95 % (order statistics of the turns, by the binomial distribution; with
too few turns, their least and greatest). If the bound lies within the interval, the two cannot be distinguished: "tie".

The latency of a run between hosts is the median of one way (half a round trip). In memory it is the mean, because
medians there are multiples of the clock resolution, which is a tenth of the shortest latency. Bandwidth is also
measured one way. SEND is compared with UCX's tag matching, which is closest to a message that needs a posted receive,
and with UCX's active messages, which need none. WRITE is compared with UCX's put. All of these belong to UCP, the
interface that applications use. UCT, the layer below, has neither fragments nor a rendezvous, and no message longer
than its buffers.

The tables are written to standard output and to --output (default bench/results/soft0_ucx.md). Needs ucx_perftest
(package ucx-utils), iperf3, a Release build, and a quiet machine with two cores. Exit status 1: a bound is not kept
(NO), or a program failed.
"""
import argparse
import contextlib
import datetime
import json
import math
import os
import re
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
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import hosts  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 120
LATENCY_TURNS = 5  # a cell's turns for each of --runs
MEMORY_EVERY = 2  # turns: a bandwidth of memory is measured
NETWORK_EVERY = 3  # a bandwidth between hosts
SIZES = {8: "8 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}


class Cell(NamedTuple):
    op: str  # of lat_bw_benchmark
    is_latency: bool
    size: int

    @property
    def name(self):
        return f"{self.op.upper()} {'latency' if self.is_latency else 'bandwidth'}, {SIZES[self.size]}"


MEMORY_CELLS = (Cell("send", True, 8), Cell("send", True, 4096), Cell("send", False, 4096), Cell("send", False, 65536),
                Cell("send", False, 1 << 20), Cell("write", True, 8), Cell("write", False, 1 << 20))
NETWORK_CELLS = tuple(Cell(op, *kind) for op in ("send", "write") for kind in ((True, 8), (False, 65536), (False, 1 << 20)))
UCX_TESTS = {("send", True): ("tag_lat", "ucp_am_lat"), ("send", False): ("tag_bw", "ucp_am_bw"),
             ("write", True): ("ucp_put_lat",), ("write", False): ("ucp_put_bw",)}
IPERF = "iperf3"


class Failed(Exception):
    """A program failed; the text says which one and why."""


class Latency(NamedTuple):
    name: str  # in lat_bw_benchmark's JSON
    column: int  # of ucx_perftest's rows


class ThisHost:
    """Both programs on this host, with the interface of hosts.Hosts."""
    address = "127.0.0.1"
    round_trips = 300_000  # of UCX's latencies: a tenth of a second at the longest
    stream_bytes = 16 << 30  # of UCX's bandwidths: as long as lat_bw_benchmark's
    latency = Latency("mean", 3)

    def __init__(self, stack):
        self.stack = stack

    def run(self, _, arguments, **options):
        process = subprocess.Popen(arguments, **options)
        self.stack.callback(end, process)
        return process


class TwoHosts(ThisHost):
    round_trips = 50_000
    stream_bytes = 1 << 30
    latency = Latency("p50", 1)

    def __init__(self, stack):
        super().__init__(stack)
        self.pair = stack.enter_context(hosts.Hosts(2))
        self.address = self.pair[0].ipv4

    def run(self, number, arguments, **options):
        return self.pair.run(number, arguments, **options)


def end(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def wait_until_listening(process, port):
    """Reads the tables of the network namespace: the server would take a test connection for the client."""
    wanted = f":{port:04X}"
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/{process.pid}/net/{table}", encoding="ascii") as file:
                for line in file.read().splitlines()[1:]:
                    fields = line.split()
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return
    raise Failed(f"{process.args} does not listen: {process.communicate()[0]}")


def output_of(process):
    out, _ = process.communicate(timeout=SECONDS)
    if process.returncode != 0:
        raise Failed(f"{' '.join(process.args)} has failed: {out.strip()}")
    return out


def run_pair(place, port, server, client, environment=None):
    """Returns the client's output; client and server must succeed."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True,
               "env": {**os.environ, **(environment or {})}}
    serving = place.run(0, server, **options)
    try:
        wait_until_listening(serving, port)
        out = output_of(place.run(1, client, **options))
        output_of(serving)
        return out
    finally:
        end(serving)


def soft0(place, program, cell):
    """Microseconds, or MB/s."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        plan = [f"--ops={cell.op}", f"--tests={'lat' if cell.is_latency else 'bw'}", f"--sizes={cell.size}", "--duration=0.4",
                "--rounds=5"]
        common = [program, "--device=soft0", f"--port={port}"]
        run_pair(place, port, [*common, "--role=server"],
                 [*common, "--role=client", f"--server={place.address}", "--json=" + path, *plan])
        with open(path, encoding="utf-8") as file:
            result = json.load(file)["results"][0]
    # To the nanosecond, as ucx_perftest prints it.
    return round(result["latency_us"][place.latency.name], 3) if cell.is_latency else result["GB_per_s"] * 1000


def ucx(place, cell, test, transports):
    """The same for UCX, whose MB are MiB."""
    port = free_port()
    iterations = place.round_trips if cell.is_latency else max(1000, min(100_000, place.stream_bytes // cell.size))
    common = ["ucx_perftest", "-f", "-t", test, "-s", str(cell.size), "-n", str(iterations), "-w", str(iterations // 10),
              "-p", str(port), "-c"]
    cpus = sorted(os.sched_getaffinity(0))  # lat_bw_benchmark pins its two processes itself
    out = run_pair(place, port, [*common, str(cpus[-1])], [*common, str(cpus[0]), place.address],
                   {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"})
    rows = [line.split() for line in out.splitlines() if re.fullmatch(r"\s*\d+(\s+[\d.]+)+\s*", line)]
    if not rows:
        raise Failed(f"ucx_perftest -t {test} prints no figures: {out.strip()}")
    # Iterations; median, average and overall average of the time in us; average and overall bandwidth; rates.
    return float(rows[-1][place.latency.column]) if cell.is_latency else float(rows[-1][5]) * 1.048576


def iperf(place, cell):
    port = free_port()
    common = [IPERF, "--json", "--port", str(port)]
    out = run_pair(place, port, [*common, "--server", "--one-off"],
                   [*common, "--client", place.address, "--time", "2", "--length", str(cell.size)])
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8e6


def measure(place, cells, rivals_of, program, runs, bandwidth_every):
    """{cell: {name: [figure of each turn]}}; soft0's name is "soft0". None: a program failed, as printed."""
    figures = {cell: {} for cell in cells}
    for turn in range(runs * LATENCY_TURNS):
        for cell in cells:
            if not cell.is_latency and turn % bandwidth_every != 0:
                continue
            contestants = {"soft0": lambda cell=cell: soft0(place, program, cell), **rivals_of(place, cell)}
            for name, contestant in contestants.items():
                figure = None
                try:
                    figure = contestant()
                except (Failed, subprocess.TimeoutExpired) as error:
                    print(f"soft0_ucx.py: {cell.name}: {name}: {error}", file=sys.stderr)
                figures[cell].setdefault(name, []).append(figure)
    return figures


def ucx_rivals(place, cell, transport_lists):
    return {f"{test}, {transports}": lambda test=test, transports=transports: ucx(place, cell, test, transports)
            for test in UCX_TESTS[cell.op, cell.is_latency] for transports in transport_lists}


def memory_rivals(place, cell):
    return ucx_rivals(place, cell, ("posix", "cma,posix"))


def network_rivals(place, cell):
    rivals = ucx_rivals(place, cell, ("tcp",))
    if not cell.is_latency:
        rivals[IPERF] = lambda: iperf(place, cell)
    return rivals


def there(values):
    return [value for value in values if value is not None]


def shown(cell, values):
    """The median, the least and the greatest of the turns."""
    values = there(values)
    digits, unit = (3, "us") if cell.is_latency else (0, "MB/s")
    median, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} {unit} ({least} to {most})"


def interval_of_median(values):
    """An interval that contains the true median of `values` with 95 % probability: drops the tails."""
    values = sorted(values)
    tail, left_out = 0.0, 0
    while True:
        tail += math.comb(len(values), left_out) / 2 ** len(values)
        if tail > 0.025:
            break
        left_out += 1
    left_out = max(left_out - 1, 0)
    return values[left_out], values[-1 - left_out]


def row(cell, measured, rival, share):
    """A line of the table, and whether the bound is kept. `share`: least ratio to the rival's bandwidth."""
    own, ratio, verdict = "-", "-", "NO"
    ratios = [mine / its for mine, its in zip(measured["soft0"], measured[rival]) if None not in (mine, its)]
    if ratios:
        quotient = statistics.median(ratios)
        least, most = interval_of_median(ratios)
        if quotient <= 1 if cell.is_latency else quotient >= share:
            verdict = "yes"
        elif least <= 1 if cell.is_latency else most >= share:
            verdict = "tie"
        own, ratio = shown(cell, measured["soft0"]), f"{quotient:.2f} ({least:.2f} to {most:.2f})"
    bound = "<= 1" if cell.is_latency else f">= {share}"
    cells = [cell.name, own, shown(cell, measured[rival]), rival, ratio, bound, verdict]
    return "| " + " | ".join(cells) + " |\n", verdict != "NO"


def table_of(figures):
    """Markdown, and whether all bounds are kept."""
    text = "| | soft0 | rival | which | ratio | bound | kept |\n|---|---|---|---|---|---|---|\n"
    all_kept = True
    for cell, measured in figures.items():
        medians = {name: statistics.median(there(values)) for name, values in measured.items() if there(values)}
        best = min if cell.is_latency else max
        of_ucx = [name for name in medians if name not in ("soft0", IPERF)]
        rivals = [(best(of_ucx, key=medians.get), 1.0)] if of_ucx else []
        if IPERF in medians:
            rivals.append((IPERF, 0.8))
        all_kept = all_kept and bool(rivals)
        for rival, share in rivals:
            line, kept = row(cell, measured, rival, share)
            text += line
            all_kept = all_kept and kept
    return text, all_kept


def main():
    parser = argparse.ArgumentParser(description="soft0 against UCX and iperf3")
    parser.add_argument("--only", choices=("memory", "network"), help="make only this table; default: both")
    parser.add_argument("--runs", type=int, default=5, help="number of measurements of each cell (default 5)")
    parser.add_argument("--output", default=os.path.join(ROOT, "bench/results/soft0_ucx.md"), help="file for the tables")
    parser.add_argument("program", nargs="?", default=os.path.join(ROOT, "build/release/bin/lat_bw_benchmark"))
    arguments = parser.parse_args()
    wanted = ("memory", "network") if arguments.only is None else (arguments.only,)
    for program, advice in ((arguments.program, "cmake --preset release && cmake --build --preset release"),
                            ("ucx_perftest", "apt-get install ucx-utils"),
                            *(((IPERF, "apt-get install iperf3"),) if "network" in wanted else ())):
        if shutil.which(program) is None:
            sys.exit(f"soft0_ucx.py: no program {program}; get it with: {advice}")
    reason = hosts.why_not() if "network" in wanted else ""
    if reason:
        sys.exit(f"soft0_ucx.py: cannot make two hosts on this machine: {reason}; --only=memory does not need them")

    text = (f"# soft0 against UCX and iperf3\n\nMade by `bench/soft0_ucx.py`, {datetime.date.today()}: medians of "
            f"{arguments.runs} runs (more for latencies and between hosts), in turns, on {processor()}.\nThe rival is the best of the "
            "measured ones; after each median, the smallest and the largest run. The ratio is the median of the ratios of all turns.\n")
    good = True
    for kind, title, place, cells, rivals, turns in (
            ("memory", "Two processes of one host", ThisHost, MEMORY_CELLS, memory_rivals, MEMORY_EVERY),
            ("network", "Two network namespaces joined by veth", TwoHosts, NETWORK_CELLS, network_rivals, NETWORK_EVERY)):
        if kind not in wanted:
            continue
        with contextlib.ExitStack() as stack:
            table, kept = table_of(measure(place(stack), cells, rivals, arguments.program, arguments.runs, turns))
        good = good and kept
        text += f"\n## {title}\n\n{table}"
    print(text, end="")
    os.makedirs(os.path.dirname(os.path.abspath(arguments.output)), exist_ok=True)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
