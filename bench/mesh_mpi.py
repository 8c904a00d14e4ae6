#!/usr/bin/env python3
"""mesh_comm_service against Open MPI's MPI_Alltoall: the same processes, sizes and seconds, in turns.

usage: bench/mesh_mpi.py [--runs N] [--seconds S] [--write] [BUILD]

For N = 2 and 4 processes on this machine, and 4 KiB, 64 KiB and 1 MiB to each other process: runs the two programs one
after the other, --runs times (default 5). Prints the medians of the total rates, the ratio of each turn, and the median
of these ratios. Bound: at least equal. BUILD is a Release build with RDMACOMM_BUILD_BENCH (default build/release).

mesh_comm_service uses RDMA WRITEs (--op=write), as an all-to-all over RDMA does. Between two rounds of MPI_Alltoall all
processes wait for each other; mesh_comm_service does not wait between two messages. --op=send, in a column of its own,
posts a receive for each message and waits for the receiver's confirmation. The processes outnumber the cores. MPI is
told so (--oversubscribe, mpi_yield_when_idle), which makes it faster here. --write keeps the table in
bench/results/mesh_mpi.md. Exit status 1: a bound is not kept.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = (4 << 10, 64 << 10, 1 << 20)
NODES = (2, 4)
OPS = ("write", "send")
MPI = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader")


def mesh(build, nodes, size, op, seconds):
    """GB/s of all pairs together."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mesh.json")
        subprocess.run([os.path.join(build, "bin/mesh_comm_service"), f"--local={nodes}", "--device=soft0", f"--op={op}",
                        f"--size={size}", f"--duration={seconds}", f"--json={path}"],
                       check=True, stdout=subprocess.DEVNULL, timeout=seconds + 60)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["GB_per_s"]


def mpi(build, nodes, size, seconds):
    done = subprocess.run([*MPI, "-np", str(nodes), os.path.join(build, "bench/mesh_mpi/mesh_mpi_all_to_all"), str(size),
                           str(seconds)], check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + 60)
    return float(done.stdout.split()[-1])


def compare(build, nodes, size, runs, seconds):
    """The table's row, and whether the bound is kept."""
    rates = {name: [] for name in (*OPS, "mpi")}
    for _ in range(runs):
        for op in OPS:
            rates[op].append(mesh(build, nodes, size, op, seconds))
        rates["mpi"].append(mpi(build, nodes, size, seconds))
    ratios = {op: [ours / theirs for ours, theirs in zip(rates[op], rates["mpi"])] for op in OPS}
    ratio = statistics.median(ratios["write"])
    medians = [f"{statistics.median(rates[name]):.2f}" for name in (*OPS, "mpi")]
    each = " ".join(f"{one:.2f}" for one in ratios["write"])
    verdict = "kept" if ratio >= 1 else "NOT KEPT"
    return (f"| {nodes} | {size >> 10} KiB | {' | '.join(medians)} | {ratio:.2f} | {statistics.median(ratios['send']):.2f} "
            f"| {each} | {verdict} |"), ratio >= 1


def main():
    parser = argparse.ArgumentParser(description="mesh_comm_service, compared with the all-to-all of Open MPI")
    parser.add_argument("--runs", type=int, default=5, help="number of turns (default 5)")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of each run (default 2)")
    parser.add_argument("--write", action="store_true", help="write the table to bench/results/mesh_mpi.md")
    parser.add_argument("build", nargs="?", default=os.path.join(ROOT, "build/release"))
    arguments = parser.parse_args()
    for program in ("bin/mesh_comm_service", "bench/mesh_mpi/mesh_mpi_all_to_all"):
        if not os.access(os.path.join(arguments.build, program), os.X_OK):
            sys.exit(f"mesh_mpi.py: no program {program} in {arguments.build}; install openmpi-bin and libopenmpi-dev, then: "
                     "cmake --preset release -DRDMACOMM_BUILD_BENCH=ON && cmake --build --preset release")
    lines = ["| processes | to each other | write GB/s | send GB/s | MPI_Alltoall GB/s | write / MPI | send / MPI "
             "| each turn, write / MPI | at least equal |", "|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    kept = True
    for nodes in NODES:
        for size in SIZES:
            line, good = compare(arguments.build, nodes, size, arguments.runs, arguments.seconds)
            print(line, flush=True)
            lines.append(line)
            kept = kept and good
    if arguments.write:
        version = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[0]
        with open(os.path.join(ROOT, "bench/results/mesh_mpi.md"), "w", encoding="utf-8") as file:
            file.write("# mesh_comm_service and MPI_Alltoall\n\nMade by `bench/mesh_mpi.py --write`, which says how; medians of "
                       f"{arguments.runs} turns of {arguments.seconds:g} s on {len(os.sched_getaffinity(0))} cores, "
                       f"{version}.\nBetween two rounds of MPI_Alltoall all processes wait for each other; between two messages of "
                       "mesh_comm_service nobody does.\n\n" + "\n".join(lines) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
