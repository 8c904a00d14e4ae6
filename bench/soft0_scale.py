#!/usr/bin/env python3
"""Measures the time, memory, descriptors and threads of soft0 with thousands of queue pairs. Prints a table.

usage: bench/soft0_scale.py [--write] [soft0_scale]

Runs soft0_scale (default build/release/bench/soft0_scale) with two processes that have 1 or 1,024 queue pairs, and with 64
processes that are all connected to each other. --write puts the table into docs/soft_device.md. Exit status 1: a run
failed.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENT = os.path.join(ROOT, "docs/soft_device.md")
BEGIN, END = "<!-- begin: bench/soft0_scale.py --write -->\n", "<!-- end -->\n"
HEAD = ("| processes | queue pairs of each | depth | created in | connected in | one message each in | memory for a queue pair "
        "| descriptors | threads | empty poll | ibv_dereg_mr | poll by a second thread |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
RUNS = (
    ("--processes=2", "--queue_pairs=1"),
    ("--processes=2", "--queue_pairs=1024"),
    ("--processes=2", "--queue_pairs=1024", "--depth=128"),
    ("--processes=2", "--queue_pairs=1024", "--events"),
    ("--processes=64",),
    ("--processes=64", "--queue_pairs=4"),
)


def main():
    parser = argparse.ArgumentParser(description="time and memory of many queue pairs on soft0")
    parser.add_argument("--write", action="store_true", help="put the table into docs/soft_device.md")
    parser.add_argument("program", nargs="?", default=os.path.join(ROOT, "build/release/bench/soft0_scale"))
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"soft0_scale.py: no program {arguments.program}; build it with: "
                 "cmake --preset release -DRDMACOMM_BUILD_BENCH=ON && cmake --build --preset release")
    table = HEAD
    for run in RUNS:
        done = subprocess.run([arguments.program, *run], stdout=subprocess.PIPE, text=True, timeout=100, check=False)
        if done.returncode != 0:
            return 1
        table += done.stdout
    print(table, end="")
    if arguments.write:
        with open(DOCUMENT, encoding="utf-8") as file:
            before, rest = file.read().split(BEGIN)
        with open(DOCUMENT, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + table + END + rest.split(END, 1)[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
