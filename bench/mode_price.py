#!/usr/bin/env python3
"""The cost of each way to wait and of each thread mode on soft0, as a table: latency, processor time, wake-ups.

usage: bench/mode_price.py [--write] [--runs=N] [--seconds=S] [mode_price]

Runs mode_price (default build/release/bench/mode_price) in every mode and prints the medians of the runs. Each row also
has the time of a loop of bare verbs just before and after it: if these differ from other rows, the machine was in another
state. --write puts the table into docs/threading.md. Exit status 1: a run failed; EndPoint::wait() in busy polling is more
than 5 % slower than a loop of bare verbs, in the median of the runs; or a mode that sleeps uses 1 % of a core or more
with 64 idle connections.
"""
import argparse
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENT = os.path.join(ROOT, "docs/threading.md")
BEGIN, END = "<!-- begin: bench/mode_price.py --write -->\n", "<!-- end -->\n"
POLLING = ("busy", "channel", "epoll", "adaptive")
THREADS = ("none", "per-qp", "shared-cq", "sharded")
BUSY_BOUND, IDLE_BOUND = 1.05, 0.01
HEAD = ("| `--polling` | `--threads` | 8 bytes one way, median | 99 % | bare loop in those seconds | cores, client and server "
        "| sleeps for a message | cores with 64 idle connections |\n|---|---|---|---|---|---|---|---|\n")


def figures(program, *flags):
    """The values that one run prints, by name. None: it failed."""
    done = subprocess.run([program, *flags], stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return None
    pairs = dict(word.split("=", 1) for word in done.stdout.split())
    return {name: float(value) for name, value in pairs.items() if name != "part"}


def medians(program, runs, *flags):
    """The median of several runs, for each value."""
    all_runs = [figures(program, *flags) for _ in range(runs)]
    if None in all_runs:
        sys.exit(f"mode_price.py: {program} {' '.join(flags)} failed")
    return {name: statistics.median(run[name] for run in all_runs) for name in all_runs[0]}


def mode_row(arguments, polling, threads):
    """A line of the table, and whether a mode that sleeps keeps its bound (None: it does not sleep)."""
    flags = (f"--polling={polling}", f"--threads={threads}")
    before = medians(arguments.program, 1, "--part=raw")
    moving = medians(arguments.program, arguments.runs, "--part=latency", *flags)
    after = medians(arguments.program, 1, "--part=raw")
    bare = " and ".join(f"{run['raw'] * 1000:.0f}" for run in (before, after))
    cores = "all of theirs"
    kept = None
    if polling != "busy":
        still = medians(arguments.program, 1, "--part=idle", f"--seconds={arguments.seconds}", *flags)
        most = max(still["client_cpu"], still["server_cpu"])
        kept = most < IDLE_BOUND
        cores = f"{still['client_cpu']:.2%} and {still['server_cpu']:.2%}"
    row = (f"| {polling} | {threads} | {moving['median']:.2f} us | {moving['p99']:.2f} us "
           f"| {bare} ns | {moving['client_cpu']:.2f} and {moving['server_cpu']:.2f} | {moving['sleeps']:.2f} | {cores} |\n")
    return row, kept


def raw_part(arguments):
    """The sentence about busy polling, and whether its bound is kept."""
    runs = [figures(arguments.program, "--part=raw") for _ in range(arguments.runs)]
    if None in runs:
        sys.exit("mode_price.py: --part=raw failed")
    channel = statistics.median(run["direct"] / run["raw"] for run in runs)
    wait = statistics.median(run["wait"] / run["raw"] for run in runs)
    waiting = statistics.median(run["wait"] / run["direct"] for run in runs)
    raw = statistics.median(run["raw"] for run in runs)
    text = (f"Busy polling, in turns on queue pairs of one endpoint: `EndPoint::wait()` takes {wait:.3f} times as long as a loop "
            f"of bare verbs, {raw * 1000:.0f} ns one way (bound: {BUSY_BOUND}). A loop over `RDMAChannel::poll()` takes "
            f"{channel:.3f} times as long as bare verbs, because a channel does some work for each request and completion. "
            f"The ratio of `EndPoint::wait()` to that loop is {waiting:.3f}.\n")
    return text, wait <= BUSY_BOUND


def main():
    parser = argparse.ArgumentParser(description="the cost of each polling mode and thread mode")
    parser.add_argument("--write", action="store_true", help="put the table into docs/threading.md")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10, help="seconds of each idle measurement (default 10)")
    parser.add_argument("program", nargs="?", default=os.path.join(ROOT, "build/release/bench/mode_price"))
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"mode_price.py: no program {arguments.program}; build it with: "
                 "cmake --preset release -DRDMACOMM_BUILD_BENCH=ON && cmake --build --preset release")
    text, good = raw_part(arguments)
    table = ""
    for polling in POLLING:
        for threads in THREADS:
            row, kept = mode_row(arguments, polling, threads)
            print(row, end="", flush=True)
            table += row
            if kept is False:
                good = False
    text += "\n" + HEAD + table
    print("\n" + text, end="")
    if arguments.write:
        with open(DOCUMENT, encoding="utf-8") as file:
            before, rest = file.read().split(BEGIN)
        with open(DOCUMENT, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + text + END + rest.split(END, 1)[1])
    print("all bounds are kept" if good else "a bound is not kept")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
