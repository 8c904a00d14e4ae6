#!/usr/bin/env python3
"""What tests/kernel_vm/run runs in the guest when it is given no command.

For each kind of device, the kinds at the same time: the contract tests, then each file of scenarios/ (unittest). A line
for each says how many tests passed, failed and were skipped, and why; of what failed, the output follows. A part of which
something fails is run once more. Everything is kept in /run/results, too. Exit status 1: something failed twice. To run one part alone:
    tests/kernel_vm/run --device=rxe -- tests/kernel_vm/suite.py --only=programs rxe
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build/dev"
RESULTS = pathlib.Path("/run/results")
# Everything takes longer in an emulated machine. The tests' own limits are multiplied, long loops cut to these percent.
SLOWNESS, ROUNDS_PERCENT = "4", "10"
PART_SECONDS = 400


class Tally:
    """What came out of one part. `reasons` says of each skipped test why, `failures` is text for the reader; so is `unstable`, of
    what failed and passed when it was run again."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = {}
        self.failures = []
        self.unstable = []

    def skip(self, reason):
        self.skipped += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def fail(self, text):
        self.failed += 1
        self.failures.append(text)


def environment_for(kind):
    """The pair of that kind, as guest/main describes the first one."""
    def pair(*words):
        return subprocess.run([HERE / "guest/pair", *words], check=True, capture_output=True, text=True).stdout.strip()

    return {**os.environ, "RDMACOMM_TEST_DEVICE": f"{kind}_a", "RDMACOMM_TEST_PEER_DEVICE": f"{kind}_b",
            "RDMACOMM_TEST_ADDRESS": pair("address", kind, "a"), "RDMACOMM_TEST_PEER_ADDRESS": pair("address", kind, "b"),
            "RDMACOMM_TEST_MAY_BREAK_LINK": pair("interface", kind, "a"), "RDMACOMM_TEST_ROUNDS": ROUNDS_PERCENT,
            "RDMACOMM_BIN": str(BUILD / "bin"), "RDMACOMM_SLOWNESS": SLOWNESS, "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{HERE / 'scenarios'}:{HERE.parent / 'programs'}"}


def run_logged(words, log, environment):
    """Runs it. Returns its exit status ("out of time" instead, if so) and all that it wrote."""
    with open(log, "wb") as file:
        try:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment,
                                    timeout=PART_SECONDS, check=False).returncode
        except OSError as error:
            status = f"cannot be started: {error.strerror}"
        except subprocess.TimeoutExpired:
            status = f"out of time, {PART_SECONDS} s"
    return status, log.read_text(errors="replace")


def run_contract(kind, environment):
    """The contract tests, counted from gtest's XML. A program that crashed or hung wrote none."""
    report = RESULTS / f"contract_{kind}.xml"
    status, output = run_logged([BUILD / "tests/contract/contract_tests", "--hardware", f"--gtest_output=xml:{report}"],
                                RESULTS / f"contract_{kind}.log", environment)
    tally = Tally()
    if status not in (0, 1) or not report.exists():
        tally.fail(f"contract_tests: {status}; the end of its output:\n" + "\n".join(output.splitlines()[-40:]))
        return tally
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failures = [failure.text for failure in case.iter("failure")]
        skipped = case.find("skipped")
        if failures:
            tally.fail(f"{name}\n" + "\n".join(failures))
        elif skipped is not None:
            tally.skip((skipped.text or skipped.get("message", "")).strip().splitlines()[-1])
        else:
            tally.passed += 1
    return tally


def run_scenarios(path, kind, environment):
    """One file of unittest, counted from its verbose output."""
    status, output = run_logged([sys.executable, "-m", "unittest", "-v", path.stem],
                                RESULTS / f"{path.stem}_{kind}.log", environment)
    tally = Tally()
    ran = re.search(r"^Ran (\d+) test", output, re.M)
    for reason in re.findall(r"\.\.\. skipped '(.*)'$", output, re.M):
        tally.skip(reason)
    # A test fails once, whichever of its parts (subTest) did.
    failed = set(re.findall(r"^(?:FAIL|ERROR): (\w+ \([\w.]+\))", output, re.M))
    if status != 0:
        tally.fail(output if ran else f"{path.name}: {status}\n{output}")
        tally.failed = max(1, len(failed))
    tally.passed = (int(ran.group(1)) if ran else 0) - tally.skipped - len(failed)
    return tally


def twice_at_most(run):
    """What fails is run once more: these are other people's drivers and protocols in an emulated machine, cut off in the middle of
    what they do. (rxe of 6.1 leaves the first requests of three in a thousand queue pairs lying, docs/testing.md.) What fails twice
    has failed; what fails once is told, with all that it said, and does not fail the suite."""
    tally = run()
    if tally.failed == 0:
        return tally
    again = run()
    if again.failed == 0:
        again.unstable = tally.failures
    return again


def parts(kind, environment):
    yield "contract", lambda: run_contract(kind, environment)
    for path in sorted((HERE / "scenarios").glob("*_test.py")):
        yield path.stem.removesuffix("_test"), lambda path=path: run_scenarios(path, kind, environment)


def report(kind, name, tally, seconds):
    """In one piece: the kinds' reports come in between each other."""
    lines = [f"==> {kind} {name}: {tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped ({seconds:.0f} s)"]
    lines += [f"    skipped {count}: {reason}" for reason, count in tally.reasons.items()]
    lines += ["    UNSTABLE, passed when run again: " + text.replace("\n", "\n    ") for text in tally.unstable]
    lines += ["    FAILED: " + failure.replace("\n", "\n    ") for failure in tally.failures]
    print("\n".join(lines), flush=True)


def run_kind(kind, only):
    """All parts of one kind, or that one, one after the other. Returns how many ran, and how many tests failed."""
    failed = ran = 0
    for name, run in parts(kind, environment_for(kind)):
        if only in (None, name):
            began = time.monotonic()
            tally = twice_at_most(run)
            report(kind, name, tally, time.monotonic() - began)
            ran += 1
            failed += tally.failed
    return ran, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="run the part of this name only: contract, or a file of scenarios/ without _test.py")
    parser.add_argument("kinds", nargs="+", choices=("rxe", "siw"))
    options = parser.parse_args()
    # At the same time: each kind has a pair, cables and addresses of its own, and most tests wait most of the time.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        counts = list(threads.map(lambda kind: run_kind(kind, options.only), options.kinds))
    if not any(ran for ran, _ in counts):
        parser.error(f"there is no part {options.only}")
    failed = sum(failures for _, failures in counts)
    print(f"==> {'FAILED' if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
