#!/usr/bin/env python3
"""The cost of a growing mesh on the same cores: total rate, and CPU time of one operation, for N = 2 to 32 nodes.

usage: bench/mesh_scaling.py [--runs N] [--seconds S] [--write] [mesh_comm_service]

Runs mesh_comm_service --local=N with small messages (64 bytes, which measure the cost of an operation) and large ones
(64 KiB, which measure copying). With --threads=shared-cq one thread of each node serves all its queue pairs, 62 at N =
32. Measures all N in turn, --runs times (default 5), and prints medians. Bound: CPU time of an operation of 64 bytes at
N = 32 <= 1.3 x that at N = 2. The rate of set-up is in connections per second, summed over all nodes, which all connect
at the same time. --write puts the table into docs/scaling.md. Exit status 1: the bound is not kept.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENT = os.path.join(ROOT, "docs/scaling.md")
BEGIN, END = "<!-- begin: bench/mesh_scaling.py --write -->\n", "<!-- end: mesh_scaling -->\n"
NODES = (2, 4, 8, 16, 32)
SIZES = (64, 64 << 10)
BOUND = 1.3


def one_run(program, nodes, size, seconds):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mesh.json")
        subprocess.run([program, f"--local={nodes}", "--device=soft0", "--op=write", f"--size={size}", "--queue-depth=16",
                        f"--duration={seconds}", "--threads=shared-cq", "--connect-timeout=60", f"--json={path}"],
                       check=True, stdout=subprocess.DEVNULL, timeout=seconds + 180)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def median(results, key):
    return statistics.median(key(result) for result in results)


def row(nodes, results, base):
    small, large = results
    cost = median(small, lambda one: one["cpu_ns_per_message"])
    cells = (nodes, 2 * (nodes - 1), f"{median(small, lambda one: one['Mops_per_s']):.2f}", f"{cost:.0f}", f"{cost / base:.2f}",
             f"{median(large, lambda one: one['GB_per_s']):.2f}", f"{median(small, lambda one: one['fairness']):.2f}",
             f"{median(small, lambda one: one['connections'] / one['setup_s']):.0f}",
             f"{median(small, lambda one: max(node['memory_bytes'] for node in one['by_node'])) / (1 << 20):.1f}",
             f"{median(small, lambda one: max(node['threads'] for node in one['by_node'])):.0f}")
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main():
    parser = argparse.ArgumentParser(description="the cost of a growing mesh")
    parser.add_argument("--runs", type=int, default=5, help="number of turns (default 5)")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of traffic in each run (default 2)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scaling.md")
    parser.add_argument("program", nargs="?", default=os.path.join(ROOT, "build/release/bin/mesh_comm_service"))
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"mesh_scaling.py: no program {arguments.program}; build it with: "
                 "cmake --preset release && cmake --build --preset release")
    results = {nodes: ([], []) for nodes in NODES}
    for _ in range(arguments.runs):
        for nodes in NODES:
            for of_size, size in zip(results[nodes], SIZES):
                of_size.append(one_run(arguments.program, nodes, size, arguments.seconds))
    base = median(results[NODES[0]][0], lambda one: one["cpu_ns_per_message"])
    lines = ["| nodes | queue pairs of each | Mops/s of all, 64 B | CPU ns an operation | of that at 2 | GB/s of all, 64 KiB "
             "| fairness, 64 B | connections/s | MiB of a node | threads of a node |", "|" + "---|" * 10]
    lines += [row(nodes, results[nodes], base) for nodes in NODES]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    growth = median(results[NODES[-1]][0], lambda one: one["cpu_ns_per_message"]) / base
    print(f"CPU time of an operation at {NODES[-1]} nodes: {growth:.2f} of that at {NODES[0]}, bound {BOUND}"
          + ("" if growth <= BOUND else "   NOT KEPT"))
    if arguments.write:
        with open(DOCUMENT, encoding="utf-8") as file:
            before, rest = file.read().split(BEGIN)
        with open(DOCUMENT, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + table + END + rest.split(END, 1)[1])
    return 0 if growth <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
