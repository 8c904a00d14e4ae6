#!/usr/bin/env python3
"""perftest under softdev-run, whose buffers are the program's own memory, against lat_bw_benchmark on soft0, in turns.

usage: bench/soft0_perftest.py [--runs N] [--bin DIR]

Runs both programs N times (default 5); the program that runs first changes each time. It measures latency and bandwidth
of SEND, WRITE and READ at 8 B, 4 KiB, 64 KiB and 1 MiB. Both get the same: one processor each for client and server, no
inline data, 64 requests outstanding of which every 16th is signaled. Each line has the medians of both, and perftest's
ratio to the library, with its bound: latency at most 1.3 times, bandwidth at least 0.8 times the library's. Exit status
1: a bound is not kept. Needs a quiet machine with two cores.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

import kernel_vm_perftest as common

OPS = ("send", "write", "read")
SIZES = (8, 4096, 65536, 1 << 20)
ITERATIONS = {"lat": {8: 50000, 4096: 50000, 65536: 10000, 1 << 20: 1000},
              "bw": {8: 300000, 4096: 100000, 65536: 20000, 1 << 20: 2000}}
BOUNDS = {"lat": 1.3, "bw": 0.8}
PORT = 18515


def library_run(folder, op, test):
    """One run of lat_bw_benchmark: {bytes: us or GB/s}."""
    with tempfile.TemporaryDirectory() as place:
        report = pathlib.Path(place) / "figures.json"
        common.run([folder / "lat_bw_benchmark", "--role=both", "--device=soft0", f"--ops={op}", f"--tests={test}",
                    "--sizes=" + ",".join(map(str, SIZES)), "--duration=0.4", "--queue-depth=64", f"--json={report}"])
        results = json.loads(report.read_text(encoding="utf-8"))["results"]
    wanted = common.MEASURES.get((op, test), "one-way")
    return {r["bytes"]: r["latency_us"]["p50"] if test == "lat" else r["GB_per_s"] for r in results
            if r["measures"] == wanted}


def perftest_run(folder, op, test):
    """The same by ib_OP_TEST."""
    figures = {}
    for size in SIZES:
        words = [folder / "softdev-run", f"ib_{op}_{test}", "-F", "-d", "soft0", "-x", "3", "-s", str(size), "-n",
                 str(ITERATIONS[test][size]), "-p", str(PORT)]
        words += ["-t", "64", "-Q", "16"] if test == "bw" else []
        words += ["-I", "0"] if op != "read" else ["-o", "16"]
        with common.started(["taskset", "-c", "1", *map(str, words)]) as server:
            common.wait_for_listener(server, PORT, common.SECONDS)
            out = common.run(["taskset", "-c", "0", *words, "127.0.0.1"])
            server.wait(timeout=common.SECONDS)
        line = re.search(rf"^\s*{size}\s+\d+\s+([\d. \t]+)$", out, re.M)
        if not line:
            sys.exit("soft0_perftest.py: perftest printed no figures:\n" + out)
        columns = [float(column) for column in line.group(1).split()]
        # latency: min, max, typical, ...; bandwidth: peak, average, in MiB/s
        figures[size] = columns[2] if test == "lat" else columns[1] * 2**20 / 1e9
    return figures


def measure(folder, runs):
    """{(op, test, bytes): (the library's figures, perftest's)}, taken in turns."""
    figures = {(op, test, size): ([], []) for op in OPS for test in BOUNDS for size in SIZES}
    for number in range(runs):
        for op in OPS:
            for test in BOUNDS:
                both = [(0, library_run), (1, perftest_run)]
                for which, one in both if number % 2 == 0 else reversed(both):
                    for size, figure in one(folder, op, test).items():
                        figures[op, test, size][which].append(figure)
        print(f"run {number + 1} of {runs} done", file=sys.stderr, flush=True)
    return figures


def is_kept(test, mine, theirs):
    # perftest prints latencies in steps of 0.01 us, so a result may have been rounded up by half a step.
    return theirs - 0.005 <= BOUNDS[test] * mine if test == "lat" else theirs >= BOUNDS[test] * mine


def judge(figures):
    """Prints the table. Returns whether all bounds are kept."""
    kept = True
    print(f"{'op':6}{'test':5}{'bytes':>8}{'library':>10}{'perftest':>10} {'unit':5}{'ratio':>7}  bound")
    for (op, test, size), (library, perftest) in figures.items():
        mine, theirs = statistics.median(library), statistics.median(perftest)
        ratio = theirs / mine
        good = is_kept(test, mine, theirs)
        kept = kept and good
        unit = "us" if test == "lat" else "GB/s"
        print(f"{op:6}{test:5}{size:>8}{mine:>10.3f}{theirs:>10.3f} {unit:5}{ratio:>7.2f}  "
              f"{'<=' if test == 'lat' else '>='} {BOUNDS[test]}{'' if good else '   NOT KEPT'}")
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="number of measurements (default 5)")
    parser.add_argument("--bin", type=pathlib.Path, default=common.ROOT / "build/release/bin",
                        help="folder of softdev-run and lat_bw_benchmark (default build/release/bin)")
    options = parser.parse_args()
    for program in ("softdev-run", "lat_bw_benchmark"):
        if not os.access(options.bin / program, os.X_OK):
            sys.exit(f"soft0_perftest.py: no program {options.bin / program}; build it with: "
                     "cmake --preset release && cmake --build --preset release")
    return 0 if judge(measure(options.bin.resolve(), options.runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
