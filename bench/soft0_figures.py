#!/usr/bin/env python3
"""The cost of soft0, as ratios to the machine's own speed in the same seconds, compared with bounds.

usage: bench/soft0_figures.py [--runs N] [lat_bw_benchmark]

Runs lat_bw_benchmark N times (default 5) and prints, for each bound, the ratio of every run and the median.
Exit status 1: a bound is not kept. Needs a quiet machine with two cores: if another busy process takes a core from
client or server, the scheduler is measured instead of soft0.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# op, measures, bytes, whether the ratio must be "at most" or "at least" the bound
BOUNDS = [
    ("write", "post-done", 8, "<=", 2.0, "cache line one way"),
    ("send", "half-rt", 8, "<=", 3.0, "cache line one way"),
    ("write", "one-way", 65536, ">=", 0.9, "memcpy"),
    ("write", "one-way", 1048576, ">=", 0.9, "memcpy"),
    ("read", "one-way", 65536, ">=", 0.9, "memcpy"),
    ("read", "one-way", 1048576, ">=", 0.9, "memcpy"),
    ("send", "one-way", 65536, ">=", 0.7, "memcpy"),
]


def one_run(program):
    """The ratios of one run, by (op, measures, bytes)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        subprocess.run(
            [program, "--role=both", "--device=soft0", "--ops=send,write,read", "--tests=lat,bw", "--sizes=8,64K,1M",
             "--duration=0.4", "--rounds=21", "--json=" + path],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
    return {(r["op"], r["measures"], r["bytes"]): r["ratio"] for r in results}


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="the results of soft0, compared with their bounds")
    parser.add_argument("--runs", type=int, default=5, help="number of measurements (default 5)")
    parser.add_argument("program", nargs="?", default=os.path.join(root, "build/release/bin/lat_bw_benchmark"))
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"soft0_figures.py: no program {arguments.program}; build it with: "
                 "cmake --preset release && cmake --build --preset release")
    runs = [one_run(arguments.program) for _ in range(arguments.runs)]

    kept = True
    print(f"{'op':8}{'measures':11}{'bytes':>9}  {'bound':8}{'median':>8}  of                   each run")
    for op, measures, size, relation, bound, base in BOUNDS:
        ratios = [run[(op, measures, size)] for run in runs]
        median = statistics.median(ratios)
        good = median <= bound if relation == "<=" else median >= bound
        kept = kept and good
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{op:8}{measures:11}{size:>9}  {relation} {bound:<5}{median:>8.2f}  {base:20} {each}"
              f"{'' if good else '   NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
